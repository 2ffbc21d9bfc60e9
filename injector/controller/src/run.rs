//! Runs the controllers while this replica leads: events of the index queue configs, a few of which are reconciled at a time.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nudge_api::VersionedConfig;
use nudge_cluster::call::CallError;
use nudge_cluster::index::{Index, IndexEvent};
use nudge_cluster::lease::Leadership;
use nudge_cluster::queue::{Queue, Take};
use nudge_core::keys::ConfigKey;
use nudge_protocol::error_chain::chain;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::sync::Semaphore;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tracing::Instrument as _;

use super::locked::locked;
use super::turns::{collects, is_moved};
use super::{Again, Controller};

/// How long a new leader waits for the server to confirm what this replica knows.
const CONFIRM: Duration = Duration::from_secs(30);
/// Configs that are reconciled at the same time.
const WORKERS: usize = 8;
/// The same for what is urgent alone, such as roll-backs, so that no others keep it waiting.
const URGENT_WORKERS: usize = 4;
/// How often each config is reconciled without any event.
const RESYNC: Duration = Duration::from_mins(10);
/// Deleted configs that are remembered until a leader has removed their versions.
const REMEMBERED: usize = 1024;
/// How long they are remembered: longer than it takes to find a new leader.
const REMEMBER: Duration = Duration::from_mins(2);

/// Metrics of the controllers.
#[derive(Clone, Debug, Default)]
pub struct ControllerMetrics {
    leads: Gauge,
    waiting: Gauge,
    reconciles: Counter,
    failures: Counter,
}

impl ControllerMetrics {
    /// Registers the metrics.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("leader", "1 while this replica leads, else 0", self.leads.clone());
        registry.register("queue", "Configs that wait for a reconcile", self.waiting.clone());
        registry.register("reconciliations", "Reconciles of configs", self.reconciles.clone());
        registry.register("reconciliation_failures", "Reconciles of configs that failed", self.failures.clone());
    }
}

/// How long the versions of a deleted config stay: one that is deleted to be created again exists again by then.
const GRACE: Duration = Duration::from_secs(5);
/// After which time a new leader deletes the parts of configs that were deleted before, and how often it tries, with ever longer pauses.
const ORPHANED: Duration = Duration::from_mins(5);
const ORPHAN_TRIES: u32 = 8;
/// When a config is reconciled again that is not done.
const SOON: Duration = Duration::from_millis(50);
/// When a config is reconciled again that somebody else wrote first, if the watch does not bring that before.
const CONFLICT: Duration = Duration::from_secs(1);
/// When to try again to delete the versions of a deleted config.
const REMOVAL: Duration = Duration::from_secs(30);

/// After which time a config is reconciled again without any event: at the latest when all are, however far away the end of an override is, or
/// the next window. `random` is between 0 and 1, so that not all have their turn at once.
fn resync(again: Again, random: f64) -> Duration {
    match again {
        Again::Soon => SOON,
        Again::At(wait) => wait.min(RESYNC),
        Again::Never => RESYNC.mul_f64(1.0 + random / 5.0),
    }
}

type Deleted = Arc<Mutex<VecDeque<(Instant, ConfigKey, Arc<VersionedConfig>)>>>;

/// Runs for ever, and reconciles configs while this replica leads.
pub async fn run(
    controller: Arc<Controller>,
    index: Arc<Index>,
    mut leadership: Leadership,
    metrics: ControllerMetrics,
) {
    let queue = Arc::clone(&controller.queue);
    let gone = Deleted::default();
    let (sink, deleted, known) = (Arc::clone(&queue), Arc::clone(&gone), Arc::downgrade(&index));
    let neighbours = Arc::downgrade(&controller);
    let changed = move |key: &ConfigKey| {
        if let Some(controller) = neighbours.upgrade() {
            controller.changed(key);
        }
    };
    index.listen(move |event| match event {
        IndexEvent::Config(key) => {
            sink.add(key.clone(), Duration::ZERO);
            changed(key);
        }
        IndexEvent::Pods { config: key, harmed } => {
            let Some(index) = known.upgrade() else { return };
            let config = index.config(key);
            let wait = collects(config.as_deref(), index.count_users(key));
            if *harmed && config.is_some_and(|config| is_moved(&config)) {
                sink.add_urgent(key.clone(), wait);
            } else {
                sink.add(key.clone(), wait);
            }
        }
        IndexEvent::ConfigGone(key, config) => {
            changed(key);
            let mut deleted = locked(&deleted);
            if deleted.len() == REMEMBERED
                && let Some((_, config, _)) = deleted.pop_front()
            {
                tracing::warn!(%config, "too many configs were deleted at once; versions of the deleted config stay, delete them by hand");
            }
            deleted.push_back((Instant::now(), key.clone(), Arc::clone(config)));
            // A reconcile deletes its versions.
            sink.add(key.clone(), Duration::ZERO);
        }
    });
    let shared = Shared { controller, index, queue, gone, metrics: metrics.clone() };
    loop {
        if leadership.wait_for(|leads| *leads).await.is_err() {
            return;
        }
        metrics.leads.set(1);
        shared.lead(&mut leadership).await;
        metrics.leads.set(0);
        shared.controller.forget();
    }
}

/// What all reconciles use.
#[derive(Clone)]
struct Shared {
    controller: Arc<Controller>,
    index: Arc<Index>,
    queue: Arc<Queue>,
    gone: Deleted,
    metrics: ControllerMetrics,
}

impl Shared {
    async fn lead(&self, leadership: &mut Leadership) {
        let led = std::time::Instant::now();
        // What is not listed yet would count as deleted; and the previous leader may have done more than the index shows yet.
        let confirmed = async {
            self.index.synced().await;
            self.index.confirm(led, CONFIRM).await
        };
        tokio::select! {
            confirmed = confirmed => if let Err(watch) = confirmed {
                tracing::warn!(watch, "API server did not confirm a watch; no rollout goes on until it does");
            },
            _ = leadership.wait_for(|leads| !*leads) => return,
        }
        self.controller.begin();
        self.queue.clear();
        let deleted: Vec<ConfigKey> = {
            let gone = locked(&self.gone);
            gone.iter().map(|(_, key, _)| key.clone()).collect()
        };
        let approved = self.index.configs_with_approvals();
        let known = self.index.configs().into_iter().chain(self.index.subscribed()).chain(approved);
        for key in known.chain(deleted) {
            self.queue.add(key, Duration::ZERO);
        }
        let orphans = async {
            self.remove_orphans(self.index.configs_of_orphans()).await;
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = self.work(leadership) => {}
            () = orphans => {}
        }
    }

    /// Deletes what is left of configs that were deleted while no leader saw it, unless they come back soon.
    async fn remove_orphans(&self, mut keys: BTreeSet<ConfigKey>) {
        let mut pause = ORPHANED;
        for _ in 0..ORPHAN_TRIES {
            if keys.is_empty() {
                return;
            }
            tokio::time::sleep(pause).await;
            for key in std::mem::take(&mut keys) {
                let removal = self.controller.remove_orphans(&key);
                if let Err(error) = removal.instrument(nudge_cluster::spans::reconcile(&key)).await {
                    tracing::warn!(config = %key, error = chain(&error), "versions of a deleted config not deleted; retrying");
                    keys.insert(key);
                }
            }
            pause *= 2;
        }
        tracing::warn!(?keys, "versions of deleted configs stay; delete them by hand");
    }

    /// Reconciles what the queue brings until this replica no longer leads.
    async fn work(&self, leadership: &mut Leadership) {
        let (workers, urgent) = (Arc::new(Semaphore::new(WORKERS)), Arc::new(Semaphore::new(URGENT_WORKERS)));
        let next = async |workers: &Arc<Semaphore>, which: Take| {
            let permit = Arc::clone(workers).acquire_owned().await;
            (self.queue.next(which).await, permit)
        };
        // Cancels the reconciles under way when this replica no longer leads.
        let mut tasks = JoinSet::new();
        loop {
            let (key, permit) = tokio::select! {
                biased;
                next = next(&workers, Take::Any) => next,
                next = next(&urgent, Take::Urgent) => next,
                _ = leadership.wait_for(|leads| !*leads) => return,
            };
            self.metrics.waiting.set(i64::try_from(self.queue.len()).unwrap_or(i64::MAX));
            while let Some(ended) = tasks.try_join_next() {
                log_panic(ended, &self.metrics);
            }
            let (shared, span) = (self.clone(), nudge_cluster::spans::reconcile(&key));
            let turn = async move {
                shared.turn(&key).await;
                drop(permit);
            };
            tasks.spawn(turn.instrument(span));
        }
    }

    /// Reconciles a config, and queues it for the next time.
    async fn turn(&self, key: &ConfigKey) {
        let Self { controller, index, queue, gone, metrics } = self;
        let mut turn = Turn { queue, key, success: false };
        metrics.reconciles.inc();
        let outcome = Box::pin(reconcile(controller, queue, gone, key)).await;
        turn.success = outcome.is_ok();
        controller.note_approvals(key);
        match outcome {
            Ok(Again::Never) if index.config(key).is_none() => {}
            Ok(again) => queue.add(key.clone(), resync(again, rand::random())),
            // Somebody else wrote first; the watch brings what they wrote, and that is decided about at once.
            Err(error) if error.is_conflict() => {
                turn.success = true;
                queue.add(key.clone(), CONFLICT);
            }
            Err(error) => {
                metrics.failures.inc();
                tracing::warn!(error = chain(&error), "reconcile failed; retrying");
            }
        }
    }
}

fn log_panic(ended: Result<(), JoinError>, metrics: &ControllerMetrics) {
    if let Err(error) = ended {
        metrics.failures.inc();
        tracing::error!(error = chain(&error), "reconcile panicked; retrying");
    }
}

/// A key that is worked on. It goes back to the queue however that ends, even by a panic or the loss of leadership.
pub(super) struct Turn<'a> {
    pub(super) queue: &'a Queue,
    pub(super) key: &'a ConfigKey,
    pub(super) success: bool,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.queue.done(self.key, self.success, rand::random());
    }
}

/// Deletes the versions of deleted configs of this name, and reconciles the config. Returns when to reconcile it again.
async fn reconcile(
    controller: &Arc<Controller>,
    queue: &Queue,
    gone: &Deleted,
    key: &ConfigKey,
) -> Result<Again, CallError> {
    for (at, config) in deleted(gone, key) {
        let early = GRACE.saturating_sub(at.elapsed());
        if !early.is_zero() {
            queue.add(key.clone(), early);
            continue;
        }
        if let Err(error) = controller.remove(key, &config).await {
            tracing::warn!(error = chain(&error), "versions of a deleted config not deleted; retrying");
            queue.add(key.clone(), REMOVAL);
            continue;
        }
        let mut gone = locked(gone);
        gone.retain(|(_, _, other)| !Arc::ptr_eq(other, &config));
    }
    Box::pin(controller.reconcile(key)).await
}

/// The deleted configs of this name. Those deleted too long ago are dropped: too much may have changed since.
fn deleted(gone: &Deleted, key: &ConfigKey) -> Vec<(Instant, Arc<VersionedConfig>)> {
    let mut gone = locked(gone);
    gone.retain(|(at, name, _)| {
        let stays = at.elapsed() < REMEMBER;
        if !stays && name == key {
            tracing::warn!("versions of the deleted config stay; delete them by hand");
        }
        stays
    });
    gone.iter().filter(|(_, name, _)| name == key).map(|(at, _, config)| (*at, Arc::clone(config))).collect()
}

#[cfg(test)]
mod orphans_tests;

#[cfg(test)]
mod tests {
    use hyper::http::{Request, Response};
    use kube::Client;
    use kube::client::Body;
    use ring::hmac;
    use serde_json::{Value, json};
    use tokio::sync::{mpsc, watch};
    use tower::service_fn;

    use super::*;
    use crate::RolloutMetrics;
    use crate::played::part;

    /// One of many configs. Version 1 was current before 2.
    fn config(number: usize, requested: &str) -> Value {
        let version = |name: &str| {
            let part =
                json!({"kind": "ConfigMap", "name": format!("c{number}-{name}"), "uid": name, "digest": "sha256:00"});
            json!({"version": name, "state": "Available", "parts": [part], "keys": 1, "bytes": 1})
        };
        json!({
            "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig",
            "metadata": {
                "name": format!("c{number}"), "namespace": format!("ns-{}", number % 100), "uid": format!("u{number}"),
                "resourceVersion": if requested == "1" { "2" } else { "1" }, "generation": 1},
            "spec": {"version": requested},
            "status": {"currentVersion": "2", "previousVersion": "1", "internal": {"revision": 1},
                       "versions": [version("1"), version("2"), version("3")],
                       "conditions": [{"type": "Ready", "status": "True", "reason": "Current", "message": "",
                                       "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
        })
    }

    #[test]
    fn a_config_has_its_turn_however_far_away_what_it_waits_for_is() {
        let day = Duration::from_hours(24);
        for (again, random, wait) in [
            (Again::Soon, 0.5, SOON),
            (Again::At(Duration::from_millis(20)), 0.5, Duration::from_millis(20)),
            (Again::At(RESYNC), 0.5, RESYNC),
            (Again::At(day), 0.5, RESYNC),
            (Again::At(Duration::MAX), 0.5, RESYNC),
            (Again::Never, 0.0, RESYNC),
            (Again::Never, 1.0, RESYNC * 6 / 5),
        ] {
            assert_eq!(resync(again, random), wait, "{again:?}");
        }
    }

    pub(super) fn shared(client: Client, index: &Arc<Index>) -> Shared {
        let key = Arc::new(hmac::Key::new(hmac::HMAC_SHA256, b"key"));
        let (silence, metrics) = (Duration::from_mins(1), RolloutMetrics::default());
        let controller = Arc::new(Controller::new(client, Arc::clone(index), key, "a", silence, metrics));
        let queue = Arc::clone(&controller.queue);
        let (gone, metrics) = (Deleted::default(), ControllerMetrics::default());
        Shared { controller, index: Arc::clone(index), queue, gone, metrics }
    }

    #[tokio::test(start_paused = true)]
    async fn what_must_go_back_is_served_next_while_a_thousand_configs_wait() {
        let (sent, mut writes) = mpsc::unbounded_channel();
        let service = service_fn(move |request: Request<Body>| {
            if request.uri().path().ends_with("/status") {
                sent.send(request.uri().path().to_owned()).unwrap();
            }
            // The API server is slow. Every worker waits for it.
            async {
                tokio::time::sleep(Duration::from_secs(10)).await;
                let failed = br#"{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 500}"#;
                Ok::<_, hyper::http::Error>(Response::builder().status(500).body(Body::from(failed.to_vec())).unwrap())
            }
        });
        let index = Arc::new(Index::default());
        index.set_enabled((0..100).map(|number| format!("ns-{number}")).collect());
        let put = |number, requested| index.put_config(serde_json::from_value(config(number, requested)).unwrap());
        (0..1000).for_each(|number| put(number, "3"));
        let parts = |number: usize| ["1", "2", "3"].map(|version| (number, version));
        for (number, version) in (0..1000).flat_map(parts) {
            let key = ConfigKey::parse(format!("ns-{}", number % 100), &format!("c{number}")).unwrap();
            let name = format!("c{number}-{version}");
            index.put_part(key, part(version, &name, version));
        }
        let shared = shared(Client::new(service, "ns"), &index);
        let queue = Arc::clone(&shared.queue);
        index.configs().into_iter().for_each(|key| queue.add(key, Duration::ZERO));
        let (_lead, mut leads) = watch::channel(true);
        let working = tokio::spawn(async move { shared.work(&mut leads).await });
        let began = Instant::now();
        for _ in 0..WORKERS {
            writes.recv().await.unwrap();
        }
        assert!(queue.len() > 900, "{} wait", queue.len());
        put(999, "1");
        queue.add(ConfigKey::parse("ns-99", "c999").unwrap(), Duration::ZERO);
        assert_eq!(
            writes.recv().await.unwrap(),
            "/apis/nudge.dev/v1alpha1/namespaces/ns-99/versionedconfigs/c999/status"
        );
        assert_eq!(began.elapsed(), Duration::ZERO, "it waits for no other config");
        working.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn what_somebody_else_wrote_first_is_decided_about_at_once() {
        const ANSWER: Duration = Duration::from_secs(1);
        let (sent, mut writes) = mpsc::unbounded_channel();
        let service = service_fn(move |request: Request<Body>| {
            let is_write = request.uri().path().ends_with("/status");
            is_write.then(|| sent.send(()).unwrap());
            async move {
                tokio::time::sleep(ANSWER).await;
                let code = if is_write { 409 } else { 404 };
                let failed = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code});
                Response::builder().status(code).body(Body::from(failed.to_string().into_bytes()))
            }
        });
        let index = Arc::new(Index::default());
        index.set_enabled(["ns-0".to_owned()].into());
        let key = ConfigKey::parse("ns-0", "c0").unwrap();
        let put = |version: &str| {
            let mut config = config(0, "1");
            config["metadata"]["resourceVersion"] = version.into();
            index.put_config(serde_json::from_value(config).unwrap());
        };
        put("2");
        let shared = shared(Client::new(service, "ns"), &index);
        let queue = Arc::clone(&shared.queue);
        queue.add(key.clone(), Duration::ZERO);
        let (_lead, mut leads) = watch::channel(true);
        let working = tokio::spawn(async move { shared.work(&mut leads).await });
        for version in ["3", "4", "5"] {
            writes.recv().await.unwrap();
            let began = Instant::now();
            // The watch shows what the other one wrote before the answer is there.
            put(version);
            queue.add(key.clone(), Duration::ZERO);
            tokio::time::sleep(ANSWER).await;
            writes.recv().await.unwrap();
            assert_eq!(began.elapsed(), ANSWER, "nothing is waited for but the answer");
        }
        working.abort();
    }
}
