//! The workloads and pods of namespaces, which are listed for restarts and not watched: at most once a second for all
//! configs of a namespace.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{Pod, ReplicationController};
use kube::Client;
use kube::api::ObjectMeta;
use nudge_cluster::call::CallError;
use nudge_cluster::listing::for_each_object;
use nudge_core::followed_objects::DirectReader;
use nudge_core::restart::{Workload, is_restarted};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

/// The maximum age of a list that is used.
const MAX_LIST_AGE: Duration = Duration::from_secs(1);
/// The time that a namespace's lists are kept while they are not used.
const MAX_UNUSED_TIME: Duration = Duration::from_mins(1);

/// A list and the time when it began, or the error and the time when it came. Callers that come while the list is made
/// wait for it, and get its error, too.
type ListSlot<T> = tokio::sync::Mutex<Option<(Instant, Result<Arc<Vec<T>>, CallError>)>>;

#[derive(Default)]
struct Lists {
    /// The time of the last change. Lists from before that time do not count.
    changed_at: Mutex<Option<Instant>>,
    workloads: ListSlot<Workload>,
    controllers: ListSlot<PodController>,
    pods: ListSlot<Pod>,
    readers: ListSlot<DirectReader>,
}

/// A ReplicaSet or a ReplicationController.
pub(crate) struct PodController {
    pub(crate) kind: &'static str,
    pub(crate) meta: ObjectMeta,
    pub(crate) replicas: Option<i32>,
}

/// The lists of namespaces, and when each was last used.
pub(crate) struct WorkloadLists {
    client: Client,
    namespaces: Mutex<HashMap<String, (Instant, Arc<Lists>)>>,
}

impl WorkloadLists {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, namespaces: Mutex::default() }
    }

    fn lists(&self, namespace: &str) -> Arc<Lists> {
        let now = Instant::now();
        let mut namespaces = self.namespaces.lock();
        namespaces.retain(|_, (used_at, _)| now - *used_at < MAX_UNUSED_TIME);
        let (used_at, lists) = namespaces.entry(namespace.to_owned()).or_insert_with(|| (now, Arc::default()));
        *used_at = now;
        Arc::clone(lists)
    }

    /// Outdates the lists that began before now, because something was written, or because objects that are new matter
    /// now.
    pub(crate) fn outdate(&self, namespace: &str) {
        *self.lists(namespace).changed_at.lock() = Some(Instant::now());
    }

    /// Returns the Deployments, StatefulSets and DaemonSets.
    pub(crate) async fn workloads(&self, namespace: &str) -> Result<Arc<Vec<Workload>>, CallError> {
        let (client, lists) = (&self.client, self.lists(namespace));
        let list = async {
            let mut workloads = Vec::new();
            for_each_object::<Deployment>(client, namespace, |object| {
                workloads.extend(Workload::of_deployment(&object));
            })
            .await?;
            for_each_object::<StatefulSet>(client, namespace, |object| {
                workloads.extend(Workload::of_stateful_set(&object));
            })
            .await?;
            for_each_object::<DaemonSet>(client, namespace, |object| {
                workloads.extend(Workload::of_daemon_set(&object));
            })
            .await?;
            Ok(workloads)
        };
        recent_list(&lists.workloads, &lists.changed_at, list).await
    }

    /// Returns the ReplicaSets and ReplicationControllers.
    pub(crate) async fn controllers(&self, namespace: &str) -> Result<Arc<Vec<PodController>>, CallError> {
        let (client, lists) = (&self.client, self.lists(namespace));
        let list = async {
            let mut controllers = Vec::new();
            let mut add = |kind, meta, replicas| controllers.push(PodController { kind, meta, replicas });
            for_each_object::<ReplicaSet>(client, namespace, |object| {
                add("ReplicaSet", object.metadata, object.spec.and_then(|spec| spec.replicas));
            })
            .await?;
            for_each_object::<ReplicationController>(client, namespace, |object| {
                add("ReplicationController", object.metadata, object.spec.and_then(|spec| spec.replicas));
            })
            .await?;
            Ok(controllers)
        };
        recent_list(&lists.controllers, &lists.changed_at, list).await
    }

    /// Returns the pods that take a config by a restart. Most pods have an agent, and are left out.
    pub(crate) async fn pods(&self, namespace: &str) -> Result<Arc<Vec<Pod>>, CallError> {
        let (client, lists) = (&self.client, self.lists(namespace));
        let list = async {
            let mut pods = Vec::new();
            for_each_object::<Pod>(client, namespace, |pod| {
                if pod.spec.as_ref().is_some_and(|spec| is_restarted(&pod.metadata, spec)) {
                    pods.push(pod);
                }
            })
            .await?;
            Ok(pods)
        };
        recent_list(&lists.pods, &lists.changed_at, list).await
    }

    /// Returns the workloads whose pods read ConfigMaps or Secrets themselves, by a list that is not older than this.
    pub(crate) async fn readers(
        &self,
        namespace: &str,
        max_age: Duration,
    ) -> Result<Arc<Vec<DirectReader>>, CallError> {
        let (client, lists) = (&self.client, self.lists(namespace));
        let recent = lists.readers.lock().await.clone();
        if let Some((_, Ok(readers))) = recent.filter(|(began, _)| began.elapsed() < max_age) {
            return Ok(readers);
        }
        let list = async {
            let mut readers = BTreeSet::new();
            for_each_object::<Pod>(client, namespace, |pod| readers.extend(DirectReader::of(&pod))).await?;
            Ok(readers.into_iter().collect())
        };
        recent_list(&lists.readers, &lists.changed_at, list).await
    }
}

/// Returns a recent list, or makes a new list: now, or a second after the last list if something has changed since.
async fn recent_list<T>(
    slot: &ListSlot<T>,
    changed_at: &Mutex<Option<Instant>>,
    list: impl Future<Output = Result<Vec<T>, CallError>>,
) -> Result<Arc<Vec<T>>, CallError> {
    let asked_at = Instant::now();
    let mut slot = slot.lock().await;
    match &*slot {
        Some((began, Ok(objects))) if began.elapsed() < MAX_LIST_AGE => {
            if changed_at.lock().is_none_or(|changed_at| *began > changed_at) {
                return Ok(Arc::clone(objects));
            }
            sleep_until(*began + MAX_LIST_AGE).await;
        }
        Some((failed, Err(error))) if *failed > asked_at => return Err(error.clone()),
        _ => {}
    }
    let began = Instant::now();
    let listed = list.await.map(Arc::new);
    let listed_at = if listed.is_ok() { began } else { Instant::now() };
    *slot = Some((listed_at, listed.clone()));
    listed
}

#[cfg(test)]
mod tests {
    use hyper::http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;
    use tower::service_fn;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_namespace_is_listed_once_a_second_for_all_of_its_configs() {
        let lists: Arc<Mutex<HashMap<String, usize>>> = Arc::default();
        let counts = Arc::clone(&lists);
        let service = service_fn(move |request: Request<Body>| {
            *counts.lock().entry(request.uri().path().to_owned()).or_default() += 1;
            let items = (0..3).map(|number| {
                let kind = if number == 1 { "emptyDir" } else { "configMap" };
                json!({"metadata": {"name": format!("pod-{number}")},
                       "spec": {"containers": [], "volumes": [{"name": "a", kind: {"name": "shop"}}]}})
            });
            let items = if request.uri().path().ends_with("/pods") { items.collect() } else { Vec::new() };
            let list = json!({"metadata": {}, "items": items});
            async move {
                tokio::time::sleep(Duration::from_millis(5)).await;
                Ok::<_, hyper::http::Error>(Response::new(Body::from(list.to_string().into_bytes())))
            }
        });
        let lists_of_all = WorkloadLists::new(Client::new(service, "ns"));
        let list = async |namespace: &'static str| {
            let pods = lists_of_all.pods(namespace).await.unwrap();
            assert_eq!(pods.len(), 2, "the other one reads no ConfigMap");
            lists_of_all.workloads(namespace).await.unwrap();
            lists_of_all.controllers(namespace).await.unwrap();
        };
        // Ten configs of a namespace need the lists ten times a second.
        for _ in 0..50 {
            list_all(list).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let counts = lists.lock().clone();
        assert_eq!(counts.len(), 12);
        assert!(counts.values().all(|count| (5..=6).contains(count)), "{counts:?}");
        tokio::time::sleep(MAX_UNUSED_TIME).await;
        list("other").await;
        assert_eq!(lists_of_all.namespaces.lock().len(), 1, "nothing is kept of the others");
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_created_before_a_change_is_in_the_list_after_it() {
        let there: Arc<Mutex<Vec<String>>> = Arc::default();
        let (server, lists) = (Arc::clone(&there), Arc::new(Mutex::new(0)));
        let count = Arc::clone(&lists);
        let service = service_fn(move |_: Request<Body>| {
            *count.lock() += 1;
            let spec = json!({"containers": [], "volumes": [{"name": "a", "configMap": {"name": "shop"}}]});
            let item = |name: &String| json!({"metadata": {"name": name}, "spec": spec});
            let items: Vec<_> = server.lock().iter().map(item).collect();
            let list = json!({"metadata": {}, "items": items});
            async move { Ok::<_, hyper::http::Error>(Response::new(Body::from(list.to_string().into_bytes()))) }
        });
        let lists_of_all = WorkloadLists::new(Client::new(service, "ns"));
        let list = async || lists_of_all.pods("ns").await.unwrap().len();
        assert_eq!(list().await, 0);
        there.lock().push("born".to_owned());
        assert_eq!(list().await, 0, "nobody has said that it matters");
        let began = Instant::now();
        lists_of_all.outdate("ns");
        for _ in 0..10 {
            assert_eq!(list().await, 1);
        }
        assert_eq!((began.elapsed(), *lists.lock()), (MAX_LIST_AGE, 2), "still once a second, for all callers");
        tokio::time::sleep(MAX_LIST_AGE).await;
        lists_of_all.outdate("ns");
        assert_eq!((list().await, began.elapsed()), (1, 2 * MAX_LIST_AGE), "an old list keeps nobody waiting");
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_a_list_takes_its_error_too() {
        let lists: Arc<Mutex<usize>> = Arc::default();
        let count = Arc::clone(&lists);
        let service = service_fn(move |_: Request<Body>| {
            *count.lock() += 1;
            async {
                tokio::time::sleep(Duration::from_secs(10)).await;
                let failed = br#"{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 500}"#;
                Response::builder().status(500).body(Body::from(failed.to_vec()))
            }
        });
        let lists_of_all = WorkloadLists::new(Client::new(service, "ns"));
        let list = async |namespace: &'static str| {
            let error = lists_of_all.workloads(namespace).await.err().unwrap();
            assert_eq!(error.code(), Some(500));
        };
        let began = Instant::now();
        list_all(list).await;
        assert_eq!((began.elapsed(), *lists.lock()), (Duration::from_secs(10), 2), "one for each namespace");
        list("ns").await;
        assert_eq!(*lists.lock(), 3, "it is tried again");
    }

    /// Lists for ten configs in each of two namespaces at once.
    async fn list_all<F: Future<Output = ()>>(list: impl Fn(&'static str) -> F) {
        let mut calls: Vec<_> =
            ["ns", "other"].into_iter().cycle().take(20).map(|namespace| Box::pin(list(namespace))).collect();
        std::future::poll_fn(|context| {
            calls.retain_mut(|call| call.as_mut().poll(context).is_pending());
            if calls.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        })
        .await;
    }
}
