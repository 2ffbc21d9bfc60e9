//! The sources of one namespace, each with a task.

use std::sync::Arc;

use futures::StreamExt as _;
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Api, ResourceExt as _};
use nudge_api::{ConfigSource, SourceFrom};
use nudge_cluster::object_supervisor::Supervisor;
use nudge_core::sources::older_rival;

use crate::follow::{back_off, status_code};
use crate::sources::Sources;
use crate::task::{KnownSource, Rival, Task};

/// The number of sources in one page of a list.
const PAGE_SOURCES: u32 = 50;

/// The identity of a task. If it changes, another task takes its place.
#[derive(PartialEq)]
struct TaskIdentity {
    uid: Option<String>,
    config: String,
    from: SourceFrom,
}

impl TaskIdentity {
    fn new(source: &ConfigSource) -> Self {
        Self { uid: source.uid(), config: source.config().to_owned(), from: source.spec.from.clone() }
    }
}

/// Looks after the sources of a namespace until dropped.
pub(crate) async fn follow_namespace(sources: Arc<Sources>, namespace: String) {
    let api = Api::<ConfigSource>::namespaced(sources.client.clone(), &namespace);
    let config = Config::default().page_size(PAGE_SOURCES).timeout(sources.watch_seconds);
    let mut events = back_off(watcher(api, config));
    let (mut supervisor, mut failures) = (Supervisor::new(format!("source {namespace}/")), 0_u32);
    loop {
        let event = tokio::select! {
            event = events.next() => event,
            never = supervisor.reap() => match never {},
        };
        match event {
            None => return,
            Some(Ok(event)) => {
                failures = 0;
                let is_listing = matches!(event, Event::Init | Event::InitApply(_));
                if let Some(source) = supervisor.observe(event, ConfigSource::name_any) {
                    update_task(&sources, &namespace, source, &mut supervisor);
                }
                // Not all sources are known until the list is complete.
                if !is_listing {
                    note_rivals(&supervisor);
                }
            }
            Some(Err(error)) => {
                supervisor.note_interruption();
                failures = failures.saturating_add(1);
                let code = status_code(&error);
                // A server that has just started may refuse, for a moment, requests that it allows later.
                if failures == 3 && code == Some(403) {
                    tracing::warn!(namespace, "sources can't be read; bind ClusterRole nudge-sources in the namespace");
                } else {
                    tracing::debug!(namespace, code, "watch of sources interrupted; retrying");
                }
            }
        }
    }
}

/// Updates the task of the source, or starts a task.
fn update_task(
    sources: &Arc<Sources>,
    namespace: &str,
    source: ConfigSource,
    supervisor: &mut Supervisor<TaskIdentity, KnownSource>,
) {
    let (name, subject, source) = (source.name_any(), TaskIdentity::new(&source), Arc::new(source));
    if supervisor.update(&name, &subject, |current| current.source = Arc::clone(&source)) {
        return;
    }
    let (sources, namespace) = (Arc::clone(sources), namespace.to_owned());
    let task = move |receiver| Task::new(Arc::clone(&sources), namespace.clone(), receiver);
    let restart = task.clone();
    let begin = move |receiver, panics| {
        let source_task = task(receiver);
        if panics == 0 { source_task.run() } else { source_task.rewrite_status().run() }
    };
    let report_panic = move |receiver, pause| restart(receiver).report_panic(pause);
    supervisor.start(name, subject, KnownSource { source, rival: Rival::Unknown }, begin, report_panic);
}

/// Notes for each source whether an older source makes the versions of the same config.
fn note_rivals(supervisor: &Supervisor<TaskIdentity, KnownSource>) {
    let sources: Vec<Arc<ConfigSource>> =
        supervisor.senders().map(|sender| Arc::clone(&sender.borrow().source)).collect();
    for (sender, source) in supervisor.senders().zip(&sources) {
        let rival = older_rival(source, sources.iter().map(|other| &**other));
        let rival = rival.map_or(Rival::Absent, |name| Rival::Present(name.to_owned()));
        sender.send_if_modified(|current| {
            let changed = current.rival != rival;
            current.rival = rival;
            changed
        });
    }
}
