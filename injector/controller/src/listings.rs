//! What is listed of a namespace for restarts, which nobody watches: at most once a second, for all of its configs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{Pod, ReplicationController};
use kube::Client;
use kube::api::ObjectMeta;
use nudge_cluster::call::CallError;
use nudge_cluster::listing::each;
use nudge_core::restart::{Workload, is_restarted};
use tokio::time::{Instant, sleep_until};

use super::locked::locked;

/// How long a list is good.
const FRESH: Duration = Duration::from_secs(1);
/// How long the lists of a namespace are kept that nobody asks for.
const KEPT: Duration = Duration::from_mins(1);

/// A list, and when it began; or why there is none, and since when. One who asks while it is made waits for it, and takes its error too.
type Slot<T> = tokio::sync::Mutex<Option<(Instant, Result<Arc<Vec<T>>, CallError>)>>;

#[derive(Default)]
struct Lists {
    /// What was listed before does not show what is looked for now.
    changed: Mutex<Option<Instant>>,
    workloads: Slot<Workload>,
    controllers: Slot<PodController>,
    pods: Slot<Pod>,
}

/// A ReplicaSet or a ReplicationController.
pub(super) struct PodController {
    pub(super) kind: &'static str,
    pub(super) meta: ObjectMeta,
    pub(super) replicas: Option<i32>,
}

/// The lists of namespaces, and when each was last asked for.
#[derive(Default)]
pub(super) struct Listings(Mutex<HashMap<String, (Instant, Arc<Lists>)>>);

impl Listings {
    fn of(&self, namespace: &str) -> Arc<Lists> {
        let now = Instant::now();
        let mut all = locked(&self.0);
        all.retain(|_, (asked, _)| now - *asked < KEPT);
        let (asked, lists) = all.entry(namespace.to_owned()).or_insert_with(|| (now, Arc::default()));
        *asked = now;
        Arc::clone(lists)
    }

    /// What is asked for from now on was listed after this: because something was written, or because what had not been there a moment ago
    /// matters now.
    pub(super) fn changed(&self, namespace: &str) {
        *locked(&self.of(namespace).changed) = Some(Instant::now());
    }

    /// Deployments, StatefulSets and DaemonSets.
    pub(super) async fn workloads(&self, client: &Client, namespace: &str) -> Result<Arc<Vec<Workload>>, CallError> {
        let lists = self.of(namespace);
        let list = async {
            let mut all = Vec::new();
            each::<Deployment>(client, namespace, |object| all.extend(Workload::of_deployment(&object))).await?;
            each::<StatefulSet>(client, namespace, |object| all.extend(Workload::of_stateful_set(&object))).await?;
            each::<DaemonSet>(client, namespace, |object| all.extend(Workload::of_daemon_set(&object))).await?;
            Ok(all)
        };
        fresh(&lists.workloads, &lists.changed, list).await
    }

    /// ReplicaSets and ReplicationControllers.
    pub(super) async fn controllers(
        &self,
        client: &Client,
        namespace: &str,
    ) -> Result<Arc<Vec<PodController>>, CallError> {
        let lists = self.of(namespace);
        let list = async {
            let mut all = Vec::new();
            let mut add = |kind, meta, replicas| all.push(PodController { kind, meta, replicas });
            each::<ReplicaSet>(client, namespace, |it| {
                add("ReplicaSet", it.metadata, it.spec.and_then(|spec| spec.replicas));
            })
            .await?;
            each::<ReplicationController>(client, namespace, |it| {
                add("ReplicationController", it.metadata, it.spec.and_then(|spec| spec.replicas));
            })
            .await?;
            Ok(all)
        };
        fresh(&lists.controllers, &lists.changed, list).await
    }

    /// The pods that take a config by a restart: most pods have an agent, and are left out.
    pub(super) async fn pods(&self, client: &Client, namespace: &str) -> Result<Arc<Vec<Pod>>, CallError> {
        let lists = self.of(namespace);
        let list = async {
            let mut all = Vec::new();
            each::<Pod>(client, namespace, |pod| {
                if pod.spec.as_ref().is_some_and(|spec| is_restarted(&pod.metadata, spec)) {
                    all.push(pod);
                }
            })
            .await?;
            Ok(all)
        };
        fresh(&lists.pods, &lists.changed, list).await
    }
}

/// What was listed a moment ago; or is listed now, or a second after the last list where something has changed since.
async fn fresh<T>(
    slot: &Slot<T>,
    changed: &Mutex<Option<Instant>>,
    list: impl Future<Output = Result<Vec<T>, CallError>>,
) -> Result<Arc<Vec<T>>, CallError> {
    let asked = Instant::now();
    let mut slot = slot.lock().await;
    match &*slot {
        Some((began, Ok(objects))) if began.elapsed() < FRESH => {
            if locked(changed).is_none_or(|changed| *began > changed) {
                return Ok(Arc::clone(objects));
            }
            sleep_until(*began + FRESH).await;
        }
        Some((failed, Err(error))) if *failed > asked => return Err(error.clone()),
        _ => {}
    }
    let began = Instant::now();
    let listed = list.await.map(Arc::new);
    let at = if listed.is_ok() { began } else { Instant::now() };
    *slot = Some((at, listed.clone()));
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
            *locked(&counts).entry(request.uri().path().to_owned()).or_default() += 1;
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
        let (client, listings) = (Client::new(service, "ns"), Listings::default());
        let look = async |namespace: &'static str| {
            let pods = listings.pods(&client, namespace).await.unwrap();
            assert_eq!(pods.len(), 2, "the other one reads no ConfigMap");
            listings.workloads(&client, namespace).await.unwrap();
            listings.controllers(&client, namespace).await.unwrap();
        };
        // Ten configs of a namespace are looked at ten times a second.
        for _ in 0..50 {
            look_all(look).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let counts = locked(&lists).clone();
        assert_eq!(counts.len(), 12);
        assert!(counts.values().all(|count| (5..=6).contains(count)), "{counts:?}");
        tokio::time::sleep(KEPT).await;
        look("other").await;
        assert_eq!(locked(&listings.0).len(), 1, "nothing is kept of the others");
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_created_before_a_change_is_in_the_list_after_it() {
        let there: Arc<Mutex<Vec<String>>> = Arc::default();
        let (server, lists) = (Arc::clone(&there), Arc::new(Mutex::new(0)));
        let count = Arc::clone(&lists);
        let service = service_fn(move |_: Request<Body>| {
            *locked(&count) += 1;
            let spec = json!({"containers": [], "volumes": [{"name": "a", "configMap": {"name": "shop"}}]});
            let item = |name: &String| json!({"metadata": {"name": name}, "spec": spec});
            let items: Vec<_> = locked(&server).iter().map(item).collect();
            let list = json!({"metadata": {}, "items": items});
            async move { Ok::<_, hyper::http::Error>(Response::new(Body::from(list.to_string().into_bytes()))) }
        });
        let (client, listings) = (Client::new(service, "ns"), Listings::default());
        let look = async || listings.pods(&client, "ns").await.unwrap().len();
        assert_eq!(look().await, 0);
        locked(&there).push("born".to_owned());
        assert_eq!(look().await, 0, "nobody has said that it matters");
        let began = Instant::now();
        listings.changed("ns");
        for _ in 0..10 {
            assert_eq!(look().await, 1);
        }
        assert_eq!((began.elapsed(), *locked(&lists)), (FRESH, 2), "still once a second, for all who look");
        tokio::time::sleep(FRESH).await;
        listings.changed("ns");
        assert_eq!((look().await, began.elapsed()), (1, 2 * FRESH), "an old list keeps nobody waiting");
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_a_list_takes_its_error_too() {
        let lists: Arc<Mutex<usize>> = Arc::default();
        let count = Arc::clone(&lists);
        let service = service_fn(move |_: Request<Body>| {
            *locked(&count) += 1;
            async {
                tokio::time::sleep(Duration::from_secs(10)).await;
                let failed = br#"{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 500}"#;
                Response::builder().status(500).body(Body::from(failed.to_vec()))
            }
        });
        let (client, listings) = (Client::new(service, "ns"), Listings::default());
        let look = async |namespace: &'static str| {
            let error = listings.workloads(&client, namespace).await.err().unwrap();
            assert_eq!(error.code(), 500);
        };
        let began = Instant::now();
        look_all(look).await;
        assert_eq!((began.elapsed(), *locked(&lists)), (Duration::from_secs(10), 2), "one for each namespace");
        look("ns").await;
        assert_eq!(*locked(&lists), 3, "it is tried again");
    }

    /// Looks of ten configs in each of two namespaces at once.
    async fn look_all<F: Future<Output = ()>>(look: impl Fn(&'static str) -> F) {
        let mut looks: Vec<_> =
            ["ns", "other"].into_iter().cycle().take(20).map(|namespace| Box::pin(look(namespace))).collect();
        std::future::poll_fn(|context| {
            looks.retain_mut(|look| look.as_mut().poll(context).is_pending());
            if looks.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        })
        .await;
    }
}
