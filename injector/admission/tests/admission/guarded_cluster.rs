//! An admission server of the real code, asked by a real API server through the webhook configurations of `deploy/`.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use futures::future::BoxFuture;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, Resource, ResourceExt as _};
use nudge_admission::{
    AdmissionMetrics, AdmissionServer, AdmissionSettings, IndexLookups, KubeLookups, Webhooks, guards,
};
use nudge_api::{RolloutPolicy, VersionApproval, VersionedConfig, crd};
use nudge_core::namespaces::NamespaceRule;
use nudge_server::rates::Rate;
use nudge_tests::cluster::{Authority, Certified, Cluster, TestNamespace};
use nudge_tests::eventually;
use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

/// How long the API server may take to learn of something, on a machine that has much else to do.
pub(crate) const SOON: Duration = Duration::from_secs(30);

const WEBHOOKS: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/base/webhooks.yaml"));

/// How many pods, by namespace and config.
type Pods = Arc<Mutex<BTreeMap<(String, String), usize>>>;

/// A cluster whose API server asks Nudge.
pub(crate) struct GuardedCluster {
    pub(crate) cluster: &'static Cluster,
    pods: Pods,
    // Answers as long as the tests run.
    pub(crate) server: AdmissionServer,
    /// The authority of the server's certificate.
    pub(crate) authority: Authority,
}

impl GuardedCluster {
    /// The cluster that the tests of this process share; `None` if the test is to be skipped.
    pub(crate) async fn shared() -> Result<Option<&'static Self>> {
        static SHARED: OnceCell<Option<GuardedCluster>> = OnceCell::const_new();
        let start = async || match Cluster::shared().await? {
            Some(cluster) => Self::start(cluster).await.map(Some),
            None => Ok(None),
        };
        Ok(SHARED.get_or_try_init(start).await?.as_ref())
    }

    async fn start(cluster: &'static Cluster) -> Result<Self> {
        let pods = Pods::default();
        let authority = Authority::new("admission")?;
        let server = serve(cluster, &authority.server(&["127.0.0.1"])?, Arc::clone(&pods)).await?;
        let admin = cluster.admin().await?;
        install_crd(&admin).await?;
        install_webhooks(&admin, server.address(), &authority.certificate()).await?;
        let guarded = Self { cluster, pods, server, authority };
        let space = guarded.space("probe").await?;
        eventually(SOON, "the webhooks are asked", async || {
            let dry = PostParams { dry_run: true, ..PostParams::default() };
            let half = json!({"metadata": {"name": "probe", "labels": {"nudge.dev/config": "probe"}}});
            let half: ConfigMap = serde_json::from_value(half).ok()?;
            space.api().create(&dry, &half).await.err()
        })
        .await?;
        Ok(guarded)
    }

    /// A namespace that an admin has enabled.
    pub(crate) async fn space(&self, purpose: &str) -> Result<TestNamespace> {
        self.cluster.space_with(purpose, &[("nudge.dev/enabled", "true")]).await
    }

    /// Says how many pods subscribe to a config.
    pub(crate) fn subscribe(&self, space: &TestNamespace, config: &str, pods: usize) {
        let key = (space.name.clone(), config.to_owned());
        self.pods.lock().insert(key, pods);
    }
}

/// A server that answers for Nudge.
pub(crate) async fn serve(cluster: &Cluster, certified: &Certified, pods: Pods) -> Result<AdmissionServer> {
    serve_with(cluster, tls(certified)?, pods, None).await
}

/// [`serve`] with other settings of TLS, and another rate of questions.
pub(crate) async fn serve_with(
    cluster: &Cluster,
    tls: Arc<ServerConfig>,
    pods: Pods,
    rate: Option<Rate>,
) -> Result<AdmissionServer> {
    let settings = AdmissionSettings::new(SocketAddr::from(([127, 0, 0, 1], 0)));
    let kubeconfig = std::fs::read_to_string(cluster.kubeconfig())?;
    let webhooks = move || -> BoxFuture<'static, Result<Webhooks>> {
        Box::pin(async move { webhooks(&kubeconfig, pods, rate).await })
    };
    Ok(AdmissionServer::start(settings, tls, AdmissionMetrics::default(), webhooks).await?)
}

/// An index that knows the pods and nothing else, because no watch runs.
struct PodsOnly(Pods);

impl IndexLookups for PodsOnly {
    fn subscribers(&self, namespace: &str, config: &str) -> Option<usize> {
        let pods = self.0.lock();
        Some(pods.get(&(namespace.to_owned(), config.to_owned())).map_or(0, |pods| *pods))
    }

    /// The admin's role for Secrets is bound in namespaces of this name.
    fn may_have_secrets(&self, namespace: &str) -> bool {
        namespace.contains("secrets")
    }
}

async fn webhooks(kubeconfig: &str, pods: Pods, rate: Option<Rate>) -> Result<Webhooks> {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let lookups = KubeLookups::new(Client::try_from(config)?, Arc::new(PodsOnly(pods)), NamespaceRule::Labelled);
    let lookups = Arc::new(match rate {
        Some(rate) => lookups.with_query_rates(rate, Rate { per_second: 10 * rate.per_second, burst: 10 * rate.burst }),
        None => lookups,
    });
    Ok(guards(&lookups, Arc::new(key())))
}

/// Returns the key of marks.
pub(crate) fn key() -> nudge_core::derived_keys::NoteKey {
    nudge_core::derived_keys::NoteKey::new(b"key of the tests")
}

/// TLS for a server.
pub(crate) fn tls(certified: &Certified) -> Result<Arc<ServerConfig>> {
    let certificate = CertificateDer::from_pem_slice(certified.certificate.as_bytes())?;
    let key = PrivateKeyDer::from_pem_slice(certified.key.as_bytes())?;
    let config =
        ServerConfig::builder_with_provider(Arc::new(default_provider())).with_safe_default_protocol_versions()?;
    Ok(Arc::new(config.with_no_client_auth().with_single_cert(vec![certificate], key)?))
}

/// Installs the CRD and waits until it is served.
pub(crate) async fn install_crd(admin: &Client) -> Result<()> {
    let crds = Api::<CustomResourceDefinition>::all(admin.clone());
    crds.create(&PostParams::default(), &crd::<VersionedConfig>()).await?;
    crds.create(&PostParams::default(), &crd::<VersionApproval>()).await?;
    crds.create(&PostParams::default(), &crd::<RolloutPolicy>()).await?;
    let configs = Api::<VersionedConfig>::all(admin.clone());
    eventually(SOON, "VersionedConfigs are served", async || configs.list(&ListParams::default()).await.ok()).await?;
    let approvals = Api::<VersionApproval>::all(admin.clone());
    eventually(SOON, "VersionApprovals are served", async || approvals.list(&ListParams::default()).await.ok()).await?;
    let policies = Api::<RolloutPolicy>::all(admin.clone());
    eventually(SOON, "RolloutPolicies are served", async || policies.list(&ListParams::default()).await.ok()).await?;
    Ok(())
}

/// Installs the webhook configurations of `deploy/`, for a server on this machine.
pub(crate) async fn install_webhooks(admin: &Client, address: SocketAddr, bundle: &str) -> Result<()> {
    for mut document in serde_saphyr::from_multiple::<Value>(WEBHOOKS)? {
        for webhook in document["webhooks"].as_array_mut().context("webhooks")? {
            let path = webhook["clientConfig"]["service"]["path"].as_str().context("a path")?;
            webhook["clientConfig"] = json!({"url": format!("https://{address}{path}"), "caBundle": base64(bundle)});
        }
        match document["kind"].as_str() {
            Some("MutatingWebhookConfiguration") => create::<MutatingWebhookConfiguration>(admin, document).await?,
            _ => create::<ValidatingWebhookConfiguration>(admin, document).await?,
        }
    }
    Ok(())
}

fn base64(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text)
}

/// Creates any cluster-wide object from its JSON.
pub(crate) async fn create<K>(admin: &Client, object: Value) -> Result<()>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + serde::Serialize + Debug,
{
    let object: K = serde_json::from_value(object)?;
    let name = object.name_any();
    Api::<K>::all(admin.clone()).create(&PostParams::default(), &object).await.with_context(|| name)?;
    Ok(())
}

/// A policy with a window in each of these time zones, and perhaps a hold. It selects no namespace.
pub(crate) fn rollout_policy(name: &str, zones: &[&str], hold: &Value) -> RolloutPolicy {
    let window = |(number, zone): (usize, &&str)| json!({"name": format!("w{number}"), "days": ["Fri"], "from": "09:00", "to": "17:00", "timeZone": zone});
    let windows: Vec<Value> = zones.iter().enumerate().map(window).collect();
    let policy = json!({
        "apiVersion": "nudge.dev/v1alpha1", "kind": "RolloutPolicy", "metadata": {"name": name},
        "spec": {"namespaceSelector": {"matchLabels": {"team": "nobody"}}, "windows": windows, "hold": hold}
    });
    serde_json::from_value(policy).expect("a RolloutPolicy")
}

/// A config with that spec and status.
pub(crate) async fn config(space: &TestNamespace, name: &str, spec: Value, status: Value) -> Result<VersionedConfig> {
    let object = json!({
        "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": name}, "spec": spec
    });
    space.create_object::<VersionedConfig>(object).await?;
    let patch = Patch::Merge(json!({"status": status}));
    Ok(space.api::<VersionedConfig>().patch_status(name, &PatchParams::default(), &patch).await?)
}

/// The record of a version that consists of these objects.
pub(crate) fn sealed(version: &str, parts: &[&ConfigMap]) -> Value {
    let part = |part: &&ConfigMap| json!({"kind": "ConfigMap", "name": part.metadata.name, "uid": part.metadata.uid, "digest": "sha256:x"});
    let parts: Vec<Value> = parts.iter().map(part).collect();
    json!({"version": version, "state": "Available", "keys": 1, "bytes": 1, "parts": parts})
}

/// Values of label and annotation that number no part, with the end of the refusal: the webhook and the policies say
/// the same.
pub(crate) const MISNUMBERED: [(Option<&str>, Option<&str>, &str); 7] = [
    (None, Some("2"), "label nudge.dev/part is missing; it must be a number from 1 to 2; add it"),
    (Some("1"), Some("17"), "annotation nudge.dev/parts must be a number from 1 to 16, not \"17\"; correct it"),
    (Some("1"), Some("01"), "annotation nudge.dev/parts must be a number from 1 to 16, not \"01\"; correct it"),
    (Some("1"), Some("+1"), "annotation nudge.dev/parts must be a number from 1 to 16, not \"+1\"; correct it"),
    (Some("01"), Some("2"), "label nudge.dev/part must be a number from 1 to 2, not \"01\"; correct it"),
    (Some("3"), Some("2"), "label nudge.dev/part must be a number from 1 to 2, not \"3\"; correct it"),
    (Some("1.0"), None, "label nudge.dev/part must be a number from 1 to 1, not \"1.0\"; correct it"),
];

/// Numbers a part with these values of `nudge.dev/part` and `nudge.dev/parts`.
pub(crate) fn number(part: &mut Value, label: Option<&str>, annotation: Option<&str>) {
    if let Some(label) = label {
        part["metadata"]["labels"]["nudge.dev/part"] = json!(label);
    }
    if let Some(annotation) = annotation {
        part["metadata"]["annotations"] = json!({"nudge.dev/parts": annotation});
    }
}

/// A part of version 1.0.1 of the config shop, as users write it.
pub(crate) fn part(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"nudge.dev/config": "shop", "nudge.dev/version": "1.0.1"}},
        "data": {"lives": "3"}
    })
}

/// The message of a refusal by the webhook of that name.
#[track_caller]
pub(crate) fn message<T: Debug>(webhook: &str, result: Result<T, kube::Error>) -> String {
    let error = result.expect_err("this is to be refused");
    let kube::Error::Api(status) = &error else { panic!("{error}") };
    let prefix = format!("admission webhook \"{webhook}\" denied the request: ");
    status.message.strip_prefix(&prefix).unwrap_or_else(|| panic!("{status:?}")).to_owned()
}

/// [`message`] for objects made by [`TestNamespace::create_object`].
#[track_caller]
pub(crate) fn message_of<T: Debug>(webhook: &str, result: Result<T>) -> String {
    message(webhook, result.map_err(|error| error.downcast().expect("an error of the API")))
}

/// Returns changes of a VersionedConfig that need the right to update the ConfigMap of its name, each with its name in
/// the refusal.
pub(crate) fn decisive_changes() -> [(Value, &'static str); 4] {
    [
        (json!({"spec": {"version": "2"}}), "change its spec"),
        (json!({"spec": {"rollout": {"bakeSeconds": 1}}}), "change its spec"),
        (
            json!({"metadata": {"annotations": {"nudge.dev/force-delete": "true"}}}),
            "set its annotation nudge.dev/force-delete",
        ),
        (json!({"metadata": {"finalizers": ["devs.example.com/mine"]}}), "add a finalizer to it"),
    ]
}

/// Returns changes that need that right and the right to delete versions, each with its names in the refusals for the
/// lack of either right.
pub(crate) fn deleting_changes() -> [(Value, [&'static str; 2]); 2] {
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "gone"}]);
    [
        (json!({"spec": {"historyLimit": 3}}), ["change its spec", "lower its historyLimit"]),
        (json!({"metadata": {"ownerReferences": owner}}), ["give it an owner"; 2]),
    ]
}

/// Returns the refusal of a change that would delete versions, which jane may not delete.
pub(crate) fn may_not_delete(space: &TestNamespace, name: &str, what: &str, kind: &str) -> String {
    format!(
        "VersionedConfig {name}: user \"jane\" may not {what}, because that deletes its versions; this needs the right to delete \
         {kind}s in namespace {}",
        space.name
    )
}

/// A status with a version that has a part of each kind. The objects need not exist.
pub(crate) fn with_secret() -> Value {
    let part = |kind: &str| json!({"kind": kind, "name": "a", "uid": kind, "digest": "sha256:x"});
    let version = json!({
        "version": "1", "state": "Available", "keys": 1, "bytes": 1, "parts": [part("ConfigMap"), part("Secret")]
    });
    json!({"versions": [version]})
}

/// A spec with every guard.
pub(crate) fn all_guards() -> Value {
    json!({"version": "1", "rollout": {
        "approval": {"required": 2},
        "windows": [
            {"name": "office", "days": ["Mon", "Tue"], "from": "09:00", "to": "17:00", "timeZone": "UTC"},
            {"name": "night", "days": ["Sat"], "from": "22:00", "to": "04:00", "timeZone": "Europe/Berlin"},
        ],
        "hold": {"reason": "the sale", "protected": true},
        "analysis": [{
            "name": "errors", "max": "0.01", "periodSeconds": 30, "failures": 2,
            "prometheus": {"address": "http://prometheus:9090", "query": "errors{pod=~\"{{pods}}\"}"}
        }],
    }})
}

/// The same without the one that takes the right to override.
pub(crate) fn open_guards() -> Value {
    let mut guards = all_guards();
    guards["rollout"]["hold"]["protected"] = false.into();
    guards
}

/// Returns changes that weaken the guards of a config with [`all_guards`], each with the text of its refusal.
pub(crate) fn weakening_changes() -> Vec<(Value, &'static str)> {
    let window = |days: Value, from: &str, to: &str| json!({"windows": [{"name": "office", "days": days, "from": from, "to": to, "timeZone": "UTC"}]});
    let analysis = |change: Value| {
        let mut one = all_guards()["rollout"]["analysis"][0].clone();
        json_patch::merge(&mut one, &change);
        json!({"analysis": [one]})
    };
    let changed = "that changes errors in spec.rollout.analysis other than by a lower max or maxRatio";
    vec![
        (json!({"approval": null}), "that removes spec.rollout.approval"),
        (json!({"approval": {"required": 1}}), "that requires 1 approval instead of 2"),
        (json!({"approval": {"notAuthor": false}}), "that lets authors approve (notAuthor: false)"),
        (
            json!({"approval": {"validSeconds": 2_592_001}}),
            "that lets approvals count for 2592001 s instead of 2592000 (validSeconds)",
        ),
        (json!({"windows": null}), "that removes spec.rollout.windows"),
        (json!({"windows": []}), "that removes spec.rollout.windows"),
        (
            window(json!(["Mon", "Wed"]), "10:00", "11:00"),
            "that adds a window that no earlier window contains (Mon Wed 10:00-11:00 UTC)",
        ),
        (
            window(json!(["Mon"]), "09:00", "08:00"),
            "that adds a window that no earlier window contains (Mon 09:00-08:00 UTC)",
        ),
        (json!({"hold": null}), "that removes spec.rollout.hold, which is protected"),
        (json!({"hold": {"protected": false}}), "that ends the protection of spec.rollout.hold"),
        (
            json!({"hold": {"untilTime": "2099-01-01T00:00:00Z"}}),
            "that ends spec.rollout.hold, which is protected, earlier",
        ),
        (json!({"analysis": null}), "that removes errors from spec.rollout.analysis"),
        (analysis(json!({"max": "0.02"})), changed),
        (analysis(json!({"failures": 3})), changed),
        (analysis(json!({"periodSeconds": 60})), changed),
        (analysis(json!({"prometheus": {"query": "up{pod=~\"{{pods}}\"}"}})), changed),
        (analysis(json!({"max": null, "maxRatio": "2"})), changed),
        (
            json!({"approval": {"required": 1}, "hold": null}),
            "that requires 1 approval instead of 2 and removes spec.rollout.hold, which is protected",
        ),
    ]
}

/// Changes of a config with [`all_guards`] that make none of them weaker.
pub(crate) fn strict_changes() -> Vec<Value> {
    let mut analysis = all_guards()["rollout"]["analysis"].clone();
    analysis[0]["max"] = json!("0.005");
    vec![
        json!({"steps": [{"pods": "100%"}], "minReadySeconds": 0, "bakeSeconds": 0}),
        json!({"approval": {"required": 3, "validSeconds": 3600}, "hold": {"reason": "still the sale"}}),
        json!({"windows": [{"name": "late", "days": ["Sat"], "from": "23:00", "to": "03:00", "timeZone": "Europe/Berlin"}]}),
        json!({"analysis": analysis}),
    ]
}

/// Returns an override that assigns a version to all pods at once for three hours from now.
pub(crate) fn at_once(version: &str, reason: &str) -> Value {
    let until = Timestamp::now() + SignedDuration::from_hours(3);
    let until = until.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    json!({"override": {"version": version, "reason": reason, "untilTime": until}})
}

/// Returns the refusal of a change that needs the right to override the config.
pub(crate) fn may_not_override(space: &TestNamespace, name: &str, what: &str, because: &str) -> String {
    format!(
        "VersionedConfig {name}: user \"jane\" may not {what}, because {because}; this needs the right to override VersionedConfig \
         {name} in namespace {}",
        space.name
    )
}
