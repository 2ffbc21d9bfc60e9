//! The command, and requests to its server as anybody of the machine can send them.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use nudge_tests::{Process, binary, eventually};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long the command may take to begin.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// A running `kubectl nudge ui`.
pub(crate) struct Page {
    pub(crate) process: Process,
    /// The address, with the token.
    pub(crate) address: String,
    pub(crate) port: u16,
    folder: TempDir,
}

/// An answer of the server.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// The head of the answer, in small letters.
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Result<Value> {
        serde_json::from_str(&self.body).with_context(|| self.body.clone())
    }
}

impl Page {
    /// Runs the command with this kubeconfig, without a browser.
    pub(crate) async fn start(kubeconfig: &Path, arguments: &[&str]) -> Result<Self> {
        let mut command = Command::new(binary::kubectl_nudge()?);
        command.args(["ui", "--no-browser", "--kubeconfig"]).arg(kubeconfig).args(arguments);
        Self::of(&mut command).await
    }

    /// Runs the command.
    pub(crate) async fn of(command: &mut Command) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let (out, errors) = (folder.path().join("out"), folder.path().join("errors"));
        command.stdin(Stdio::null()).stdout(File::create(&out)?).stderr(File::create(&errors)?);
        let mut process = Process::spawn("kubectl nudge ui", command)?;
        let begun = async || {
            let text = std::fs::read_to_string(&out).ok()?;
            let line = text.split_once('\n').map(|(line, _)| line.to_owned());
            line.map(Some).or_else(|| process.try_exited().ok()?.map(|_| None))
        };
        let address = eventually(START_TIMEOUT, "the address is printed", begun).await?;
        let Some(address) = address else { bail!("it ended: {}", std::fs::read_to_string(&errors)?) };
        let port = address.strip_prefix("http://127.0.0.1:").and_then(|rest| rest.split_once("/#"));
        let port = port.with_context(|| address.clone())?.0.parse()?;
        Ok(Self { process, address, port, folder })
    }

    /// Returns what it printed for its user besides the address.
    pub(crate) fn printed_text(&self) -> Result<String> {
        Ok(std::fs::read_to_string(self.folder.path().join("errors"))?)
    }

    /// Returns where it is, without the token.
    pub(crate) fn top(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port)
    }

    pub(crate) fn token(&self) -> &str {
        self.address.split_once('#').map_or("", |(_, token)| token)
    }

    /// Sends a request, head and body as they are, and reads the answer to its end.
    pub(crate) async fn raw(&self, request: &str) -> Result<Answer> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await?;
        stream.write_all(request.as_bytes()).await?;
        let mut text = Vec::new();
        timeout(START_TIMEOUT, stream.read_to_end(&mut text)).await??;
        let text = String::from_utf8(text)?;
        let (head, body) = text.split_once("\r\n\r\n").context("no answer")?;
        let status = head.split(' ').nth(1).context("no status")?.parse()?;
        Ok(Answer { status, head: head.to_lowercase(), body: body.to_owned() })
    }

    /// Returns a request for data with these headers and no others.
    pub(crate) async fn post_with(&self, path: &str, headers: &[(&str, &str)], body: &str) -> Result<Answer> {
        let headers: Vec<String> = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let headers = headers.concat();
        self.raw(&format!("POST {path} HTTP/1.1\r\n{headers}content-length: {}\r\n\r\n{body}", body.len())).await
    }

    /// Returns a request for data as the page sends it.
    pub(crate) async fn post(&self, path: &str, session: &str, body: &str) -> Result<Answer> {
        let host = format!("127.0.0.1:{}", self.port);
        let (origin, bearer) = (format!("http://{host}"), format!("Bearer {session}"));
        let headers =
            [("host", &*host), ("origin", &*origin), ("content-type", "application/json"), ("authorization", &*bearer)];
        self.post_with(path, &headers, body).await
    }

    /// Exchanges the token, as the page does.
    pub(crate) async fn session(&self) -> Result<String> {
        let body = serde_json::json!({"token": self.token()}).to_string();
        let answer = self.post("/api/session", "", &body).await?;
        ensure!(answer.status == 200, "{answer:?}");
        Ok(answer.json()?["session"].as_str().context("no session")?.to_owned())
    }
}
