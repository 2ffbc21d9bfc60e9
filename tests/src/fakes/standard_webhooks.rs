//! The library of the authors of Standard Webhooks, as a second opinion on signatures.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, anyhow, ensure};
use nix::fcntl::{Flock, FlockArg};
use nudge_protocol::headers;

use crate::{Delivery, tools};

/// A Python environment with the library in it.
#[derive(Debug)]
pub struct Verifier {
    python: PathBuf,
}

impl Verifier {
    /// Takes the environment in `folder`, and makes it if no test has before. `None` without Python.
    pub fn in_folder(folder: &Path) -> Result<Option<Self>> {
        let Some(system) = tools::find("python3")? else { return Ok(None) };
        let requirements = tools::client("webhook-verify/requirements.txt");
        let home = folder.join("webhook-verify");
        fs::create_dir_all(&home)?;
        // Of tests that begin at the same time the first makes it, and the others wait.
        let lock = File::create(home.join("lock"))?;
        let _lock = Flock::lock(lock, FlockArg::LockExclusive).map_err(|(_, error)| anyhow!("can't lock: {error}"))?;
        let (python, done) = (home.join("venv/bin/python3"), home.join("done"));
        let listed = fs::read(&requirements)?;
        if fs::read(&done).ok() != Some(listed.clone()) {
            run(Command::new(system).args(["-m", "venv", "--clear"]).arg(home.join("venv")))?;
            let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes", "-r"];
            run(Command::new(&python).args(install).arg(&requirements))?;
            fs::write(&done, listed)?;
        }
        Ok(Some(Self { python }))
    }

    /// Whether the delivery is signed with `token`, and not long ago.
    pub fn verify(&self, delivery: &Delivery, token: &str) -> Result<bool> {
        let signed = [headers::WEBHOOK_ID, headers::WEBHOOK_TIMESTAMP, headers::WEBHOOK_SIGNATURE];
        let signed: serde_json::Map<_, _> =
            signed.iter().map(|&name| (name.to_owned(), delivery.header(name).into())).collect();
        let input = serde_json::json!({
            "secret": format!("whsec_{token}"),
            "headers": signed,
            "body": delivery.body,
        });
        let mut command = Command::new(&self.python);
        command.arg(tools::client("webhook-verify/verify.py")).stdin(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().context("can't run verify.py")?;
        child.stdin.take().context("no standard input")?.write_all(input.to_string().as_bytes())?;
        match child.wait()?.code() {
            Some(0) => Ok(true),
            Some(1) => Ok(false),
            other => Err(anyhow!("verify.py ended with {other:?}")),
        }
    }
}

fn run(command: &mut Command) -> Result<()> {
    let status = command.stdin(Stdio::null()).status().with_context(|| format!("can't run {command:?}"))?;
    ensure!(status.success(), "{command:?} failed: {status}");
    Ok(())
}
