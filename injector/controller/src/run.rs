//! Runs the controllers while this replica leads: events of the index become work, a few configs at a time.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nudge_api::VersionedConfig;
use nudge_cluster::call::CallError;
use nudge_cluster::index::{Index, IndexEvent};
use nudge_cluster::lease::Leadership;
use nudge_cluster::queue::Queue;
use nudge_core::keys::ConfigKey;
use nudge_protocol::error_chain::chain;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{Again, Controller};

/// How long a new leader waits for the server to confirm what this replica knows.
const CONFIRM: Duration = Duration::from_secs(30);
/// Configs that are looked at at the same time.
const WORKERS: usize = 8;
/// How long changes of pods are gathered.
const PODS: Duration = Duration::from_secs(1);
/// The same while the config is being moved, which waits for what pods say.
const MOVING_PODS: Duration = Duration::from_millis(100);
/// How often each config is looked at without any event.
const RESYNC: Duration = Duration::from_mins(10);
/// Deleted configs that are remembered until a leader has removed their versions.
const REMEMBERED: usize = 1024;
/// For how long: longer than it takes to find a new leader.
const REMEMBER: Duration = Duration::from_mins(2);

/// Figures of the controllers.
#[derive(Clone, Debug, Default)]
pub struct ControllerMetrics {
    leads: Gauge,
    waiting: Gauge,
    looks: Counter,
    failures: Counter,
}

impl ControllerMetrics {
    /// Registers the figures.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("leader", "1 while this replica leads", self.leads.clone());
        registry.register("queue", "Configs that wait to be looked at", self.waiting.clone());
        registry.register("reconciliations", "Looks at a config", self.looks.clone());
        registry.register("reconciliation_failures", "Looks at a config that failed", self.failures.clone());
    }
}

/// How long after a config's end its versions stay: one that is deleted to be created again is there by then.
const GRACE: Duration = Duration::from_secs(5);
/// When there is more to look at.
const SOON: Duration = Duration::from_millis(50);

type Gone = Arc<Mutex<VecDeque<(Instant, ConfigKey, Arc<VersionedConfig>)>>>;

/// Runs for ever; works while `leadership` says so.
pub async fn run(
    controller: Arc<Controller>,
    index: Arc<Index>,
    mut leadership: Leadership,
    metrics: ControllerMetrics,
) {
    let queue = Arc::new(Queue::default());
    let gone = Gone::default();
    let (sink, deleted, known) = (Arc::clone(&queue), Arc::clone(&gone), Arc::downgrade(&index));
    let moves = move |key: &ConfigKey| {
        let config = known.upgrade().and_then(|index| index.config(key));
        config.is_some_and(|config| config.status.as_ref().is_some_and(|status| status.rollout.stage.is_some()))
    };
    index.listen(move |event| match event {
        IndexEvent::Config(key) => sink.add(key.clone(), Duration::ZERO),
        IndexEvent::Pods(key) => sink.add(key.clone(), if moves(key) { MOVING_PODS } else { PODS }),
        IndexEvent::ConfigGone(key, config) => {
            let mut deleted = deleted.lock().unwrap_or_else(PoisonError::into_inner);
            if deleted.len() == REMEMBERED {
                tracing::warn!(
                    "too many configs were deleted at once; versions of some stay and can be deleted by hand"
                );
                deleted.pop_front();
            }
            deleted.push_back((Instant::now(), key.clone(), Arc::clone(config)));
            // So that somebody looks.
            sink.add(key.clone(), Duration::ZERO);
        }
    });
    loop {
        if leadership.wait_for(|leads| *leads).await.is_err() {
            return;
        }
        metrics.leads.set(1);
        lead(&controller, &index, &queue, &gone, &mut leadership, &metrics).await;
        metrics.leads.set(0);
        controller.forget();
    }
}

async fn lead(
    controller: &Arc<Controller>,
    index: &Arc<Index>,
    queue: &Arc<Queue>,
    gone: &Gone,
    leadership: &mut Leadership,
    metrics: &ControllerMetrics,
) {
    let led = std::time::Instant::now();
    // What is not listed yet would look as if it were deleted; and the leader before may have done more than is seen yet.
    let seeing = async {
        index.synced().await;
        index.confirm(led, CONFIRM).await
    };
    tokio::select! {
        seen = seeing => if let Err(what) = seen {
            tracing::warn!(what, "the API server does not confirm what is known; no config is moved until it does");
        },
        _ = leadership.wait_for(|leads| !*leads) => return,
    }
    controller.begin();
    queue.clear();
    let deleted: Vec<ConfigKey> = {
        let gone = gone.lock().unwrap_or_else(PoisonError::into_inner);
        gone.iter().map(|(_, key, _)| key.clone()).collect()
    };
    for key in index.configs().into_iter().chain(index.subscribed()).chain(deleted) {
        queue.add(key, Duration::ZERO);
    }
    let permits = Arc::new(Semaphore::new(WORKERS));
    // Ends all that is under way when this replica leads no longer.
    let mut tasks = JoinSet::new();
    loop {
        let next = async {
            let permit = Arc::clone(&permits).acquire_owned().await;
            (queue.next().await, permit)
        };
        let (key, permit) = tokio::select! {
            next = next => next,
            _ = leadership.wait_for(|leads| !*leads) => return,
        };
        metrics.waiting.set(i64::try_from(queue.len()).unwrap_or(i64::MAX));
        while tasks.try_join_next().is_some() {}
        let (controller, index, queue, gone) =
            (Arc::clone(controller), Arc::clone(index), Arc::clone(queue), Arc::clone(gone));
        let metrics = metrics.clone();
        tasks.spawn(async move {
            let mut turn = Turn { queue: &queue, key: &key, success: false };
            metrics.looks.inc();
            let outcome = look(&controller, &queue, &gone, &key).await;
            turn.success = outcome.is_ok();
            match outcome {
                Ok(Again::Soon) => queue.add(key.clone(), SOON),
                Ok(Again::At(wait)) => queue.add(key.clone(), wait),
                Ok(Again::Never) if index.config(&key).is_some() => {
                    queue.add(key.clone(), RESYNC.mul_f64(1.0 + rand::random::<f64>() / 5.0));
                }
                Ok(Again::Never) => {}
                // Somebody was faster; the watch brings what they wrote.
                Err(error) if error.code() == 409 => {}
                Err(error) => {
                    metrics.failures.inc();
                    tracing::warn!(config = %key, cause = chain(&error), "will be tried again");
                }
            }
            drop(permit);
        });
    }
}

/// A key that is being looked at. However that ends, by a panic or by the loss of leadership, it can be looked at again.
struct Turn<'a> {
    queue: &'a Queue,
    key: &'a ConfigKey,
    success: bool,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.queue.done(self.key, self.success, rand::random());
    }
}

/// Removes what a deleted config has left, and looks at the config of this name. Returns when there is more to look at.
async fn look(controller: &Controller, queue: &Queue, gone: &Gone, key: &ConfigKey) -> Result<Again, CallError> {
    for (at, config) in deleted(gone, key) {
        let early = GRACE.saturating_sub(at.elapsed());
        if !early.is_zero() {
            queue.add(key.clone(), early);
            continue;
        }
        controller.remove(key, &config).await?;
        let mut gone = gone.lock().unwrap_or_else(PoisonError::into_inner);
        gone.retain(|(_, _, other)| !Arc::ptr_eq(other, &config));
    }
    controller.reconcile(key).await
}

/// The deleted configs of this name. What is too old is dropped: too much may have happened since.
fn deleted(gone: &Gone, key: &ConfigKey) -> Vec<(Instant, Arc<VersionedConfig>)> {
    let mut gone = gone.lock().unwrap_or_else(PoisonError::into_inner);
    gone.retain(|(at, name, _)| {
        let stays = at.elapsed() < REMEMBER;
        if !stays && name == key {
            tracing::warn!(config = %name, "versions of the deleted config stay; delete them by hand");
        }
        stays
    });
    gone.iter().filter(|(_, name, _)| name == key).map(|(at, _, config)| (*at, Arc::clone(config))).collect()
}
