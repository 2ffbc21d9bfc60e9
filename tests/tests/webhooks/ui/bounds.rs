//! What nobody can take from the page, and how the command begins and ends.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::Signal;
use nudge_tests::{binary, eventually};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::ui::page::Page;
use crate::ui::scene::stage;

/// How long anything may take on a busy machine.
pub(crate) const WAIT_TIMEOUT: Duration = Duration::from_mins(1);
/// The maximum number of open windows, and below it of connections.
const WINDOWS: usize = 16;
const CONNECTIONS: usize = 128;

/// Returns a window that stays open, and the status of its answer.
pub(crate) async fn window(page: &Page, session: &str) -> Result<(TcpStream, String)> {
    let host = format!("127.0.0.1:{}", page.port);
    let head = format!(
        "POST /api/overview HTTP/1.1\r\nhost: {host}\r\norigin: http://{host}\r\ncontent-type: application/json\r\n\
         authorization: Bearer {session}\r\ncontent-length: 2\r\n\r\n{{}}"
    );
    let mut stream = TcpStream::connect(("127.0.0.1", page.port)).await?;
    stream.write_all(head.as_bytes()).await?;
    let mut status = [0; 12];
    timeout(WAIT_TIMEOUT, stream.read_exact(&mut status)).await??;
    Ok((stream, String::from_utf8_lossy(&status[9..]).into_owned()))
}

#[tokio::test]
async fn windows_and_connections_are_bounded() -> Result<()> {
    let Some((installation, _, _)) = stage().await? else { return Ok(()) };
    let page = Page::start(&installation.cluster.kubeconfig(), &[]).await?;
    // Those that say nothing are let go, and the user gets through.
    let mut silent = Vec::new();
    for _ in 0..=CONNECTIONS {
        silent.push(TcpStream::connect(("127.0.0.1", page.port)).await?);
    }
    let session = page.session().await?;
    let mut rest = Vec::new();
    timeout(WAIT_TIMEOUT, silent[0].read_to_end(&mut rest)).await??;
    ensure!(rest.is_empty() || rest.starts_with(b"HTTP/1.1 408"), "{}", String::from_utf8_lossy(&rest));
    let long = format!("GET / HTTP/1.1\r\nhost: 127.0.0.1:{}\r\nx: {}\r\n\r\n", page.port, "x".repeat(20_000));
    ensure!(page.raw(&long).await.map_or(431, |answer| answer.status) == 431);

    let mut open = Vec::new();
    for at in 0..WINDOWS {
        let (stream, status) = window(&page, &session).await?;
        ensure!(status == "200", "window {at}: {status}");
        open.push(stream);
    }
    ensure!(window(&page, &session).await?.1 == "429");
    // A window that is closed makes room.
    open.pop();
    let again = async || window(&page, &session).await.ok().filter(|(_, status)| status == "200");
    eventually(WAIT_TIMEOUT, "there is room for another window", again).await.map(drop)
}

#[tokio::test]
async fn the_browser_gets_the_token_by_a_file_of_the_user() -> Result<()> {
    let Some((installation, _, _)) = stage().await? else { return Ok(()) };
    let folder = tempfile::tempdir()?;
    let (opener, seen) = (folder.path().join("xdg-open"), folder.path().join("seen"));
    std::fs::write(&opener, format!("#!/bin/sh\nprintf '%s\\n' \"$@\" > {0}.new; mv {0}.new {0}\n", seen.display()))?;
    std::fs::set_permissions(&opener, PermissionsExt::from_mode(0o755))?;
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH")?);
    let mut command = Command::new(binary::kubectl_nudge()?);
    command.args(["ui", "--kubeconfig"]).arg(installation.cluster.kubeconfig());
    command.env("PATH", path).env("XDG_RUNTIME_DIR", folder.path());
    let mut page = Page::of(&mut command).await?;
    let opened =
        eventually(WAIT_TIMEOUT, "the browser is opened", async || std::fs::read_to_string(&seen).ok()).await?;
    ensure!(!opened.contains(page.token()) && opened.lines().count() == 1, "{opened}");
    let file = PathBuf::from(opened.trim_end());
    ensure!(file.starts_with(folder.path()) && std::fs::metadata(&file)?.permissions().mode() & 0o777 == 0o600);
    ensure!(std::fs::read_to_string(&file)?.contains(page.token()));
    page.session().await?;
    eventually(WAIT_TIMEOUT, "the file is gone", async || (!file.exists()).then_some(())).await?;
    // Ctrl-C is the way to end it.
    page.process.signal(Signal::SIGINT)?;
    let status = page.process.wait_for_exit(WAIT_TIMEOUT).await?;
    ensure!(status.code() == Some(0), "{status}");
    Ok(())
}

#[tokio::test]
async fn a_port_that_is_taken_and_a_right_that_is_missing_are_said() -> Result<()> {
    let Some((installation, _, _)) = stage().await? else { return Ok(()) };
    let page = Page::start(&installation.cluster.kubeconfig(), &[]).await?;
    let port = format!("--port={}", page.port);
    let taken = Page::start(&installation.cluster.kubeconfig(), &[&port]).await.err().context("it has begun")?;
    ensure!(format!("{taken:#}").contains("choose another --port"), "{taken:#}");
    let nobody = installation.cluster.user("nobody-knows", &[]);
    let file = crate::ui::scene::kubeconfig(installation, &nobody, "nobody-knows")?;
    let refused = Page::start(&file, &[]).await.err().context("it has begun")?;
    ensure!(format!("{refused:#}").contains("listing configs"), "{refused:#}");
    let body = json!({"token": page.token()}).to_string();
    ensure!(page.post("/api/session", "", &body).await?.status == 200);
    Ok(())
}
