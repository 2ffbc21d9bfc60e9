//! The sources of one namespace, each with a task.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::StreamExt as _;
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Api, ResourceExt as _};
use nudge_api::{ConfigSource, SourceFrom};
use nudge_cluster::tasks::{abort, isolated, propagate};
use nudge_core::sources::rival;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

use crate::follow::{code, patient};
use crate::shared::Sources;
use crate::task::{Known, Task};

/// Sources in one page of a list.
const PAGE: u32 = 50;

/// One source that is looked after.
struct Running {
    /// What its task knows.
    sender: watch::Sender<Known>,
    of: Of,
    task: AbortHandle,
}

/// What a task is about. Where this changes, another takes its place.
#[derive(PartialEq)]
struct Of {
    uid: Option<String>,
    config: String,
    from: SourceFrom,
}

impl Of {
    fn new(source: &ConfigSource) -> Self {
        Self { uid: source.uid(), config: source.config().to_owned(), from: source.spec.from.clone() }
    }
}

/// Looks after the sources of a namespace until dropped.
pub(crate) async fn namespace(sources: Arc<Sources>, namespace: String) {
    let api = Api::<ConfigSource>::namespaced(sources.client.clone(), &namespace);
    let config = Config::default().page_size(PAGE).timeout(sources.watch_seconds);
    let mut events = patient(watcher(api, config));
    let mut running: BTreeMap<String, Running> = BTreeMap::new();
    let mut tasks = JoinSet::new();
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
                let listing = matches!(event, Event::Init | Event::InitApply(_));
                match event {
                    Event::Init => {}
                    Event::InitApply(source) => {
                        listed.insert(source.name_any());
                        put(&sources, &namespace, source, &mut running, &mut tasks);
                    }
                    Event::InitDone => {
                        let listed = std::mem::take(&mut listed);
                        running.retain(|name, one| listed.contains(name) || abort(&one.task));
                    }
                    Event::Apply(source) => put(&sources, &namespace, source, &mut running, &mut tasks),
                    Event::Delete(source) => {
                        if let Some(one) = running.remove(&source.name_any()) {
                            one.task.abort();
                        }
                    }
                }
                // While a list comes, not all are known.
                if !listing {
                    note_rivals(&running);
                }
            }
            Some(Err(error)) => {
                listed.clear();
                failures = failures.saturating_add(1);
                let code = code(&error);
                // A server that has just started refuses for a moment what it allows.
                if failures == 3 && code == 403 {
                    tracing::warn!(namespace, "sources can't be read; bind ClusterRole nudge-sources in the namespace");
                } else {
                    tracing::debug!(namespace, code, "watch of sources interrupted; retrying");
                }
            }
        }
    }
}

fn put(
    sources: &Arc<Sources>,
    namespace: &str,
    source: ConfigSource,
    running: &mut BTreeMap<String, Running>,
    tasks: &mut JoinSet<()>,
) {
    let (name, of) = (source.name_any(), Of::new(&source));
    let source = Arc::new(source);
    if let Some(one) = running.get(&name) {
        if one.of == of {
            one.sender.send_modify(|known| known.source = source);
            return;
        }
        one.task.abort();
    }
    let (sender, receiver) = watch::channel(Known { source, rival: None, complete: false });
    let (sources, namespace, what) = (Arc::clone(sources), namespace.to_owned(), format!("source {namespace}/{name}"));
    let task = tasks.spawn(async move {
        let task = || Task::new(Arc::clone(&sources), namespace.clone(), receiver.clone());
        let mut is_new = true;
        let begin = || {
            let task = if std::mem::take(&mut is_new) { task() } else { task().anew() };
            task.run()
        };
        Box::pin(isolated(&what, begin, |pause| task().rest(pause))).await;
    });
    running.insert(name, Running { sender, of, task });
}

/// Notes for each source whether another one makes the versions of its config.
fn note_rivals(running: &BTreeMap<String, Running>) {
    let all: Vec<Arc<ConfigSource>> = running.values().map(|one| Arc::clone(&one.sender.borrow().source)).collect();
    for (one, source) in running.values().zip(&all) {
        let rival = rival(source, all.iter().map(|other| &**other)).map(str::to_owned);
        one.sender.send_if_modified(|known| {
            let changed = !known.complete || known.rival != rival;
            (known.complete, known.rival) = (true, rival);
            changed
        });
    }
}
