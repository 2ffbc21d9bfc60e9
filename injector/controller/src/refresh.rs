//! Refreshes the volumes of pods that ask for it: the kubelet syncs a pod that changes at once, with its volumes.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use nudge_api::{Reason, VersionedConfig};
use nudge_cluster::call::CallError;
use nudge_core::event_record::EventRecord;
use nudge_core::keys::ConfigKey;
use nudge_core::restart::{Holds, REFRESHED, refreshed_for};
use nudge_protocol::error_chain::chain;
use serde_json::json;
use tokio::time::{MissedTickBehavior, interval};
use tracing::Instrument as _;

use super::controller::Controller;
use super::locked::locked;
use super::restart::refusal;

/// Pause between two pods, for the sake of kubelets and the API server.
const BETWEEN: Duration = Duration::from_millis(10);

impl Controller {
    /// Begins to touch the pods whose volumes have what `holds`, after that was published. No reconcile waits for it, and the next
    /// one of the config takes its place.
    pub(super) fn begin_refresh(
        self: &Arc<Self>,
        key: &ConfigKey,
        config: VersionedConfig,
        holds: Holds,
        versions: String,
    ) {
        let (controller, of) = (Arc::downgrade(self), key.clone());
        let refresh = async move {
            if let Some(controller) = controller.upgrade() {
                controller.refresh(&of, &config, holds, &versions).await;
            }
        };
        let task = tokio::spawn(refresh.instrument(nudge_cluster::spans::reconcile(key)));
        let mut all = locked(&self.refreshing);
        all.retain(|_, task| !task.is_finished());
        if let Some(before) = all.insert(key.clone(), task.abort_handle()) {
            before.abort();
        }
    }

    /// Touches the pods. Otherwise the kubelet takes about a minute, so a failure becomes an Event and is not retried.
    async fn refresh(&self, key: &ConfigKey, config: &VersionedConfig, holds: Holds, versions: &str) {
        // It is never closed.
        let _turn = self.refreshes.acquire().await;
        match self.touch(key, holds, versions).await {
            Ok(0) => {}
            Ok(count) => tracing::info!(versions, pods = count, "volumes of pods refreshed"),
            Err(error) => {
                let message =
                    refusal(&error, "a pod", "refreshed", false).map_or_else(|| error.to_string(), |it| it.why.message);
                tracing::warn!(versions, error = chain(&error), "refreshing the volumes of pods failed");
                let message = format!("volumes of pods are not refreshed at once: {message}");
                self.events.record(config, &[EventRecord::new(Reason::NotRefreshed, message)]).await;
            }
        }
    }

    async fn touch(&self, key: &ConfigKey, holds: Holds, versions: &str) -> Result<usize, CallError> {
        // Also those that were created a moment ago: what they read then is the version before.
        self.listings.changed(&key.namespace);
        let pods = self.listings.pods(&self.client, &key.namespace).await?;
        let asks = |pod: &&Pod| {
            let asks =
                pod.spec.as_ref().is_some_and(|spec| refreshed_for(&pod.metadata, spec, key.name.as_str(), holds));
            asks && pod.metadata.deletion_timestamp.is_none()
        };
        let names: Vec<&String> = pods.iter().filter(asks).filter_map(|pod| pod.metadata.name.as_ref()).collect();
        let patch = json!({"metadata": {"annotations": {REFRESHED: versions}}});
        let mut turns = interval(BETWEEN);
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for &name in &names {
            turns.tick().await;
            match self.patched::<Pod, _>(key, name, &patch, |_| Some(())).await {
                Ok(_) => self.metrics.refreshed("done"),
                Err(error) => {
                    self.metrics.refreshed("failed");
                    return Err(error);
                }
            }
        }
        Ok(names.len())
    }
}

#[cfg(test)]
mod tests {
    use hyper::http::{Request, Response};
    use kube::Client;
    use kube::client::Body;
    use nudge_api::VersionedConfigSpec;
    use ring::hmac;
    use tokio::sync::mpsc;
    use tower::service_fn;

    use super::*;
    use crate::RolloutMetrics;

    #[tokio::test]
    async fn nobody_waits_for_a_refresh_and_the_next_one_takes_its_place() {
        let (sent, mut lists) = mpsc::unbounded_channel();
        let service = service_fn(move |request: Request<Body>| {
            sent.send(request.uri().path().to_owned()).unwrap();
            std::future::pending::<Result<Response<Body>, hyper::http::Error>>()
        });
        let key = Arc::new(hmac::Key::new(hmac::HMAC_SHA256, b"key"));
        let (client, silence) = (Client::new(service, "ns"), Duration::from_mins(1));
        let index = Arc::default();
        let controller = Arc::new(Controller::new(client, index, key, "a", silence, RolloutMetrics::default()));
        let (shop, other) = (ConfigKey::parse("ns", "shop").unwrap(), ConfigKey::parse("other", "shop").unwrap());
        let config = || VersionedConfig::new("shop", VersionedConfigSpec::default());
        let begin = |key: &ConfigKey, version: &str| {
            controller.begin_refresh(key, config(), Holds::default(), version.to_owned());
        };
        begin(&shop, "1");
        assert_eq!(lists.recv().await.unwrap(), "/api/v1/namespaces/ns/pods");
        begin(&other, "1");
        assert_eq!(lists.recv().await.unwrap(), "/api/v1/namespaces/other/pods");
        begin(&ConfigKey::parse("third", "shop").unwrap(), "1");
        begin(&shop, "2");
        assert_eq!(lists.recv().await.unwrap(), "/api/v1/namespaces/third/pods", "the first one ended for it");
        assert_eq!(locked(&controller.refreshing).len(), 3);
        // Another replica leads.
        controller.forget();
        begin(&other, "2");
        assert_eq!(lists.recv().await.unwrap(), "/api/v1/namespaces/other/pods");
        assert_eq!(Arc::strong_count(&controller), 2, "the refresh that is under way, and this test");
    }
}
