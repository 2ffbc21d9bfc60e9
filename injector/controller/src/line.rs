//! For how long reports wait in the line of the hub, by the Lease of its replicas. Only the leader asks.

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use nudge_cluster::call::call;
use nudge_core::rollout::Millis;
use nudge_protocol::error_chain::chain;
use tokio::time::sleep;

use super::controller::Controller;
use super::locked::locked;

/// How often the Lease is read.
const EVERY: Duration = Duration::from_secs(5);

impl Controller {
    /// For how long the oldest report has waited.
    pub(super) fn line(&self) -> Millis {
        Millis::try_from(locked(&self.lines).longest(Instant::now()).as_millis()).unwrap_or(Millis::MAX)
    }
}

/// Reads the Lease of the hub again and again. One that can't be read says nothing, and what was noted before soon does not count any more.
pub async fn follow_line(controller: Arc<Controller>, namespace: String, lease: String) {
    let leases: Api<Lease> = Api::namespaced(controller.client.clone(), &namespace);
    loop {
        match call(|| format!("reading Lease {namespace}/{lease}"), leases.get_metadata(&lease)).await {
            Ok(found) => {
                locked(&controller.lines).take(&found.metadata.annotations.unwrap_or_default(), Instant::now());
            }
            Err(error) => tracing::debug!(error = chain(&error), "notes of the hub not read"),
        }
        sleep(EVERY).await;
    }
}
