//! Finds the API server to work with: that of a kubeconfig, or else of the pod's own account.

use std::time::Duration;

use kube::config::{InClusterError, InferConfigError};
use kube::{Client, Config};
use nudge_cluster::kubeconfig::{client_fault, not_found_message};
use nudge_protocol::error_chain::message;

/// The timeout of connecting to the API server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How much longer than a watch the silence of a connection may last.
const READ_TIMEOUT_MARGIN: Duration = Duration::from_secs(15);

/// The reason why there is no API server to work with.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClusterError {
    /// The process runs neither in a pod nor with a kubeconfig.
    #[error("{0}")]
    Unknown(String),
    /// The pod has no usable service account.
    #[error("the pod's service account can't be used: {0}")]
    Account(String),
    /// The settings of the client, such as a certificate, can't be used.
    #[error("the API server can't be asked: {0}")]
    Unusable(String),
}

impl ClusterError {
    /// Returns the remedy of the error.
    pub(super) fn help(&self) -> &'static str {
        match self {
            Self::Unknown(_) => "run it in a pod of the cluster, or name a kubeconfig file with $KUBECONFIG",
            Self::Account(_) => "give the pod a service account whose token is mounted (automountServiceAccountToken)",
            Self::Unusable(_) => "correct the kubeconfig file, or name another with $KUBECONFIG",
        }
    }
}

/// Finds the API server, without connecting to it.
pub(super) async fn find() -> Result<(Config, Client), ClusterError> {
    let result = Config::infer().await;
    let mut config = result.map_err(|error| explain(&error, Config::incluster().err().as_ref()))?;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    let kube_client = client(&config)?;
    Ok((config, kube_client))
}

/// Makes a client. It works on the runtime of the caller.
pub(super) fn client(config: &Config) -> Result<Client, ClusterError> {
    Client::try_from(config.clone()).map_err(|error| ClusterError::Unusable(client_fault(&error)))
}

/// Returns the settings of clients whose watches have this length. They end a connection that is silent for longer,
/// because its server is gone.
pub(super) fn with_read_timeout(config: &Config, watch_seconds: u32) -> Config {
    let mut config = config.clone();
    config.read_timeout = Some(Duration::from_secs(watch_seconds.into()) + READ_TIMEOUT_MARGIN);
    config
}

/// Returns the error to show, by the reason why the pod's account can't be used.
fn explain(error: &InferConfigError, account: Option<&InClusterError>) -> ClusterError {
    match account {
        // Without the kubelet's variables, the process is not in a pod, so it needs a kubeconfig.
        None | Some(InClusterError::ReadEnvironmentVariable(_)) => ClusterError::Unknown(not_found_message(error)),
        Some(account) => ClusterError::Account(message(account)),
    }
}
