//! The hub with a real API server: tokens, rights, and who can see a Secret's values.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use hyper::StatusCode;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use nudge_api::{VersionedConfig, crd};
use nudge_cluster::index::Index;
use nudge_cluster::watch::{WatchSettings, watch_cluster};
use nudge_core::identity::Identity;
use nudge_core::keys::{ConfigKey, PodKey, PodUid};
use nudge_core::versions::{Seals, contents_of, part_digest};
use nudge_hub::{self as hub, Hub, Settings};
use nudge_protocol::hub::{HubReason, PollRequest};
use nudge_protocol::{ConfigUid, block, labels, pod};
use nudge_tests::cluster::{Cluster, TestNamespace};
use nudge_tests::eventually;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use tracing::Level;

use crate::front::{Front, message, poll, read};

pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(30);
const VALUE: &str = "value-that-nobody-else-may-see";

/// Everything that is logged in this process.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock()).into_owned()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn key() -> nudge_core::derived_keys::ContentKey {
    nudge_core::derived_keys::ContentKey::new(&[3; 32])
}

/// Grants the user `nudge` the cluster-wide rights of the hub. Reading Secrets is never among them.
async fn rights(admin: &Client) -> Result<()> {
    let read = json!(["get", "list", "watch"]);
    let role = json!({"metadata": {"name": "nudge"}, "rules": [
        {"apiGroups": [""], "resources": ["namespaces", "pods", "configmaps", "serviceaccounts"], "verbs": read},
        {"apiGroups": ["nudge.dev"], "resources": ["versionedconfigs"], "verbs": read},
        {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]},
        {"apiGroups": [""], "resources": ["pods/status"], "verbs": ["patch"]},
    ]});
    let binding = json!({"metadata": {"name": "nudge"}, "subjects": [{"kind": "User", "name": "nudge"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "nudge"}});
    let post = PostParams::default();
    Api::<ClusterRole>::all(admin.clone()).create(&post, &serde_json::from_value(role)?).await?;
    Api::<ClusterRoleBinding>::all(admin.clone()).create(&post, &serde_json::from_value(binding)?).await?;
    Ok(())
}

/// Binds the role, as the admin of a namespace does.
async fn allow_secrets(space: &TestNamespace) -> Result<()> {
    let rules = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list", "watch"]}]);
    space.create_object::<Role>(json!({"metadata": {"name": "secrets"}, "rules": rules})).await?;
    let binding = json!({"metadata": {"name": "secrets"}, "subjects": [{"kind": "User", "name": "nudge"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "secrets"}});
    space.create_object::<RoleBinding>(binding).await?;
    Ok(())
}

/// A config whose current version is one object, sealed as the controller does it.
async fn config(space: &TestNamespace, name: &str, secret: bool, value: &str) -> Result<()> {
    let meta = json!({"name": format!("{name}-1"), "labels": {labels::CONFIG: name, labels::VERSION: "1"}});
    let object = json!({"metadata": meta, "immutable": true});
    let (kind, uid, contents, key) = if secret {
        let mut object = object;
        object["stringData"] = json!({"key": value});
        let stored: Secret = space.create_object(object).await?;
        ("Secret", stored.uid(), contents_of(None, stored.data), Some(key()))
    } else {
        let mut object = object;
        object["data"] = json!({"key": value});
        let stored: ConfigMap = space.create_object(object).await?;
        ("ConfigMap", stored.uid(), contents_of(stored.data, stored.binary_data), None)
    };
    let made = space.create_object::<VersionedConfig>(json!({"metadata": {"name": name}, "spec": {}})).await?;
    let mut digest = part_digest(&contents, key.as_ref());
    if let Some(key) = key {
        digest = Seals::new(&key, &ConfigKey::of(&made.metadata)?, Identity::of(&made)).seal("1", 1, &digest);
    }
    let part = json!({"kind": kind, "name": format!("{name}-1"), "uid": uid, "digest": digest});
    let versions = json!([{"version": "1", "state": "Current", "parts": [part], "keys": 1, "bytes": value.len()}]);
    let status = json!({"status": {"currentVersion": "1", "versions": versions,
        "pods": {"total": 0, "onTarget": 0, "ready": 0, "failed": 0, "summary": "0/0"}, "internal": {"revision": 1}}});
    space.api::<VersionedConfig>().patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await?;
    Ok(())
}

/// A pod of the service account with an agent.
pub(crate) async fn injected(space: &TestNamespace, name: &str, account: &str) -> Result<Pod> {
    let container = |name: &str, env: Value| json!({"name": name, "image": "test", "env": env});
    let configs = json!([{"name": pod::env::CONFIGS, "value": "shop,keys"}]);
    let object = json!({
        "metadata": {"name": name, "labels": {labels::AGENT: "0.1.0"}},
        "spec": {"serviceAccountName": account, "automountServiceAccountToken": false,
                 "containers": [container(pod::AGENT_CONTAINER, configs), container("app", json!([]))]},
    });
    let pod: Pod = space.create_object(object).await?;
    space.run(&pod).await
}

pub(crate) struct HubOnCluster {
    cluster: &'static Cluster,
    index: Arc<Index>,
    hub: Arc<Hub>,
    registry: Registry,
    pub(crate) front: Front,
}

impl HubOnCluster {
    pub(crate) async fn new(cluster: &'static Cluster) -> Result<Self> {
        static MADE: OnceCell<()> = OnceCell::const_new();
        let made = MADE.get_or_try_init(async || {
            let admin = cluster.admin().await?;
            Api::<CustomResourceDefinition>::all(admin.clone())
                .create(&PostParams::default(), &crd::<VersionedConfig>())
                .await?;
            rights(&admin).await
        });
        made.await?;
        let client = cluster.client(&cluster.user("nudge", &[])).await?;
        let (index, mut registry) = (Arc::new(Index::default()), Registry::default());
        tokio::spawn(watch_cluster(client.clone(), Arc::clone(&index), WatchSettings::default()));
        eventually(TEST_TIMEOUT, "all is listed", async || index.is_synced().then_some(())).await?;
        let settings = Settings { max_refusal_age: Duration::from_millis(100), ..Settings::default() };
        let asks = hub::Cluster::new(client);
        let hub = Hub::new(Arc::clone(&index), asks, settings, Arc::new(key()), &mut registry);
        let front = Front::new(&hub)?;
        Ok(Self { cluster, index, hub, registry, front })
    }

    /// A namespace with both configs and a pod.
    pub(crate) async fn space(&self, purpose: &str, secrets: bool) -> Result<(TestNamespace, Pod)> {
        let space = self.cluster.space_with(purpose, &[(labels::ENABLED, "true")]).await?;
        if secrets {
            allow_secrets(&space).await?;
        }
        space.service_account("app").await?;
        config(&space, "shop", false, "open").await?;
        config(&space, "keys", true, VALUE).await?;
        let pod = injected(&space, "web", "app").await?;
        let known = async || {
            let there = ["shop", "keys"].map(|name| self.index.config(&ConfigKey::parse(&space.name, name).ok()?));
            let sealed = there.iter().all(|config| config.as_ref().is_some_and(|config| config.status.is_some()));
            (sealed && self.index.is_enabled(&space.name) && self.index.may_read_secrets(&space.name) == secrets)
                .then_some(())
        };
        eventually(TEST_TIMEOUT, "the index knows the namespace", known).await?;
        Ok((space, pod))
    }

    pub(crate) async fn status(&self, token: &str) -> Result<StatusCode> {
        let mut agent = self.front.connect().await?;
        agent.send(poll(token, &PollRequest::default())?).await?;
        Ok(agent.reply().await?.status)
    }
}

#[tokio::test]
async fn tokens_rights_and_secrets() -> Result<()> {
    let Some(cluster) = Cluster::shared().await? else { return Ok(()) };
    let log = Log::default();
    let writer = log.clone();
    let _ = tracing_subscriber::fmt()
        .with_max_level(Level::DEBUG)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .try_init();
    let hub = HubOnCluster::new(cluster).await?;
    let (open, open_pod) = hub.space("bound", true).await?;
    let (closed, closed_pod) = hub.space("unbound", false).await?;

    // In the namespace whose admin has bound the role.
    let token = open.token("app", pod::TOKEN_AUDIENCE, Some(&open_pod)).await?;
    let mut agent = hub.front.connect().await?;
    agent.send(poll(&token, &PollRequest::default())?).await?;
    let reply = agent.reply().await?;
    let (head, blocks) = read(&reply)?;
    let names: Vec<&str> = head.configs.iter().map(|config| config.name.as_str()).collect();
    assert_eq!(names, ["shop", "keys"]);
    assert_eq!(block::decode(blocks[0])?[0].1.value, b"open");
    assert_eq!(block::decode(blocks[1])?[0].1.value, VALUE.as_bytes());
    let container = head.containers.first().context("a container")?;
    assert_eq!((container.name.as_str(), container.id.len()), ("app", 64));

    // In a namespace without the role, all other configs are served.
    let other = closed.token("app", pod::TOKEN_AUDIENCE, Some(&closed_pod)).await?;
    let mut agent = hub.front.connect().await?;
    agent.send(poll(&other, &PollRequest::default())?).await?;
    let reply = agent.reply().await?;
    let (head, blocks) = read(&reply)?;
    assert_eq!(blocks.len(), 1);
    let problem = head.configs[1].problem.as_ref().context("a problem")?;
    assert_eq!(problem.reason, HubReason::NotAllowed);
    assert!(problem.message.contains("ClusterRoles nudge-secrets and nudge-secrets-hub"), "{}", problem.message);

    // One line for each access names the reader, and no line shows the values.
    let text = log.text();
    let of = |namespace: &str| {
        let lines = text.lines().filter(|line| line.contains(" audit: ") && line.contains(namespace));
        lines.map(ToOwned::to_owned).collect::<Vec<_>>()
    };
    let lines = of(&open.name);
    assert_eq!(lines.len(), 2, "{lines:?}");
    let uid = open_pod.uid().unwrap_or_default();
    for part in ["version delivered", "pod=\"web\"", &uid, "service_account=\"app\"", "peer=127.0.0.1", "token_id="] {
        assert!(lines.iter().all(|line| line.contains(part)), "{part}: {lines:?}");
    }
    for part in ["config=\"keys\"", "version=\"1\"", "secrets=\"Secret/keys-1\""] {
        assert!(lines[1].contains(part), "{part}: {}", lines[1]);
    }
    assert!(!lines[0].contains("secrets="), "{}", lines[0]);
    let lines = of(&closed.name);
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[1].contains("config withheld") && lines[1].contains("config=\"keys\""), "{}", lines[1]);

    // A report becomes the pod's condition.
    let report = json!({"agent": "0.1.0", "acknowledged": true, "configs": [
        {"name": "shop", "uid": head.configs[0].uid.as_ref().map(ConfigUid::as_str), "revision": 1, "version": "1"},
        {"name": "keys", "revision": 1, "version": "1"}]});
    let mut agent = hub.front.connect().await?;
    agent.send(message("/v1/report", &token, &report.to_string())).await?;
    assert_eq!(agent.reply().await?.status, StatusCode::NO_CONTENT);
    let condition = async || {
        let pod = open.api::<Pod>().get("web").await.ok()?;
        let conditions = pod.status?.conditions?;
        conditions.into_iter().find(|condition| condition.type_ == pod::CONDITION)
    };
    let condition = eventually(TEST_TIMEOUT, "the condition is written", condition).await?;
    let (reason, message) = (condition.reason.unwrap_or_default(), condition.message.unwrap_or_default());
    assert_eq!((condition.status.as_str(), reason.as_str(), message.as_str()), ("True", "Applied", "shop=1,keys=1"));

    // Tokens that are none of a pod that is there.
    assert_eq!(hub.status(&open.token("app", pod::TOKEN_AUDIENCE, None).await?).await?, StatusCode::UNAUTHORIZED);
    assert_eq!(hub.status(&open.token("app", "another", Some(&open_pod)).await?).await?, StatusCode::UNAUTHORIZED);
    // The new signature is valid: the token is refused for its time alone.
    assert_eq!(hub.status(&cluster.sign_again(&token, |_| ())?).await?, StatusCode::OK);
    let expired = cluster.sign_again(&token, |claims| claims["exp"] = json!(1_000_000_000))?;
    assert_eq!(hub.status(&expired).await?, StatusCode::UNAUTHORIZED);
    assert_eq!(hub.status("no token").await?, StatusCode::UNAUTHORIZED);
    // The API server, not the hub, finds that a signature is false.
    let (head, _) = token.rsplit_once('.').context("a signature")?;
    assert_eq!(hub.status(&format!("{head}.AAAA")).await?, StatusCode::UNAUTHORIZED);
    assert!(log.text().lines().any(|line| line.contains(" audit: ") && line.contains("request refused")));
    assert_eq!(hub.status(&token).await?, StatusCode::OK);
    open.api::<Pod>().delete("web", &DeleteParams::default().grace_period(0)).await?;
    let gone = PodKey::new(&open.name, "web");
    eventually(TEST_TIMEOUT, "the pod is gone", async || hub.index.pod(&gone).is_none().then_some(())).await?;
    assert_eq!(hub.status(&token).await?, StatusCode::UNAUTHORIZED);

    let mut metrics = String::new();
    prometheus_client::encoding::text::encode(&mut metrics, &hub.registry)?;
    let encoded = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, VALUE);
    for text in [log.text(), metrics, format!("{:?}", hub.hub.last_report(&gone, &PodUid::default()))] {
        assert!(!text.contains(VALUE) && !text.contains(&encoded) && !text.contains(&token));
    }
    Ok(())
}
