//! A command that has run to its end, with its output.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Seek};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Result;

use crate::{Process, binary, eventually_blocking};

/// How long a command may take, on a busy machine.
const COMMAND_TIMEOUT: Duration = Duration::from_mins(1);

/// Exit status and texts of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// The exit status; `None` if a signal ended it.
    pub code: Option<i32>,
    /// What the command wrote to standard output.
    pub stdout: String,
    /// What the command wrote to standard error.
    pub stderr: String,
}

impl Finished {
    /// Runs `nudge-agent` with `arguments`, without any variables of an agent that this test runs under.
    pub fn agent<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Result<Self> {
        let mut command = Command::new(binary::debug()?);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"MY_CONFIG_")) {
            command.env_remove(name);
        }
        Self::of(command.args(arguments))
    }

    /// Runs any command. One that takes longer than any should is ended, and that is an error.
    pub fn of(command: &mut Command) -> Result<Self> {
        Self::within(COMMAND_TIMEOUT, command)
    }

    /// Returns the same for one that may take this long.
    pub fn within(limit: Duration, command: &mut Command) -> Result<Self> {
        let name = command.get_program().display().to_string();
        let (stdout, stderr) = (tempfile::tempfile()?, tempfile::tempfile()?);
        command.stdin(Stdio::null()).stdout(stdout.try_clone()?).stderr(stderr.try_clone()?);
        let mut process = Process::spawn(&name, command)?;
        let status = eventually_blocking(limit, &format!("{name} ends"), || process.try_exited().transpose())??;
        Ok(Self { code: status.code(), stdout: text(stdout)?, stderr: text(stderr)? })
    }
}

fn text(mut file: File) -> Result<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
