//! The analyses of all configs that are being moved. Each config has a task.

use std::sync::Arc;

use futures::{StreamExt as _, TryStreamExt as _};
use kube::runtime::utils::StreamBackoff;
use kube::runtime::watcher::{Config, DefaultBackoff, Event, watcher};
use kube::{Api, ResourceExt as _};
use nudge_api::RolloutAnalysis;
use nudge_cluster::object_supervisor::Supervisor;
use nudge_protocol::error_chain::chain;

use crate::analyses::Analyses;
use crate::config_task::ConfigTask;

/// The number of objects in one page of a list.
const PAGE_SIZE: u32 = 200;

/// The number of failures in a row that is reported.
const REPORTED_FAILURES: u32 = 3;

/// Requests the numbers of all configs until dropped. Only one process may do this at a time. It need not know which
/// namespaces are enabled, because the controller wants numbers only from enabled namespaces.
pub async fn run(analyses: Arc<Analyses>) {
    let api = Api::<RolloutAnalysis>::all(analyses.client.clone());
    let events = watcher(api, Config::default().page_size(PAGE_SIZE).timeout(analyses.watch_seconds));
    // The beginning of a list, which may fail, must not reset the backoff.
    let events = events.try_filter(|event| std::future::ready(!matches!(event, Event::Init)));
    let mut events = StreamBackoff::new(events, DefaultBackoff::default()).boxed();
    let (mut supervisor, mut failures) = (Supervisor::new("analysis "), 0_u32);
    loop {
        let event = tokio::select! {
            event = events.next() => event,
            never = supervisor.reap() => match never {},
        };
        match event {
            None => return,
            Some(Ok(event)) => {
                failures = 0;
                if let Some(object) = supervisor.observe(event, key) {
                    put_object(&analyses, object, &mut supervisor);
                }
            }
            Some(Err(error)) => {
                supervisor.note_interruption();
                failures = failures.saturating_add(1);
                if failures == REPORTED_FAILURES {
                    tracing::warn!(error = chain(&error), "rollout analyses can't be read; retrying");
                }
            }
        }
    }
}

fn key(object: &RolloutAnalysis) -> String {
    format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any())
}

fn put_object(
    analyses: &Arc<Analyses>,
    object: RolloutAnalysis,
    supervisor: &mut Supervisor<Option<String>, Arc<RolloutAnalysis>>,
) {
    let (key, uid, namespace) = (key(&object), object.uid(), object.namespace().unwrap_or_default());
    let object = Arc::new(object);
    if supervisor.update(&key, &uid, |current| *current = Arc::clone(&object)) {
        return;
    }
    let analyses = Arc::clone(analyses);
    let task = move |receiver| ConfigTask { analyses: Arc::clone(&analyses), namespace: namespace.clone(), receiver };
    let task_after_panic = task.clone();
    let begin = move |receiver, _| task(receiver).run();
    supervisor.start(key, uid, object, begin, move |receiver, wait| task_after_panic(receiver).report_panic(wait));
}
