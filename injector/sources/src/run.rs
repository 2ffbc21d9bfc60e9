use std::collections::BTreeSet;
use std::sync::Arc;

use nudge_cluster::object_supervisor::Supervisor;
use tokio::sync::watch::Receiver;
use tokio::time::sleep;

use crate::namespace::follow_namespace;
use crate::sources::Sources;

/// Looks after the sources of all enabled namespaces until dropped. Only one process may do this at a time.
pub async fn run(sources: Arc<Sources>, mut enabled: Receiver<Arc<BTreeSet<String>>>) {
    let mut supervisor = Supervisor::new("sources of namespace ");
    loop {
        let namespaces = enabled.borrow_and_update().clone();
        supervisor.retain(&namespaces);
        for name in &*namespaces {
            if !supervisor.update(name, &(), |()| ()) {
                let (sources, enabled) = (Arc::clone(&sources), name.clone());
                let begin = move |_, _| follow_namespace(Arc::clone(&sources), enabled.clone());
                supervisor.start(name.clone(), (), (), begin, |_, pause| sleep(pause));
            }
        }
        tokio::select! {
            changed = enabled.changed() => if changed.is_err() {
                return;
            },
            never = supervisor.reap() => match never {},
        }
    }
}
