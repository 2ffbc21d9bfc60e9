//! A namespace of its own for each test, and the objects that pods need there. No kubelet runs the pods: their status
//! is written here.

use std::fmt::{Debug, Write as _};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{Namespace, Pod, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource, ResourceExt as _};
use nudge_api::{VersionedConfig, VersionedConfigStatus};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::eventually;

/// How long a controller may take, on a busy machine.
const WAIT_TIMEOUT: Duration = Duration::from_secs(30);

/// How long tokens are valid: nobody renews them, so longer than the longest benchmark.
const TOKEN_SECONDS: i64 = 7200;

/// Texts of a refusal if a webhook, or one of its look-ups, had no time.
const BUSY: [&str; 3] = ["got no answer in", "no answer within", "context deadline exceeded"];

/// A namespace. It stays until the cluster goes, unless a test deletes it.
#[derive(Clone)]
pub struct TestNamespace {
    /// The client that the methods use.
    pub client: Client,
    /// The name of the namespace.
    pub name: String,
}

impl TestNamespace {
    /// Makes a namespace with labels, with a name that begins with `purpose` and that no other has.
    pub(super) async fn create(client: Client, purpose: &str, labels: &[(&str, &str)]) -> Result<Self> {
        static COUNT: AtomicUsize = AtomicUsize::new(1);
        // Of the same length, so that none is the beginning of another.
        let name = format!("{purpose}-{:03}", COUNT.fetch_add(1, Ordering::Relaxed));
        let labels = labels.iter().map(|&(key, value)| (key, Value::from(value))).collect::<Vec<_>>();
        let labels = labels.into_iter().map(|(key, value)| (key.to_owned(), value)).collect::<serde_json::Map<_, _>>();
        let namespace = from_json(json!({"metadata": {"name": name, "labels": labels}}))?;
        Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &namespace).await?;
        Ok(Self { client, name })
    }

    /// Returns the objects of a kind in here.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), &self.name)
    }

    /// Makes any object from its JSON.
    pub async fn create_object<K>(&self, object: Value) -> Result<K>
    where
        K: Resource<Scope = NamespaceResourceScope> + Clone + DeserializeOwned + serde::Serialize + Debug,
        K::DynamicType: Default,
    {
        Ok(self.create_with(&PostParams::default(), &from_json(object)?).await?)
    }

    /// Makes an object, as a controller does: it tries again where the API server was too busy to answer the look-ups
    /// of a webhook in time.
    pub async fn create_with<K>(&self, parameters: &PostParams, object: &K) -> Result<K, kube::Error>
    where
        K: Resource<Scope = NamespaceResourceScope> + Clone + DeserializeOwned + serde::Serialize + Debug,
        K::DynamicType: Default,
    {
        let (api, began) = (self.api::<K>(), Instant::now());
        loop {
            match api.create(parameters, object).await {
                Err(kube::Error::Api(status))
                    if BUSY.iter().any(|said| status.message.contains(said)) && began.elapsed() < WAIT_TIMEOUT => {}
                made => return made,
            }
        }
    }

    /// Waits until the object is as expected, and returns it. The error has its last state.
    pub async fn object_until<K>(
        &self,
        within: Duration,
        name: &str,
        what: &str,
        expected: impl Fn(&K) -> bool,
    ) -> Result<K>
    where
        K: Resource<Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
        K::DynamicType: Default,
    {
        let (api, mut last) = (self.api::<K>(), None);
        let result = eventually(within, what, async || {
            let object = api.get(name).await.ok()?;
            if expected(&object) {
                return Some(object);
            }
            last = Some(object);
            None
        });
        let result = result.await;
        result.with_context(|| format!("{name} was last {last:#?}"))
    }

    /// Waits until the status of the config is up to date and as expected, and returns it.
    pub async fn config_status(
        &self,
        name: &str,
        what: &str,
        expected: impl Fn(&VersionedConfigStatus) -> bool,
    ) -> Result<VersionedConfigStatus> {
        self.config_status_within(WAIT_TIMEOUT, name, what, expected).await
    }

    /// Waits as [`Self::config_status`] does, for at most this time.
    pub async fn config_status_within(
        &self,
        within: Duration,
        name: &str,
        what: &str,
        expected: impl Fn(&VersionedConfigStatus) -> bool,
    ) -> Result<VersionedConfigStatus> {
        let is_expected = |config: &VersionedConfig| {
            let about = |status: &VersionedConfigStatus| status.observed_generation == config.metadata.generation;
            config.status.as_ref().is_some_and(|status| about(status) && expected(status))
        };
        let config = self.object_until(within, name, what, is_expected).await?;
        config.status.context("no status")
    }

    /// Makes a service account.
    pub async fn service_account(&self, name: &str) -> Result<ServiceAccount> {
        self.create_object(json!({"metadata": {"name": name}})).await
    }

    /// Allows a service account what a role's rules say, such as `{"apiGroups": [""], "resources": ["configmaps"],
    /// "verbs": ["get"]}`.
    pub async fn allow(&self, service_account: &str, rules: Value) -> Result<()> {
        static COUNT: AtomicUsize = AtomicUsize::new(1);
        let name = format!("{service_account}-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        self.grant(&name, rules, account(service_account, &self.name)).await
    }

    /// Makes a role with these rules, and binds it to the subject.
    pub async fn grant(&self, role: &str, rules: Value, subject: Value) -> Result<()> {
        self.create_object::<Role>(json!({"metadata": {"name": role}, "rules": rules})).await?;
        let binding = json!({
            "metadata": {"name": role},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role},
            "subjects": [subject],
        });
        self.create_object::<RoleBinding>(binding).await.map(drop)
    }

    /// Makes a pod with these containers, which nobody runs.
    pub async fn pod(&self, name: &str, service_account: &str, containers: &[&str]) -> Result<Pod> {
        let containers = containers.iter().map(|name| json!({"name": name, "image": "test"}));
        let spec = json!({
            "serviceAccountName": service_account,
            // Old servers refuse a pod whose service account has no token in a Secret yet.
            "automountServiceAccountToken": false,
            "containers": containers.collect::<Vec<_>>(),
        });
        self.create_object(json!({"metadata": {"name": name}, "spec": spec})).await
    }

    /// Gives the pod the status of one that runs and is ready, all of its containers with an id.
    pub async fn run(&self, pod: &Pod) -> Result<Pod> {
        let now = pod.metadata.creation_timestamp.clone();
        let spec = pod.spec.as_ref().context("the pod has no specification")?;
        let sidecars = spec.init_containers.iter().flatten();
        let status = |container: &str| {
            json!({
                "name": container, "image": "test", "imageID": "test", "restartCount": 0, "ready": true, "started": true,
                "containerID": format!("containerd://{}", container_id(pod, container)),
                "state": {"running": {"startedAt": now}},
            })
        };
        let condition = |kind| json!({"type": kind, "status": "True", "lastTransitionTime": now});
        let conditions = ["Initialized", "ContainersReady", "Ready", "PodScheduled"].map(condition);
        let status = json!({"status": {
            "phase": "Running",
            "startTime": now,
            // A process that stands for the pod is on this machine.
            "podIP": "127.0.0.1",
            "podIPs": [{"ip": "127.0.0.1"}],
            "conditions": conditions,
            "containerStatuses": spec.containers.iter().map(|container| status(&container.name)).collect::<Vec<_>>(),
            "initContainerStatuses": sidecars.map(|sidecar| status(&sidecar.name)).collect::<Vec<_>>(),
        }});
        let patch = Patch::Merge(&status);
        Ok(self.api::<Pod>().patch_status(&pod.name_any(), &PatchParams::default(), &patch).await?)
    }

    /// What a kubelet writes when the readiness probe of the container `app` changes its mind.
    pub async fn set_ready(&self, pod: &str, ready: bool) -> Result<()> {
        self.change_app(pod, ready, |app| app["ready"] = ready.into()).await
    }

    /// Changes the status of the container `app` as its kubelet does, and whether the pod is Ready.
    pub async fn change_app(&self, pod: &str, ready: bool, change: impl FnOnce(&mut Value)) -> Result<()> {
        let pods = self.api::<Pod>();
        let before = pods.get(pod).await?.status.and_then(|status| status.container_statuses);
        let mut statuses = serde_json::to_value(before)?;
        let container_statuses = statuses.as_array_mut().context("no containers")?;
        change(container_statuses.iter_mut().find(|status| status["name"] == "app").context("no app")?);
        let (status, now) = (if ready { "True" } else { "False" }, Timestamp::now().to_string());
        let conditions =
            ["ContainersReady", "Ready"].map(|kind| json!({"type": kind, "status": status, "lastTransitionTime": now}));
        let patch = Patch::Strategic(json!({"status": {"containerStatuses": statuses, "conditions": conditions}}));
        pods.patch_status(pod, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Returns a token of a service account for an audience, bound to a pod or to none. The server believes a token
    /// that it has just seen for 10 more seconds, even if the pod is gone.
    pub async fn token(&self, service_account: &str, audience: &str, pod: Option<&Pod>) -> Result<String> {
        let bound =
            pod.map(|pod| json!({"apiVersion": "v1", "kind": "Pod", "name": pod.name_any(), "uid": pod.metadata.uid}));
        let spec = json!({"audiences": [audience], "expirationSeconds": TOKEN_SECONDS, "boundObjectRef": bound});
        let request: TokenRequest = from_json(json!({"spec": spec}))?;
        let accounts = self.api::<ServiceAccount>();
        let reply = accounts.create_token_request(service_account, &PostParams::default(), &request).await?;
        Ok(reply.status.context("no token")?.token)
    }

    /// Deletes the namespace, and waits until it is gone: that needs the controller `namespace`.
    pub async fn delete(&self, within: Duration) -> Result<()> {
        let namespaces = Api::<Namespace>::all(self.client.clone());
        namespaces.delete(&self.name, &DeleteParams::default()).await?;
        let description = format!("the namespace {} is gone", self.name);
        let gone = async || namespaces.get_opt(&self.name).await.transpose().is_none().then_some(());
        eventually(within, &description, gone).await
    }

    /// Waits for the service account that every namespace gets from its controller.
    pub(super) async fn wait_for_default_account(&self) -> Result<()> {
        let accounts = self.api::<ServiceAccount>();
        let exists = async || accounts.get("default").await.ok().map(drop);
        eventually(WAIT_TIMEOUT, "the namespace has its service account", exists).await
    }
}

/// Returns a service account as a subject of bindings.
pub fn account(name: &str, namespace: &str) -> Value {
    json!({"kind": "ServiceAccount", "name": name, "namespace": namespace})
}

/// Returns a user as a subject of bindings.
pub fn user(name: &str) -> Value {
    json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name})
}

/// Returns a group as a subject of bindings.
pub fn group(name: &str) -> Value {
    json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": name})
}

/// Returns the id that [`TestNamespace::run`] gives a container: 64 hexadecimal digits that differ between pods and
/// containers.
pub fn container_id(pod: &Pod, container: &str) -> String {
    let seed = format!("{}/{container}", pod.metadata.uid.as_deref().unwrap_or_default());
    let digest = ring::digest::digest(&ring::digest::SHA256, seed.as_bytes());
    digest.as_ref().iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}"); // a String takes everything
        hex
    })
}

fn from_json<T: DeserializeOwned>(value: Value) -> Result<T> {
    serde_json::from_value(value).context("not an object of this kind")
}
