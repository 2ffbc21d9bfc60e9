//! Keeps the ConfigMap `nudge-hub-ca` in every enabled namespace, where agents mount it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::core::ObjectMeta;
use kube::{Api, Client};
use nudge_cluster::jitter::jittered;
use nudge_protocol::error_chain::chain;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::{PublishError, PublishTimes, in_time};

/// Name of the ConfigMap.
pub const HUB_CA: &str = "nudge-hub-ca";
/// Its key: the authorities that agents trust, PEM.
pub const HUB_CA_KEY: &str = "ca.crt";
/// Who our writes are from.
const FIELD_MANAGER: &str = "nudge-controller";
/// Most namespaces that are looked at together.
const TOGETHER: usize = 8;

/// Publishes the bundle in the namespaces until there will be no other bundle or namespaces.
pub async fn publish_to_namespaces(
    client: Client,
    mut bundle: watch::Receiver<Arc<str>>,
    mut enabled: watch::Receiver<Arc<BTreeSet<String>>>,
    times: PublishTimes,
) {
    let mut refusals = Refusals::default();
    let mut full_look = Instant::now();
    let mut done = BTreeSet::new();
    loop {
        let text = Arc::clone(&bundle.borrow_and_update());
        let namespaces = Arc::clone(&enabled.borrow_and_update());
        refusals.keep(&namespaces);
        done.retain(|namespace| namespaces.contains(namespace));
        let now = Instant::now();
        let all = now >= full_look;
        if all {
            full_look = now + jittered(times.look);
        }
        let due = namespaces.iter().filter(|&namespace| match refusals.until(namespace) {
            Some(until) => now >= until,
            None => all || !done.contains(namespace),
        });
        let due: Vec<String> = if text.is_empty() { Vec::new() } else { due.cloned().collect() };
        let looks = due.into_iter().map(|namespace| {
            let (client, text) = (client.clone(), Arc::clone(&text));
            async move {
                let result = ensure(client, &namespace, &text).await;
                (namespace, result)
            }
        });
        let results: Vec<_> = futures::stream::iter(looks).buffer_unordered(TOGETHER).collect().await;
        for (namespace, result) in results {
            match result {
                Ok(()) => refusals.over(&namespace),
                Err(error) => refusals.refused(&namespace, &error, times),
            }
            done.insert(namespace);
        }
        let next = refusals.next().map_or(full_look, |until| until.min(full_look));
        let changed = tokio::select! {
            changed = bundle.changed() => {
                full_look = Instant::now();
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

/// Writes the ConfigMap if it is not there or not as it should be.
async fn ensure(client: Client, namespace: &str, bundle: &str) -> Result<(), PublishError> {
    let api = Api::<ConfigMap>::namespaced(client, namespace);
    let found = in_time(api.get_opt(HUB_CA)).await?;
    if found.and_then(|found| found.data).is_some_and(|data| data.get(HUB_CA_KEY).is_some_and(|text| text == bundle)) {
        return Ok(());
    }
    let labels = [("app.kubernetes.io/name", "nudge"), ("app.kubernetes.io/managed-by", FIELD_MANAGER)];
    let desired = ConfigMap {
        metadata: ObjectMeta {
            name: Some(HUB_CA.to_owned()),
            labels: Some(labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into()),
            ..ObjectMeta::default()
        },
        data: Some([(HUB_CA_KEY.to_owned(), bundle.to_owned())].into()),
        ..ConfigMap::default()
    };
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    in_time(api.patch(HUB_CA, &parameters, &Patch::Apply(&desired))).await?;
    tracing::info!(namespace, "published the hub's authorities");
    Ok(())
}

/// A namespace that refuses, mostly because its admin has not bound the role.
#[derive(Debug)]
struct Refusal {
    until: Instant,
    pause: Duration,
    text: String,
}

/// The namespaces that refuse: asked again ever more seldom, and logged once for each reason.
#[derive(Debug, Default)]
struct Refusals(BTreeMap<String, Refusal>);

impl Refusals {
    fn keep(&mut self, namespaces: &BTreeSet<String>) {
        self.0.retain(|namespace, _| namespaces.contains(namespace));
    }

    fn until(&self, namespace: &str) -> Option<Instant> {
        self.0.get(namespace).map(|refusal| refusal.until)
    }

    fn next(&self) -> Option<Instant> {
        self.0.values().map(|refusal| refusal.until).min()
    }

    fn over(&mut self, namespace: &str) {
        self.0.remove(namespace);
    }

    fn refused(&mut self, namespace: &str, error: &PublishError, times: PublishTimes) {
        let text = chain(error);
        let before = self.0.get(namespace);
        if before.is_none_or(|before| before.text != text) {
            tracing::error!(
                "can't publish the hub's authorities in namespace {namespace}, where agents will not trust the hub; has its \
                 admin bound the ClusterRole nudge-namespace? {text}"
            );
        }
        let pause = before.map_or(times.first_pause, |before| (before.pause * 2).min(times.longest_pause));
        let until = Instant::now() + jittered(pause);
        self.0.insert(namespace.to_owned(), Refusal { until, pause, text });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_namespace_that_refuses_is_asked_ever_more_seldom() {
        let times = PublishTimes::default();
        let mut refusals = Refusals::default();
        let refused = PublishError::TooSlow;
        let mut pauses = Vec::new();
        for _ in 0..10 {
            refusals.refused("a", &refused, times);
            pauses.push(refusals.0["a"].pause);
        }
        assert_eq!((pauses[0], pauses[1], pauses[9]), (times.first_pause, times.first_pause * 2, times.longest_pause));
        assert!(refusals.until("a").unwrap() > Instant::now());
        refusals.keep(&["b".to_owned()].into());
        assert!(refusals.next().is_none(), "a namespace that is enabled no more is forgotten");
    }
}
