//! `kubectl nudge create --from-git` from a real SSH server.

use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Result, ensure};
use nix::sys::signal::Signal;
use nudge_tests::process::Process;
use nudge_tests::{Finished, binary, eventually, ports, tools};

/// Runs a program that must succeed.
fn done(command: &mut Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).env("GIT_CONFIG_GLOBAL", "/dev/null").output()?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

fn git(folder: &Path, arguments: &[&str]) -> Result<()> {
    let name = ["-c", "user.name=A", "-c", "user.email=a@example.com", "-c", "init.defaultBranch=main"];
    done(Command::new("git").args(name).args(arguments).current_dir(folder))
}

fn key(file: &Path) -> Result<String> {
    done(Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(file))?;
    Ok(fs::read_to_string(file.with_extension("pub"))?)
}

#[tokio::test]
async fn the_files_of_a_repository_become_keys_and_nothing_is_left() -> Result<()> {
    let Some(sshd) = tools::find("sshd")? else { return Ok(()) };
    let (folder, port) = (tempfile::tempdir()?, ports::free()?);
    let root = folder.path();
    for name in ["repository/config/sub", "repository/config/.hidden", "tmp"] {
        fs::create_dir_all(root.join(name))?;
    }
    let repository = root.join("repository");
    for (name, content) in [("config/greeting", "hello"), ("config/sub/env", "a=1"), ("config/.hidden/x", "x")] {
        fs::write(repository.join(name), content)?;
    }
    git(&repository, &["init", "-q", "."])?;
    git(&repository, &["add", "-A"])?;
    git(&repository, &["commit", "-q", "-m", "first"])?;
    git(&repository, &["tag", "v1"])?;
    fs::write(repository.join("config/sub.env"), "twice")?;
    git(&repository, &["add", "-A"])?;
    git(&repository, &["commit", "-q", "-m", "second"])?;

    // The folder of the unprivileged process, which a service would make.
    if nix::unistd::Uid::effective().is_root() {
        fs::create_dir_all("/run/sshd")?;
    }
    let description = format!("[localhost]:{port} {}", key(&root.join("host"))?);
    fs::write(root.join("known"), description)?;
    fs::write(root.join("authorized"), key(&root.join("mine"))?)?;
    let at = root.display();
    let config = format!(
        "ListenAddress 127.0.0.1\nPort {port}\nHostKey {at}/host\nAuthorizedKeysFile {at}/authorized\nStrictModes no\nUsePAM no\n\
         PermitRootLogin yes\nPidFile none\nAcceptEnv GIT_PROTOCOL\nSetEnv PATH={}\n",
        std::env::var("PATH")?
    );
    fs::write(root.join("config"), config)?;
    let mut command = Command::new(sshd);
    command.args(["-D", "-E"]).arg(root.join("log")).arg("-f").arg(root.join("config"));
    let _sshd = Process::spawn("sshd", command.stdout(Stdio::null()).stderr(Stdio::null()))?;
    let open = async || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok().map(drop);
    eventually(Duration::from_secs(30), "sshd listens", open).await?;

    let user = String::from_utf8(Command::new("id").arg("-un").output()?.stdout)?;
    let url = format!("ssh://{}@localhost:{port}{}", user.trim(), repository.display());
    let create = |reference: &str, with_key: bool| {
        let mut command = Command::new(binary::kubectl_nudge()?);
        command.args(["create", "game", "1", "--dry-run=client", "-o", "yaml", "--from-git"]);
        command.arg(format!("{url}@{reference}")).env("TMPDIR", root.join("tmp"));
        if with_key {
            command.arg("--ssh-key-file").arg(root.join("mine")).arg("--known-hosts-file").arg(root.join("known"));
        }
        Finished::of(&mut command)
    };
    let good = create("v1:config", true)?;
    ensure!(good.stdout.contains("greeting: hello") && good.stdout.contains("sub.env: a=1"), "{good:?}");
    ensure!(!good.stdout.contains("hidden"), "{good:?}");
    for (reference, with_key, part) in [
        ("main:config", true, "the files sub.env and sub/env both become the key sub.env"),
        ("none:config", true, "the repository has no branch none"),
        ("v1:none", true, "has no none"),
        ("v1:config", false, "an SSH URL needs an SSH key and known_hosts"),
    ] {
        let bad = create(reference, with_key)?;
        ensure!(bad.code == Some(1) && bad.stderr.contains(part), "{reference}: {bad:?}");
    }
    ensure!(fs::read_dir(root.join("tmp"))?.next().is_none(), "something is left");
    Ok(())
}

#[tokio::test]
async fn a_command_that_is_ended_leaves_no_token_and_no_process() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let root = folder.path();
    fs::create_dir(root.join("tmp"))?;
    fs::write(root.join("token"), "tok-ended")?;
    let silent = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let url = format!("https://localhost:{}/shop@main", silent.local_addr()?.port());
    let mut command = Command::new(binary::kubectl_nudge()?);
    command.args(["create", "game", "1", "--dry-run=client", "--from-git", &url, "--git-token-file"]);
    command.arg(root.join("token")).env("TMPDIR", root.join("tmp")).stderr(Stdio::null());
    let mut process = Process::spawn("kubectl-nudge", &mut command)?;
    let (_connection, _) = silent.accept().await?;
    process.signal(Signal::SIGTERM)?;
    let status = process.wait_for_exit(Duration::from_secs(30)).await?;
    ensure!(status.code() == Some(130), "{status}");
    ensure!(fs::read_dir(root.join("tmp"))?.next().is_none(), "something is left");
    let mine = |it: &fs::DirEntry| {
        let environment = fs::read(it.path().join("environ")).unwrap_or_default();
        String::from_utf8_lossy(&environment).contains(&root.join("tmp").display().to_string())
    };
    let gone = async || (!fs::read_dir("/proc").ok()?.flatten().any(|it| mine(&it))).then_some(());
    eventually(Duration::from_secs(10), "git is gone", gone).await
}
