//! All configs that are being moved and have an analysis.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::{StreamExt as _, TryStreamExt as _};
use kube::runtime::utils::StreamBackoff;
use kube::runtime::watcher::{Config, DefaultBackoff, Event, watcher};
use kube::{Api, ResourceExt as _};
use nudge_api::RolloutAnalysis;
use nudge_cluster::tasks::{abort, isolated, propagate};
use nudge_protocol::error_chain::chain;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::sleep;

use crate::shared::Analyses;
use crate::task::Task;

/// Objects in one page of a list.
const PAGE: u32 = 200;

type Key = (String, String);

struct Running {
    uid: Option<String>,
    sender: watch::Sender<Arc<RolloutAnalysis>>,
    task: AbortHandle,
}

/// Asks for the numbers of all configs until dropped. Only one process may do this at a time. Which namespaces are enabled it need not know:
/// the controller wants no numbers of others.
pub async fn run(analyses: Arc<Analyses>) {
    let api = Api::<RolloutAnalysis>::all(analyses.client.clone());
    let events = watcher(api, Config::default().page_size(PAGE).timeout(analyses.watch_seconds));
    // A list that fails has begun, too.
    let events = events.try_filter(|event| std::future::ready(!matches!(event, Event::Init)));
    let mut events = StreamBackoff::new(events, DefaultBackoff::default()).boxed();
    let (mut running, mut tasks) = (BTreeMap::<Key, Running>::new(), JoinSet::new());
    let (mut listed, mut failures) = (BTreeSet::new(), 0_u32);
    loop {
        let event = tokio::select! {
            event = events.next() => event,
            Some(ended) = tasks.join_next() => {
                propagate(ended);
                continue;
            }
        };
        match event {
            None => return,
            Some(Ok(event)) => {
                failures = 0;
                match event {
                    Event::Init => {}
                    Event::InitApply(object) => {
                        listed.insert(key(&object));
                        put(&analyses, object, &mut running, &mut tasks);
                    }
                    Event::InitDone => {
                        let listed = std::mem::take(&mut listed);
                        running.retain(|key, one| listed.contains(key) || abort(&one.task));
                    }
                    Event::Apply(object) => put(&analyses, object, &mut running, &mut tasks),
                    Event::Delete(object) => {
                        if let Some(one) = running.remove(&key(&object)) {
                            one.task.abort();
                        }
                    }
                }
            }
            Some(Err(error)) => {
                listed.clear();
                failures = failures.saturating_add(1);
                if failures == 3 {
                    tracing::warn!(error = chain(&error), "rollout analyses can't be read; retrying");
                }
            }
        }
    }
}

fn key(object: &RolloutAnalysis) -> Key {
    (object.namespace().unwrap_or_default(), object.name_any())
}

fn put(
    analyses: &Arc<Analyses>,
    object: RolloutAnalysis,
    running: &mut BTreeMap<Key, Running>,
    tasks: &mut JoinSet<()>,
) {
    let (key, uid) = (key(&object), object.uid());
    let object = Arc::new(object);
    if let Some(one) = running.get(&key) {
        if one.uid == uid {
            one.sender.send_replace(object);
            return;
        }
        one.task.abort();
    }
    let (sender, receiver) = watch::channel(object);
    let (analyses, namespace, what) = (Arc::clone(analyses), key.0.clone(), format!("analysis {}/{}", key.0, key.1));
    let task = tasks.spawn(async move {
        let task =
            || Task { analyses: Arc::clone(&analyses), namespace: namespace.clone(), receiver: receiver.clone() };
        isolated(&what, || task().run(), sleep).await;
    });
    running.insert(key, Running { uid, sender, task });
}
