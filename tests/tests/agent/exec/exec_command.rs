//! A command below `nudge-agent exec`, as it looks from outside.

use std::process::Command;

use anyhow::Result;
use nudge_tests::{ConfigDir, Finished, binary};

/// The application of these tests.
pub(super) const APP: &str = env!("CARGO_BIN_EXE_app");

/// `nudge-agent exec` that serves `dir` on a free port, without a command yet.
pub(super) fn exec(dir: &ConfigDir) -> Result<Command> {
    exec_at(dir, "0")
}

pub(super) fn exec_at(dir: &ConfigDir, port: &str) -> Result<Command> {
    let mut command = Command::new(binary::debug()?);
    command.arg("exec").arg("--dir").arg(dir.path()).args(["--port", port, "--log-level", "error"]);
    // Whatever the agent keeps for the run goes with the folder.
    command.env("TMPDIR", dir.beside("")).env_remove("XDG_RUNTIME_DIR");
    Ok(command)
}

/// Runs a command under the agent to its end.
pub(super) fn run(dir: &ConfigDir, command: &[&str]) -> Result<Finished> {
    Finished::of(exec(dir)?.arg("--").args(command))
}
