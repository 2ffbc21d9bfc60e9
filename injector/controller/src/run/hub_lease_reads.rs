//! The leader's reads of the Lease of the hubs: for how long reports wait in each, and whether any hub is there.

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use nudge_cluster::call::call;
use nudge_core::config::is_moved;
use nudge_core::hub_health::{LeaseRenewals, Outage};
use nudge_protocol::error_chain::chain;
use tokio::time::sleep;

use crate::controller::Controller;

/// The time between two reads of the Lease.
const LEASE_READ_INTERVAL: Duration = Duration::from_secs(5);
/// How long the last read still counts while the Lease can't be read.
const LEASE_READ_GRACE: Duration = Duration::from_secs(30);

impl Controller {
    /// Takes in the Lease as it is now. A Lease that does not exist counts as not renewed.
    fn take_lease(&self, renewals: &mut LeaseRenewals, lease: Option<Lease>, now: Instant) {
        let Lease { metadata, spec } = lease.unwrap_or_default();
        let overdue = renewals.observe(&spec.unwrap_or_default(), now);
        let outage = {
            let mut notes = self.hub_notes.lock();
            notes.observe(&metadata.annotations.unwrap_or_default(), now);
            Outage::new(overdue, &notes, |namespace| self.index.last_report_change(namespace), now)
        };
        match self.set_outage(&outage) {
            Some(before) if outage == Outage::default() => {
                tracing::info!(?before, "the hub is back; rollouts continue");
            }
            Some(_) => tracing::warn!(cause = ?outage, "the hub is away; rollouts that need it are held"),
            None => {}
        }
    }

    /// Keeps the outage, and queues the rollouts that it holds or releases. Returns the last outage, if it differs.
    fn set_outage(&self, outage: &Outage) -> Option<Outage> {
        let before = {
            let mut current = self.hub_outage.lock();
            if *current == *outage {
                return None;
            }
            std::mem::replace(&mut *current, outage.clone())
        };
        for key in self.index.configs() {
            let changes = before.cause(&key.namespace) != outage.cause(&key.namespace);
            if changes && self.index.config(&key).is_some_and(|config| is_moved(&config)) {
                self.queue.add(key, Duration::ZERO);
            }
        }
        Some(before)
    }
}

/// Reads the Lease of the hubs again and again. A Lease that can't be read for half a minute says nothing about the
/// hub.
pub async fn follow_hub_lease(controller: Arc<Controller>, namespace: String, name: String) {
    let leases: Api<Lease> = Api::namespaced(controller.client.clone(), &namespace);
    let (mut renewals, mut read_at) = (LeaseRenewals::default(), Instant::now());
    loop {
        match call(|| format!("reading Lease {namespace}/{name}"), leases.get_opt(&name)).await {
            Ok(lease) => {
                read_at = Instant::now();
                controller.take_lease(&mut renewals, lease, read_at);
            }
            Err(error) => {
                tracing::debug!(error = chain(&error), "Lease of the hub not read");
                if read_at.elapsed() >= LEASE_READ_GRACE {
                    renewals = LeaseRenewals::default();
                    if controller.set_outage(&Outage::default()).is_some() {
                        tracing::warn!(
                            "it is not known whether the hub is away, since its Lease can't be read; rollouts continue"
                        );
                    }
                }
            }
        }
        sleep(LEASE_READ_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::coordination::v1::LeaseSpec;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
    use k8s_openapi::jiff::Timestamp;
    use nudge_cluster::index::Index;
    use nudge_core::hub_health::HubAway;
    use serde_json::json;

    use super::*;
    use crate::fake_api_server::blind;

    #[tokio::test]
    async fn moves_are_queued_when_the_hub_goes_and_when_it_comes_back() {
        let index = Arc::new(Index::default());
        index.set_enabled(["ns".to_owned()].into());
        for (name, stage) in [("moves", Some("Moving")), ("rests", None)] {
            let config = json!({
                "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "spec": {},
                "metadata": {"name": name, "namespace": "ns", "uid": name, "resourceVersion": "1"},
                "status": {"currentVersion": "1", "targetVersion": stage.map(|_| "2"), "rollout": {"stage": stage}},
            });
            index.put_config(serde_json::from_value(config).unwrap());
        }
        let controller = blind(index);
        let (mut renewals, start) = (LeaseRenewals::default(), Instant::now());
        let mut take = |second: u64, renewed: i64| {
            let renew_time = Some(MicroTime(Timestamp::from_second(renewed).unwrap()));
            let spec = Some(LeaseSpec { renew_time, ..LeaseSpec::default() });
            let lease = Lease { spec, ..Lease::default() };
            controller.take_lease(&mut renewals, Some(lease), start + Duration::from_secs(second));
            let woken = controller.queue.len();
            controller.queue.clear();
            (controller.hub_outage.lock().cause("ns"), woken)
        };
        assert_eq!((take(0, 1), take(25, 1)), ((None, 0), (None, 0)));
        assert_eq!(take(30, 1), (Some(HubAway::NotRenewing), 1), "what moves is queued");
        assert_eq!((take(35, 1), take(40, 2)), ((Some(HubAway::NotRenewing), 0), (None, 1)));
    }
}
