//! The node of this run: `tests/node/up` and `down` under a guard that outlives this process by as long as it takes to
//! clear up.

use std::env;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nudge_tests::eventually_blocking;

use crate::leftovers::Traces;
use crate::place::{repository, succeed};

/// The node's address, as this machine sees it.
pub(crate) const ADDRESS: &str = "10.251.0.2";

/// The end of this process, and nothing else, ends the input of this shell: neither a panic nor a signal goes past it.
/// It is in a session of its own, so that a terminal's Ctrl-C does not reach it; and it is not the one that ends by
/// writing to nobody.
const GUARD: &str =
    r#"if "$0/up" >/dev/null; then (echo up); else (echo failed); fi; read -r _; exec "$0/down" --wipe"#;

/// How long taking down may take.
const REMOVAL_TIMEOUT: Duration = Duration::from_mins(1);

/// A single-node Kubernetes.
pub(crate) struct Node {
    guard: Child,
    /// Closing it takes the node down.
    input: ChildStdin,
    state: PathBuf,
}

impl Node {
    /// Makes what a node needs and is not there yet, and brings one up.
    pub(crate) fn up() -> Result<Self> {
        let state = node_home()?.join("e2e");
        prepare()?;
        // What a run has left that was killed with its guard.
        succeed(tool("down", &state).arg("--wipe"))?;
        let mut command = Command::new("setsid");
        command
            .args(["sh", "-c", GUARD])
            .arg(tools())
            .env("NODE_STATE", &state)
            .env("KUBEBUILDER_ASSETS", kubernetes());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut guard = command.spawn().context("can't start a shell")?;
        let input = guard.stdin.take().context("no input")?;
        let output = guard.stdout.take().context("no output")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        let node = Self { guard, input, state };
        if line.trim() != "up" {
            node.keep_logs();
            node.end()?;
            anyhow::bail!("the node does not come up");
        }
        Ok(node)
    }

    /// Returns where its administrator's kubeconfig is.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.state.join("kubeconfig")
    }

    /// Returns one of the tools of `tests/node`, for this node.
    pub(crate) fn tool(&self, name: &str) -> Command {
        tool(name, &self.state)
    }

    /// Returns a command inside of the node's namespaces.
    pub(crate) fn exec(&self, arguments: &[&str]) -> Result<String> {
        succeed(self.tool("exec").args(arguments))
    }

    /// Keeps the logs of the node's parts, for somebody to read after the node is gone.
    #[allow(clippy::print_stderr)]
    pub(crate) fn keep_logs(&self) {
        let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join("node-logs");
        let copied = Command::new("cp").arg("-rT").arg(self.state.join("logs")).arg(&kept).status();
        if copied.is_ok_and(|status| status.success()) {
            eprintln!("the logs of the node's parts are in {}", kept.display());
        }
    }

    /// Takes it down, and fails if anything of it is left on this machine.
    pub(crate) fn down(self) -> Result<()> {
        let traces = Traces::of(&self.state)?;
        self.end()?;
        traces.gone()
    }

    fn end(self) -> Result<()> {
        let Self { mut guard, input, .. } = self;
        drop(input);
        let status = eventually_blocking(REMOVAL_TIMEOUT, "the node is down", || guard.try_wait().transpose())??;
        ensure!(status.success(), "tests/node/down has failed: {status}");
        Ok(())
    }
}

fn tools() -> PathBuf {
    repository().join("tests/node")
}

fn tool(name: &str, state: &Path) -> Command {
    let mut command = Command::new(tools().join(name));
    command.env("NODE_STATE", state);
    command
}

/// Returns the folder of the tools in `tests/node`, by the rule that they have.
pub(crate) fn node_home() -> Result<PathBuf> {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = || set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
    set("NODE_HOME").or_else(|| cache().map(|cache| cache.join("nudge-node"))).context("HOME is not set")
}

/// Returns the node's Kubernetes: the folder that `KUBEBUILDER_ASSETS` names, if it has more than the programs for
/// tests of the API, or else Debian's.
pub(crate) fn kubernetes() -> PathBuf {
    let named = env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from);
    let named = named.filter(|folder| folder.join("kubelet").is_file());
    named.unwrap_or_else(|| node_home().unwrap_or_default().join("kubernetes-1.20.2"))
}

/// Builds Kubernetes, once for this machine, and fetches the runtime.
fn prepare() -> Result<()> {
    let run = |name: &str| -> Result<()> {
        // Minutes, with progress on standard error.
        let status = Command::new(tools().join(name)).stdin(Stdio::null()).status()?;
        ensure!(status.success(), "tests/node/{name} has failed: {status}");
        Ok(())
    };
    let folder = kubernetes();
    let missing = || ["kube-apiserver", "kubelet", "kube-proxy"].into_iter().find(|name| !folder.join(name).is_file());
    if missing().is_some() && folder.starts_with(node_home()?) {
        run("debian-kubernetes")?;
    }
    if let Some(program) = missing() {
        anyhow::bail!("no {program} in {}", folder.display());
    }
    run("debian-runtime")
}
