//! The place of the scenarios: a node made for this run, or an existing cluster. All differences between the two are
//! here.
//!
//! `NUDGE_E2E_KUBECONFIG=FILE` names a cluster, whose administrator it must be. Its nodes must be able to pull the
//! images of `deploy/` and of the examples, by the names that `NUDGE_E2E_IMAGES=registry.example.com/team/` is put in
//! front of. Nudge is installed there and removed at the end. What needs the inside of a node is skipped.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use kube::Client;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use nix::unistd::geteuid;
use nudge_tests::tools;
use tempfile::TempDir;

use crate::images::{self, Programs};
use crate::node::{Node, kubernetes};
use crate::space::LONG_WAIT_TIMEOUT;

const KUBECONFIG: &str = "NUDGE_E2E_KUBECONFIG";
const IMAGES: &str = "NUDGE_E2E_IMAGES";

/// Returns the root of the repository.
pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns why no scenario can run on this machine, if none can.
pub(crate) fn skip() -> Option<String> {
    if env::var_os(KUBECONFIG).is_some() {
        return None;
    }
    let reason = if !Path::new("/etc/debian_version").is_file() {
        "this machine is not a Debian"
    } else if !geteuid().is_root() {
        "namespaces and mounts need root"
    } else {
        return None;
    };
    Some(format!("no scenario on a real node: {reason} (a cluster that is there can be named in {KUBECONFIG})"))
}

/// A cluster in which pods run.
pub(crate) struct Place {
    /// The node, if it is ours.
    pub(crate) node: Option<Node>,
    kubeconfig: PathBuf,
    /// kubectl caches facts about the server here, apart from the cache of the user's own kubectl.
    home: TempDir,
    search: OsString,
}

impl Place {
    /// Makes the node, with images for all pods, or takes the cluster that is named.
    pub(crate) fn take() -> Result<Self> {
        let home = TempDir::new()?;
        let (node, kubeconfig, kubectl) = if let Some(file) = env::var_os(KUBECONFIG) {
            (None, std::path::absolute(file)?, None)
        } else {
            let programs = Programs::build()?;
            let node = Node::up()?;
            images::load(&programs, &node)?;
            let kubeconfig = node.kubeconfig();
            (Some(node), kubeconfig, Some(kubernetes()))
        };
        // The first kubectl of the search path, as users have it, or else that of the node's version.
        let path = env::var_os("PATH").unwrap_or_default();
        let search = env::join_paths(env::split_paths(&path).chain(kubectl))?;
        Ok(Self { node, kubeconfig, home, search })
    }

    /// Returns a command that finds kubectl, which finds the cluster, in the root of the repository.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(repository()).env("KUBECONFIG", &self.kubeconfig).env("HOME", self.home.path());
        // A proxy for the way out is none to the node.
        let direct = [env::var("NO_PROXY").ok(), self.node.as_ref().map(|_| crate::node::ADDRESS.to_owned())];
        command.env("PATH", &self.search).env("NO_PROXY", direct.into_iter().flatten().collect::<Vec<_>>().join(","));
        command
    }

    /// Returns where its administrator's kubeconfig is.
    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Returns where programs are looked for.
    pub(crate) fn search(&self) -> &OsString {
        &self.search
    }

    /// Returns a client with all rights.
    pub(crate) async fn client(&self) -> Result<Client> {
        let kubeconfig = Kubeconfig::read_from(&self.kubeconfig)
            .with_context(|| format!("can't read {}", self.kubeconfig.display()))?;
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        // Logs are followed for minutes in which nothing may come.
        config.read_timeout = None;
        Ok(Client::try_from(config)?)
    }

    /// Returns an image as the cluster knows it. On our node it has the name that `deploy/` and the examples use.
    pub(crate) fn image(&self, name: &str) -> String {
        format!("{}{name}", self.images())
    }

    /// Returns what stands in front of the names of images.
    pub(crate) fn images(&self) -> String {
        if self.node.is_some() { String::new() } else { env::var(IMAGES).unwrap_or_default() }
    }

    /// Our node, for what needs its inside; without one the reason for skipping is printed.
    pub(crate) fn inside(&self, what: &str) -> Option<&Node> {
        if self.node.is_none() {
            tools::skipped(&format!("{what} needs a node of our own"));
        }
        self.node.as_ref()
    }

    /// Takes the node down, and looks at what is left of it.
    pub(crate) fn leave(self) -> Result<()> {
        self.node.map_or(Ok(()), Node::down)
    }
}

/// Runs a command to its end and returns what it says; anything but success is an error.
pub(crate) fn succeed(command: &mut Command) -> Result<String> {
    // A namespace that is deleted is waited for, and Kubernetes 1.20 takes a minute for one whose pods take their time.
    let finished = nudge_tests::Finished::within(LONG_WAIT_TIMEOUT, command)?;
    if finished.code != Some(0) {
        bail!("{command:?} has ended with {:?}: {}{}", finished.code, finished.stdout, finished.stderr);
    }
    ensure!(!finished.stdout.contains('\0'), "{command:?} prints what is no text");
    Ok(finished.stdout)
}
