//! The API server to work with: what a kubeconfig names, or else the pod's own account.

use kube::Config;
use kube::config::{InClusterError, InferConfigError};
use nudge_cluster::kubeconfig::none_found;
use nudge_protocol::error_chain::message;

/// Why there is no API server to work with.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoCluster {
    /// Neither in a pod nor with a kubeconfig.
    #[error("{0}")]
    Nowhere(String),
    /// In a pod that has no account, or half of one.
    #[error("the pod's service account can't be used: {0}")]
    Account(String),
    /// What was found can't be used, such as a certificate.
    #[error("the API server can't be asked: {0}")]
    Unusable(String),
}

impl NoCluster {
    /// The way out.
    pub(super) fn help(&self) -> &'static str {
        match self {
            Self::Nowhere(_) => "run it in a pod of the cluster, or name a kubeconfig file with $KUBECONFIG",
            Self::Account(_) => "give the pod a service account whose token is mounted (automountServiceAccountToken)",
            Self::Unusable(_) => "mend the kubeconfig file, or name another with $KUBECONFIG",
        }
    }
}

/// Finds the API server. Nothing is asked yet.
pub(super) async fn find() -> Result<Config, NoCluster> {
    Config::infer().await.map_err(|error| no_cluster(&error, Config::incluster().err().as_ref()))
}

/// What to say of it, given why the pod's account is none. Pure.
fn no_cluster(error: &InferConfigError, account: Option<&InClusterError>) -> NoCluster {
    match account {
        // Without the kubelet's variables it is no pod, so the kubeconfig is what was meant.
        None | Some(InClusterError::ReadEnvironmentVariable(_)) => NoCluster::Nowhere(none_found(error)),
        Some(account) => NoCluster::Account(message(account)),
    }
}
