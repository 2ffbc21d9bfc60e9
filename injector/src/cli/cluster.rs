//! The API server to work with: what a kubeconfig names, or else the pod's own account.

use std::time::Duration;

use kube::config::{InClusterError, InferConfigError};
use kube::{Client, Config};
use nudge_cluster::kubeconfig::{client_fault, not_found_message};
use nudge_protocol::error_chain::message;

/// How long connecting to the API server may take.
const CONNECT: Duration = Duration::from_secs(5);

/// Why there is no API server to work with.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClusterError {
    /// Neither in a pod nor with a kubeconfig.
    #[error("{0}")]
    Unknown(String),
    /// In a pod that has no account, or half of one.
    #[error("the pod's service account can't be used: {0}")]
    Account(String),
    /// What was found can't be used, such as a certificate.
    #[error("the API server can't be asked: {0}")]
    Unusable(String),
}

impl ClusterError {
    /// What to do about it.
    pub(super) fn help(&self) -> &'static str {
        match self {
            Self::Unknown(_) => "run it in a pod of the cluster, or name a kubeconfig file with $KUBECONFIG",
            Self::Account(_) => "give the pod a service account whose token is mounted (automountServiceAccountToken)",
            Self::Unusable(_) => "correct the kubeconfig file, or name another with $KUBECONFIG",
        }
    }
}

/// Finds the API server. It is not connected to yet.
pub(super) async fn find() -> Result<(Config, Client), ClusterError> {
    let result = Config::infer().await;
    let mut config = result.map_err(|error| explain(&error, Config::incluster().err().as_ref()))?;
    config.connect_timeout = Some(CONNECT);
    let client = client(&config)?;
    Ok((config, client))
}

/// A client, which does its work on the runtime that this is called on.
pub(super) fn client(config: &Config) -> Result<Client, ClusterError> {
    Client::try_from(config.clone()).map_err(|error| ClusterError::Unusable(client_fault(&error)))
}

/// The error to show, given why the pod's account can't be used.
fn explain(error: &InferConfigError, account: Option<&InClusterError>) -> ClusterError {
    match account {
        // Without the kubelet's variables it is no pod, so the kubeconfig is what was meant.
        None | Some(InClusterError::ReadEnvironmentVariable(_)) => ClusterError::Unknown(not_found_message(error)),
        Some(account) => ClusterError::Account(message(account)),
    }
}
