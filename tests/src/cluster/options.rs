//! The parts of a cluster beyond an API server and its store.

use std::path::{Path, PathBuf};

/// The controllers that a cluster has unless configured otherwise: namespaces can be deleted and have what pods need in
/// them.
pub const CONTROLLERS: [&str; 4] = ["namespace", "root-ca-cert-publisher", "serviceaccount", "serviceaccount-token"];

/// The controllers of workloads, which create pods and replace them.
const WORKLOADS: [&str; 4] = ["deployment", "replicaset", "statefulset", "daemonset"];

/// Settings of a cluster, each with a sensible default.
#[derive(Clone, Debug)]
pub struct Options {
    pub(super) controllers: Vec<String>,
    pub(super) flags: Vec<(String, String)>,
    pub(super) folder: Option<PathBuf>,
    pub(super) sync: bool,
}

impl Default for Options {
    fn default() -> Self {
        let controllers = CONTROLLERS.map(str::to_owned).to_vec();
        Self { controllers, flags: Vec::new(), folder: None, sync: true }
    }
}

impl Options {
    /// Returns the controllers of kube-controller-manager to run, in place of [`CONTROLLERS`]; without any it does not
    /// run.
    #[must_use]
    pub fn controllers(mut self, names: &[&str]) -> Self {
        self.controllers = names.iter().map(|&name| name.to_owned()).collect();
        self
    }

    /// Adds the controllers of workloads.
    #[must_use]
    pub fn workloads(mut self) -> Self {
        self.controllers.extend(WORKLOADS.map(str::to_owned));
        self
    }

    /// Adds `--flag=value` to the API server's arguments.
    #[must_use]
    pub fn flag(mut self, flag: &str, value: &str) -> Self {
        self.flags.push((flag.to_owned(), value.to_owned()));
        self
    }

    /// Keeps all of the cluster in a new folder in here, such as /dev/shm, rather than in that for temporary files.
    #[must_use]
    pub fn inside(mut self, folder: &Path) -> Self {
        self.folder = Some(folder.to_owned());
        self
    }

    /// Has etcd leave out fsync: faster, but not what users have, so latencies are not to be measured with it.
    #[must_use]
    pub fn without_sync(mut self) -> Self {
        self.sync = false;
        self
    }
}
