//! Python environments with packages that a test needs, made once for all tests.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, anyhow, ensure};
use nix::fcntl::{Flock, FlockArg};

use crate::tools;

/// Returns the interpreter of an environment in `folder` with what `requirements.txt` of a folder of `tests/clients`
/// lists. The first test that asks makes it. `None` without Python.
pub fn environment(folder: &Path, client: &str) -> Result<Option<PathBuf>> {
    let Some(system) = tools::find("python3")? else { return Ok(None) };
    let requirements = tools::client(client).join("requirements.txt");
    let home = folder.join(client);
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
    Ok(Some(python))
}

fn run(command: &mut Command) -> Result<()> {
    let status = command.stdin(Stdio::null()).status().with_context(|| format!("can't run {command:?}"))?;
    ensure!(status.success(), "{command:?} failed: {status}");
    Ok(())
}
