//! All sources of the enabled namespaces.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use nudge_cluster::tasks::{abort, isolated, propagate};
use tokio::sync::watch::Receiver;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::sleep;

use crate::namespace::namespace;
use crate::shared::Sources;

/// Looks after the sources of all enabled namespaces until dropped. Only one process may do this at a time.
pub async fn run(sources: Arc<Sources>, mut enabled: Receiver<Arc<BTreeSet<String>>>) {
    let mut tasks = JoinSet::new();
    let mut running: BTreeMap<String, AbortHandle> = BTreeMap::new();
    loop {
        let namespaces = enabled.borrow_and_update().clone();
        running.retain(|name, task| namespaces.contains(name) || abort(task));
        for name in namespaces.iter().filter(|name| !running.contains_key(*name)).cloned().collect::<Vec<_>>() {
            let (sources, of) = (Arc::clone(&sources), name.clone());
            let task = async move {
                let what = format!("sources of namespace {of}");
                isolated(&what, || namespace(Arc::clone(&sources), of.clone()), sleep).await;
            };
            running.insert(name, tasks.spawn(task));
        }
        tokio::select! {
            changed = enabled.changed() => if changed.is_err() {
                return;
            },
            Some(ended) = tasks.join_next() => propagate(ended),
        }
    }
}
