//! The loop of the leader, which reconciles a few configs of the queue at a time.

use std::sync::Arc;
use std::time::Duration;

use nudge_cluster::call::CallError;
use nudge_cluster::lease::Leadership;
use nudge_cluster::queue::Priority;
use nudge_core::keys::ConfigKey;
use nudge_protocol::error_chain::chain;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tracing::Instrument as _;

use super::events::queue_configs;
use super::orphans::delete_orphans;
use super::unfinished_deletions::{DeletedConfig, UnfinishedDeletions};
use crate::controller::Controller;
use crate::metrics::ControllerMetrics;
use crate::reconcile::NextReconcile;
use crate::work_item::WorkItem;

/// How long the API server may take to confirm the state that a new leader knows.
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum number of configs that are reconciled at the same time.
const MAX_WORKERS: usize = 8;
/// The maximum number of further workers for urgent configs, such as those that roll back, so that no others keep them
/// waiting.
const MAX_URGENT_WORKERS: usize = 4;
/// The interval of reconciles of a config without events.
const RESYNC_INTERVAL: Duration = Duration::from_mins(10);
/// The time that the versions of a deleted config stay. A config that is deleted to be created again exists again by
/// then.
const DELETED_CONFIG_GRACE: Duration = Duration::from_secs(5);
/// The time until the next reconcile of a config that has more to do.
const UNFINISHED_DELAY: Duration = Duration::from_millis(50);
/// The time until the next reconcile after a conflict, if the watch does not bring the other write before.
const CONFLICT_DELAY: Duration = Duration::from_secs(1);
/// The time until another attempt to delete the versions of a deleted config.
const DELETION_RETRY_DELAY: Duration = Duration::from_secs(30);

/// Returns the time until the next reconcile without any event: at most the interval of all configs, however far away
/// the end of an override or the next window is. `random` is between 0 and 1, so that not all are reconciled at once.
fn wait_until_next(next: NextReconcile, random: f64) -> Duration {
    match next {
        NextReconcile::Soon => UNFINISHED_DELAY,
        NextReconcile::Within(wait) => wait.min(RESYNC_INTERVAL),
        NextReconcile::OnChange => RESYNC_INTERVAL.mul_f64(1.0 + random / 5.0),
    }
}

/// Runs for ever, and reconciles configs while this replica leads.
pub async fn run(controller: Arc<Controller>, mut leadership: Leadership, metrics: ControllerMetrics) {
    let deleted = Arc::<UnfinishedDeletions>::default();
    let (weak, known) = (Arc::downgrade(&controller), Arc::clone(&deleted));
    controller.index.listen(move |event| queue_configs(&weak, &known, event));
    let leader = Leader { controller, deleted, metrics };
    loop {
        if leadership.wait_for(|is_leader| *is_leader).await.is_err() {
            return;
        }
        leader.metrics.leader.set(1);
        leader.lead(&mut leadership).await;
        leader.metrics.leader.set(0);
        leader.controller.forget();
    }
}

/// The parts that all reconciles use.
#[derive(Clone)]
struct Leader {
    controller: Arc<Controller>,
    deleted: Arc<UnfinishedDeletions>,
    metrics: ControllerMetrics,
}

impl Leader {
    async fn lead(&self, leadership: &mut Leadership) {
        let (led, index) = (std::time::Instant::now(), &self.controller.index);
        // Objects that are not listed yet would count as deleted, and the previous leader may have done more than the
        // index shows.
        let confirmed = async {
            index.wait_until_synced().await;
            index.confirm(led, CONFIRM_TIMEOUT).await
        };
        tokio::select! {
            confirmed = confirmed => if let Err(watch) = confirmed {
                tracing::warn!(watch, "API server did not confirm a watch; no rollout continues until it does");
            },
            _ = leadership.wait_for(|leads| !*leads) => return,
        }
        self.controller.begin_to_lead();
        self.controller.queue.clear();
        let keys = index.configs().into_iter().chain(index.subscribed_configs()).chain(index.configs_with_approvals());
        for key in keys.chain(self.deleted.keys()) {
            self.controller.queue.add(key, Duration::ZERO);
        }
        tokio::select! {
            () = self.work(leadership) => {}
            never = delete_orphans(&self.controller) => match never {},
        }
    }

    /// Reconciles the configs of the queue until this replica no longer leads.
    async fn work(&self, leadership: &mut Leadership) {
        let (workers, urgent) = (Arc::new(Semaphore::new(MAX_WORKERS)), Arc::new(Semaphore::new(MAX_URGENT_WORKERS)));
        let queue = &self.controller.queue;
        let next = async |workers: &Arc<Semaphore>, priority: Priority| {
            let permit = Arc::clone(workers).acquire_owned().await;
            (queue.next(priority).await, permit)
        };
        // Cancels the reconciles under way when this replica no longer leads.
        let mut tasks = JoinSet::new();
        loop {
            let (key, permit) = tokio::select! {
                biased;
                next = next(&workers, Priority::Any) => next,
                next = next(&urgent, Priority::Urgent) => next,
                _ = leadership.wait_for(|leads| !*leads) => return,
            };
            self.metrics.waiting.set(i64::try_from(queue.len()).unwrap_or(i64::MAX));
            while let Some(ended) = tasks.try_join_next() {
                if let Err(error) = ended {
                    self.metrics.failures.inc();
                    tracing::error!(error = chain(&error), "reconcile panicked; retrying");
                }
            }
            let (leader, span) = (self.clone(), nudge_cluster::spans::reconcile_span(&key));
            let reconcile = async move {
                leader.reconcile(&key).await;
                drop(permit);
            };
            tasks.spawn(reconcile.instrument(span));
        }
    }

    /// Reconciles a config, and queues it for the next time.
    async fn reconcile(&self, key: &ConfigKey) {
        let Self { controller, metrics, .. } = self;
        let queue = &controller.queue;
        let mut item = WorkItem { queue, key, success: false };
        metrics.reconciles.inc();
        let outcome = Box::pin(self.delete_and_reconcile(key)).await;
        item.success = outcome.is_ok();
        controller.queue_approval_statuses(key);
        match outcome {
            Ok(NextReconcile::OnChange) if controller.index.config(key).is_none() => {}
            Ok(next) => queue.add(key.clone(), wait_until_next(next, rand::random())),
            // The watch brings the other client's write first, and the next decision follows at once.
            Err(error) if error.is_conflict() => {
                item.success = true;
                queue.add(key.clone(), CONFLICT_DELAY);
            }
            Err(error) => {
                metrics.failures.inc();
                tracing::warn!(error = chain(&error), "reconcile failed; retrying");
            }
        }
    }

    /// Deletes the versions of deleted configs of this name, and reconciles the config. Returns when to reconcile it
    /// again.
    async fn delete_and_reconcile(&self, key: &ConfigKey) -> Result<NextReconcile, CallError> {
        let Self { controller, deleted, .. } = self;
        for DeletedConfig { config, deleted_at, .. } in deleted.of_key(key) {
            let wait = DELETED_CONFIG_GRACE.saturating_sub(deleted_at.elapsed());
            if !wait.is_zero() {
                controller.queue.add(key.clone(), wait);
                continue;
            }
            if let Err(error) = controller.delete_versions(key, &config).await {
                tracing::warn!(error = chain(&error), "versions of a deleted config not deleted; retrying");
                controller.queue.add(key.clone(), DELETION_RETRY_DELAY);
                continue;
            }
            deleted.forget(&config);
        }
        Box::pin(controller.reconcile(key)).await
    }
}

#[cfg(test)]
mod tests {
    use hyper::http::{Request, Response};
    use kube::Client;
    use kube::client::Body;
    use nudge_cluster::index::Index;
    use serde_json::{Value, json};
    use tokio::sync::{mpsc, watch};
    use tokio::time::Instant;
    use tower::service_fn;

    use super::*;
    use crate::fake_api_server::{controller_over, part};

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
        for (next, random, wait) in [
            (NextReconcile::Soon, 0.5, UNFINISHED_DELAY),
            (NextReconcile::Within(Duration::from_millis(20)), 0.5, Duration::from_millis(20)),
            (NextReconcile::Within(RESYNC_INTERVAL), 0.5, RESYNC_INTERVAL),
            (NextReconcile::Within(day), 0.5, RESYNC_INTERVAL),
            (NextReconcile::Within(Duration::MAX), 0.5, RESYNC_INTERVAL),
            (NextReconcile::OnChange, 0.0, RESYNC_INTERVAL),
            (NextReconcile::OnChange, 1.0, RESYNC_INTERVAL * 6 / 5),
        ] {
            assert_eq!(wait_until_next(next, random), wait, "{next:?}");
        }
    }

    fn leader(client: Client, index: &Arc<Index>) -> Leader {
        let controller = Arc::new(controller_over(client, Arc::clone(index)));
        Leader { controller, deleted: Arc::default(), metrics: ControllerMetrics::default() }
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
        let leader = leader(Client::new(service, "ns"), &index);
        let queue = Arc::clone(&leader.controller.queue);
        index.configs().into_iter().for_each(|key| queue.add(key, Duration::ZERO));
        let (_lead, mut leads) = watch::channel(true);
        let working = tokio::spawn(async move { leader.work(&mut leads).await });
        let began = Instant::now();
        for _ in 0..MAX_WORKERS {
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
        let leader = leader(Client::new(service, "ns"), &index);
        let queue = Arc::clone(&leader.controller.queue);
        queue.add(key.clone(), Duration::ZERO);
        let (_lead, mut leads) = watch::channel(true);
        let working = tokio::spawn(async move { leader.work(&mut leads).await });
        for version in ["3", "4", "5"] {
            writes.recv().await.unwrap();
            let began = Instant::now();
            // The watch shows the other client's write before the answer arrives.
            put(version);
            queue.add(key.clone(), Duration::ZERO);
            tokio::time::sleep(ANSWER).await;
            writes.recv().await.unwrap();
            assert_eq!(began.elapsed(), ANSWER, "nothing is waited for but the answer");
        }
        working.abort();
    }
}
