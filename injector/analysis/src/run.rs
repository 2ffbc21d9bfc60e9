//! All configs that are being moved and have an analysis.

use std::sync::Arc;

use futures::{StreamExt as _, TryStreamExt as _};
use kube::runtime::utils::StreamBackoff;
use kube::runtime::watcher::{Config, DefaultBackoff, Event, watcher};
use kube::{Api, ResourceExt as _};
use nudge_api::RolloutAnalysis;
use nudge_cluster::supervisor::Supervisor;
use nudge_protocol::error_chain::chain;

use crate::shared::Analyses;
use crate::task::Task;

/// Objects in one page of a list.
const PAGE: u32 = 200;

/// Asks for the numbers of all configs until dropped. Only one process may do this at a time. Which namespaces are enabled it need not know:
/// the controller wants no numbers of others.
pub async fn run(analyses: Arc<Analyses>) {
    let api = Api::<RolloutAnalysis>::all(analyses.client.clone());
    let events = watcher(api, Config::default().page_size(PAGE).timeout(analyses.watch_seconds));
    // A list that fails has begun, too.
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
                    put(&analyses, object, &mut supervisor);
                }
            }
            Some(Err(error)) => {
                supervisor.note_interruption();
                failures = failures.saturating_add(1);
                if failures == 3 {
                    tracing::warn!(error = chain(&error), "rollout analyses can't be read; retrying");
                }
            }
        }
    }
}

fn key(object: &RolloutAnalysis) -> String {
    format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any())
}

fn put(
    analyses: &Arc<Analyses>,
    object: RolloutAnalysis,
    supervisor: &mut Supervisor<Option<String>, Arc<RolloutAnalysis>>,
) {
    let (key, uid, namespace) = (key(&object), object.uid(), object.namespace().unwrap_or_default());
    let object = Arc::new(object);
    if supervisor.update(&key, &uid, |known| *known = Arc::clone(&object)) {
        return;
    }
    let analyses = Arc::clone(analyses);
    let task = move |receiver| Task { analyses: Arc::clone(&analyses), namespace: namespace.clone(), receiver };
    let again = task.clone();
    let begin = move |receiver, _| task(receiver).run();
    supervisor.start(key, uid, object, begin, move |receiver, pause| again(receiver).report_panic(pause));
}
