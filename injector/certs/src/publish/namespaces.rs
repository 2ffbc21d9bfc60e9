//! Keeps the ConfigMap `nudge-hub-ca` in every enabled namespace, where agents mount it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::core::ObjectMeta;
use kube::{Api, Client};
use nudge_cluster::jitter::jittered;
use nudge_protocol::backoff::Backoff;
use nudge_protocol::error_chain::chain;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tracing::Instrument as _;

use super::{PublishError, PublishTimes, in_time};

/// Name of the ConfigMap.
pub const HUB_CA: &str = "nudge-hub-ca";
/// Its key: the CA certificates that agents trust, PEM.
pub const HUB_CA_KEY: &str = "ca.crt";
/// Field manager of writes.
const FIELD_MANAGER: &str = "nudge-controller";
/// Most namespaces that are checked at the same time.
const CONCURRENT: usize = 8;

/// Publishes the bundle in the namespaces; returns when there will be no other bundle or namespaces.
pub async fn publish_to_namespaces(
    client: Client,
    mut bundle: watch::Receiver<Arc<str>>,
    mut enabled: watch::Receiver<Arc<BTreeSet<String>>>,
    times: PublishTimes,
) {
    let mut failures = Failures::default();
    let mut full_check = Instant::now();
    let mut done = BTreeSet::new();
    loop {
        let text = Arc::clone(&bundle.borrow_and_update());
        let namespaces = Arc::clone(&enabled.borrow_and_update());
        failures.keep(&namespaces);
        done.retain(|namespace| namespaces.contains(namespace));
        let now = Instant::now();
        let all = now >= full_check;
        if all {
            full_check = now + jittered(times.check);
        }
        let due = namespaces.iter().filter(|&namespace| match failures.until(namespace) {
            Some(until) => now >= until,
            None => all || !done.contains(namespace),
        });
        let due: Vec<String> = if text.is_empty() { Vec::new() } else { due.cloned().collect() };
        let checks = due.into_iter().map(|namespace| {
            let (client, text) = (client.clone(), Arc::clone(&text));
            async move {
                let span = tracing::error_span!("publish_ca", namespace, configmap = HUB_CA);
                let result = ensure(client, &namespace, &text).instrument(span).await;
                (namespace, result)
            }
        });
        let results: Vec<_> = futures::stream::iter(checks).buffer_unordered(CONCURRENT).collect().await;
        for (namespace, result) in results {
            match result {
                Ok(()) => failures.ended(&namespace),
                Err(error) => failures.failed(&namespace, &error, times.retry),
            }
            done.insert(namespace);
        }
        let next = failures.next().map_or(full_check, |until| until.min(full_check));
        let changed = tokio::select! {
            changed = bundle.changed() => {
                full_check = Instant::now();
                changed
            }
            changed = enabled.changed() => changed,
            () = sleep(next.saturating_duration_since(Instant::now())) => Ok(()),
        };
        if changed.is_err() {
            return;
        }
    }
}

/// Writes the ConfigMap if it is missing or differs.
async fn ensure(client: Client, namespace: &str, bundle: &str) -> Result<(), PublishError> {
    let api = Api::<ConfigMap>::namespaced(client, namespace);
    let found = in_time(api.get_opt(HUB_CA)).await?;
    if found.and_then(|found| found.data).is_some_and(|data| data.get(HUB_CA_KEY).is_some_and(|text| text == bundle)) {
        return Ok(());
    }
    let labels = [("app.kubernetes.io/name", "nudge"), ("app.kubernetes.io/managed-by", FIELD_MANAGER)];
    let config_map = ConfigMap {
        metadata: ObjectMeta {
            name: Some(HUB_CA.to_owned()),
            labels: Some(labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into()),
            ..ObjectMeta::default()
        },
        data: Some([(HUB_CA_KEY.to_owned(), bundle.to_owned())].into()),
        ..ConfigMap::default()
    };
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    in_time(api.patch(HUB_CA, &parameters, &Patch::Apply(&config_map))).await?;
    tracing::info!("CA published");
    Ok(())
}

/// A namespace in which publishing fails, mostly because its admin has not bound the role.
#[derive(Debug)]
struct Failure {
    until: Instant,
    count: u32,
    error: String,
}

/// The namespaces in which publishing fails: retried with back-off, and logged once for each error.
#[derive(Debug, Default)]
struct Failures(BTreeMap<String, Failure>);

impl Failures {
    fn keep(&mut self, namespaces: &BTreeSet<String>) {
        self.0.retain(|namespace, _| namespaces.contains(namespace));
    }

    fn until(&self, namespace: &str) -> Option<Instant> {
        self.0.get(namespace).map(|failure| failure.until)
    }

    fn next(&self) -> Option<Instant> {
        self.0.values().map(|failure| failure.until).min()
    }

    fn ended(&mut self, namespace: &str) {
        self.0.remove(namespace);
    }

    fn failed(&mut self, namespace: &str, error: &PublishError, retry: Backoff) {
        let error = chain(error);
        let before = self.0.get(namespace);
        if before.is_none_or(|before| before.error != error) {
            tracing::error!(
                namespace,
                configmap = HUB_CA,
                error,
                "publishing the CA failed, so agents there can't trust the hub; bind ClusterRole nudge-namespace in this namespace"
            );
        }
        let count = before.map_or(1, |before| before.count.saturating_add(1));
        let until = Instant::now() + jittered(retry.wait(count));
        self.0.insert(namespace.to_owned(), Failure { until, count, error });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_namespace_that_fails_is_retried_with_back_off() {
        let retry = PublishTimes::default().retry;
        let mut failures = Failures::default();
        for count in 1..10 {
            failures.failed("a", &PublishError::TooSlow, retry);
            let pause = failures.until("a").unwrap() - Instant::now();
            assert!(pause >= retry.wait(count).mul_f64(0.79) && pause <= retry.wait(count).mul_f64(1.21), "{pause:?}");
        }
        failures.keep(&["b".to_owned()].into());
        assert!(failures.next().is_none(), "a namespace that is no longer enabled is forgotten");
    }
}
