//! Finding the agent's binary, and building it where it is missing or stale.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context, Result, anyhow, ensure};
use serde::Deserialize;

/// Names a binary to use as it is.
pub const OVERRIDE: &str = "NUDGE_AGENT_BIN";

const NAME: &str = "nudge-agent";
const INJECTOR: &str = "nudge-injector";
const EXAMPLE: &str = "nudge-example-rust";

/// Beginnings of the variables that describe the package whose program cargo runs.
const TOLD: [&str; 2] = ["CARGO_MANIFEST_", "CARGO_PKG_"];

/// The debug binary, for tests. Built once per test process at most, since cargo itself knows what is stale.
pub fn debug() -> Result<&'static Path> {
    static BINARY: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let binary = BINARY.get_or_init(|| find(|| build(&mut cargo(NAME))).map_err(|error| format!("{error:#}")));
    binary.as_deref().map_err(|error| anyhow!(error.clone()))
}

/// The debug binary of the control plane.
pub fn injector() -> Result<&'static Path> {
    static BINARY: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let binary = BINARY.get_or_init(|| build(&mut cargo(INJECTOR)).map_err(|error| format!("{error:#}")));
    binary.as_deref().map_err(|error| anyhow!(error.clone()))
}

/// The debug binary of the command `kubectl nudge`.
pub fn kubectl_nudge() -> Result<&'static Path> {
    static BINARY: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let made = || build(&mut cargo("kubectl-nudge")).map_err(|error| format!("{error:#}"));
    BINARY.get_or_init(made).as_deref().map_err(|error| anyhow!(error.clone()))
}

/// The Rust example.
pub fn example() -> Result<PathBuf> {
    build(&mut cargo(EXAMPLE))
}

/// The static release binary as it is shipped, for benchmarks.
pub fn release() -> Result<PathBuf> {
    find(|| static_release(NAME))
}

/// The static release binary of the control plane, for benchmarks.
pub fn release_injector() -> Result<PathBuf> {
    static_release(INJECTOR)
}

fn static_release(package: &str) -> Result<PathBuf> {
    let host = host()?;
    // With a target named, the flags don't reach build scripts and procedural macros, which can't be static.
    build(cargo(package).env("RUSTFLAGS", "-C target-feature=+crt-static").args(["--release", "--target", &host]))
}

fn find(build: impl FnOnce() -> Result<PathBuf>) -> Result<PathBuf> {
    let Some(binary) = env::var_os(OVERRIDE) else { return build() };
    let binary = PathBuf::from(binary);
    ensure!(binary.is_file(), "{OVERRIDE} names {}, which is not a file", binary.display());
    Ok(binary)
}

/// Builds the program of `package` that has the package's name.
fn cargo(package: &str) -> Command {
    program(package, package)
}

/// Builds a program of `package`.
fn program(package: &str, name: &str) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["build", "--package", package, "--bin", name, "--message-format", "json-render-diagnostics"]);
    command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
    // What cargo tells the programs that it runs would look like a changed setting to the build scripts that ask for it.
    for (name, _) in env::vars_os() {
        if TOLD.iter().any(|notified| name.as_encoded_bytes().starts_with(notified.as_bytes())) {
            command.env_remove(name);
        }
    }
    command
}

fn build(command: &mut Command) -> Result<PathBuf> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().context("can't run cargo")?;
    ensure!(output.status.success(), "cargo could not build a program: {}", output.status);
    let messages = output.stdout.split(|&byte| byte == b'\n');
    let mut binaries = messages.filter_map(|line| serde_json::from_slice::<Message>(line).ok()?.executable);
    binaries.next_back().context("cargo names no program")
}

/// A line of cargo's report; the one for the binary says where it is, wherever the target folder was put.
#[derive(Deserialize)]
struct Message {
    executable: Option<PathBuf>,
}

/// The target triple of this machine.
fn host() -> Result<String> {
    let output = Command::new("rustc").arg("-vV").output().context("can't run rustc")?;
    let text = String::from_utf8(output.stdout).context("rustc -vV is not text")?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("rustc -vV names no host")
}
