//! The origin of a cluster's programs.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::tools;

/// Names the folder of the Kubernetes programs, as it does for other projects' tests.
pub const ASSETS: &str = "KUBEBUILDER_ASSETS";

/// The folder in which the tools of kubebuilder put the programs.
const USUAL: &str = "/usr/local/kubebuilder/bin";

/// What `tests/node/debian-kubernetes` makes, below its home.
const BUILT: &str = "kubernetes-1.20.2";

/// The programs of a cluster.
#[derive(Clone, Debug)]
pub struct Binaries {
    /// The path of kube-apiserver.
    pub apiserver: PathBuf,
    /// kube-controller-manager, if there is one.
    pub controller_manager: Option<PathBuf>,
    /// The path of etcd.
    pub etcd: PathBuf,
    /// kubectl of the same version, or else any, or else none.
    pub kubectl: Option<PathBuf>,
}

impl Binaries {
    /// Looks in the folder that [`ASSETS`] names, else in kubebuilder's, else for what `tests/run` has built. Without
    /// them the reason for skipping is printed, or it is an error, as for other tools.
    pub fn find() -> Result<Option<Self>> {
        let named = env::var_os(ASSETS).map(PathBuf::from);
        if let Some(folder) = &named
            && !folder.join("kube-apiserver").is_file()
        {
            bail!("{ASSETS} names {}, which has no kube-apiserver", folder.display());
        }
        let usual = [PathBuf::from(USUAL)].into_iter().chain(node_home().map(|home| home.join(BUILT)));
        let mut folders = named.into_iter().chain(usual);
        let Some(folder) = folders.find(|folder| folder.join("kube-apiserver").is_file()) else {
            tools::missing("kube-apiserver (tests/run builds it)")?;
            return Ok(None);
        };
        let etcd = match in_folder(&folder, "etcd") {
            Some(etcd) => etcd,
            None => match tools::find("etcd")? {
                Some(etcd) => etcd,
                None => return Ok(None),
            },
        };
        Ok(Some(Self {
            apiserver: folder.join("kube-apiserver"),
            controller_manager: in_folder(&folder, "kube-controller-manager"),
            etcd,
            kubectl: in_folder(&folder, "kubectl").or_else(|| tools::look("kubectl")),
        }))
    }
}

fn in_folder(folder: &Path, program: &str) -> Option<PathBuf> {
    Some(folder.join(program)).filter(|file| file.is_file())
}

/// Returns the folder of the tools in `tests/node`, by the rule that they have.
fn node_home() -> Option<PathBuf> {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = || set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
    set("NODE_HOME").or_else(|| cache().map(|cache| cache.join("nudge-node")))
}
