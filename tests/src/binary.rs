//! The programs under test, built if they are missing or stale.
//!
//! The debug programs are built with the features of the whole workspace: those that `cargo build --workspace
//! --all-targets` has built, so that a test compiles nothing. Released programs are built alone, as they are shipped.

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use parking_lot::Mutex;
use serde::Deserialize;

/// Names a folder with programs to use as they are, instead of building them.
const PROGRAMS: &str = "NUDGE_PROGRAMS";

const AGENT: &str = "nudge-agent";
const INJECTOR: &str = "nudge-injector";

/// Beginnings of the variables that describe the package whose program cargo runs.
const OF_CARGO: [&str; 2] = ["CARGO_MANIFEST_", "CARGO_PKG_"];

/// Returns the debug binary of the agent.
pub fn debug() -> Result<&'static Path> {
    debug_build(AGENT)
}

/// Returns the debug binary of the control plane.
pub fn injector() -> Result<&'static Path> {
    debug_build(INJECTOR)
}

/// Returns the debug binary of the command `kubectl nudge`.
pub fn kubectl_nudge() -> Result<&'static Path> {
    debug_build("kubectl-nudge")
}

/// Returns the Rust example.
pub fn example() -> Result<PathBuf> {
    debug_build("nudge-example-rust").map(Path::to_owned)
}

/// Returns the static release binary as it is shipped, for benchmarks.
pub fn release() -> Result<PathBuf> {
    static_release(AGENT)
}

/// Returns the static release binary of the control plane, for benchmarks.
pub fn release_injector() -> Result<PathBuf> {
    static_release(INJECTOR)
}

/// Returns the hub with stand-ins for the API server, for benchmarks.
pub fn hub_under_load() -> Result<PathBuf> {
    build(cargo().args(["--release", "--package", "nudge-hub", "--example", "hub_under_load"]))
}

/// Built once per test process at most, since cargo itself knows what is stale.
fn debug_build(name: &'static str) -> Result<&'static Path> {
    static BUILT: Mutex<BTreeMap<&str, &Path>> = Mutex::new(BTreeMap::new());
    let mut built = BUILT.lock();
    if let Some(program) = built.get(name) {
        return Ok(program);
    }
    let program = match env::var_os(PROGRAMS) {
        Some(folder) => PathBuf::from(folder).join(name),
        None => build(cargo().args(["--workspace", "--bin", name]))?,
    };
    ensure!(program.is_file(), "{PROGRAMS} names a folder without {name}: {}", program.display());
    let program: &Path = Box::leak(program.into_boxed_path());
    built.insert(name, program);
    Ok(program)
}

fn static_release(package: &str) -> Result<PathBuf> {
    let host = host()?;
    // With a target named, the flags don't reach build scripts and procedural macros, which can't be static.
    let mut command = cargo();
    command.args(["--package", package, "--bin", package, "--release", "--target", &host]);
    build(command.env("RUSTFLAGS", "-C target-feature=+crt-static"))
}

fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["build", "--locked", "--message-format", "json-render-diagnostics"]);
    command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
    // Variables that cargo sets for its child programs would look like changed settings to build scripts that read
    // them.
    for (name, _) in env::vars_os() {
        if OF_CARGO.iter().any(|prefix| name.as_encoded_bytes().starts_with(prefix.as_bytes())) {
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

/// Returns the target triple of this machine.
fn host() -> Result<String> {
    let output = Command::new("rustc").arg("-vV").output().context("can't run rustc")?;
    let text = String::from_utf8(output.stdout).context("rustc -vV is not text")?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("rustc -vV names no host")
}
