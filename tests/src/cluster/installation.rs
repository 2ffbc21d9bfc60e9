//! Nudge installed in a test cluster: the objects of `deploy/`, and replicas of the control plane as processes of this
//! machine that have exactly the rights of its service account.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs::{self, File};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{Pod, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::RoleBinding;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Resource};
use nudge_api::{PartKind, VersionedConfig, VersionedConfigSpec};
use nudge_core::derived_keys::{NOTES, NoteKey};
use nudge_core::versions::{PartPlace, mark};
use nudge_protocol::labels;
use serde::de::DeserializeOwned;
use serde::{Deserialize as _, Serialize};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::cluster::replica::{Apart, ApartTwice, Replica, ReplicaOptions};
use crate::cluster::servers::ISSUER;
use crate::cluster::{Cluster, Identity, Options, TestNamespace, Wire};
use crate::process::urgent;
use crate::{Balancer, Process, binary, eventually, ports};

/// The namespace of the control plane.
pub const NAMESPACE: &str = "nudge-system";
/// The service account of the role control.
pub const ACCOUNT: &str = "nudge-injector";
/// The service account of the role hub.
pub const HUB_ACCOUNT: &str = "nudge-hub";
/// The service account of the role certs.
pub const CERTS_ACCOUNT: &str = "nudge-certs";
/// The service account of the role sources.
pub const SOURCES_ACCOUNT: &str = "nudge-sources";
/// The service account of the role analysis.
pub const ANALYSIS_ACCOUNT: &str = "nudge-analysis";
/// Selects the pods of the roles that others reach, each of two replicas.
pub const SERVING: &str = "app.kubernetes.io/component in (injector,hub)";
/// kubectl would ask a server that has just started for what it is still making: its OpenAPI documents.
const APPLY: [&str; 3] = ["apply", "--server-side", "--validate=false"];
/// How long a replica may take until it is ready, on a busy machine.
const WAIT_TIMEOUT: Duration = Duration::from_mins(1);
/// A free port that the replica finds itself, and that its log has.
const ANY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Returns the folder `deploy/`.
pub fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy")
}

/// An installation of `deploy/base` in a cluster.
pub struct Installation<'a> {
    /// The cluster that has the installation.
    pub cluster: &'a Cluster,
}

impl<'a> Installation<'a> {
    /// Applies `deploy/base`, apart from what needs running pods or a webhook's address, for replicas that have all
    /// roles and one account, as in `overlays/single-replica`. `None` without kubectl.
    pub async fn apply(cluster: &'a Cluster) -> Result<Option<Self>> {
        let Some(installation) = Self::apply_apart(cluster).await? else { return Ok(None) };
        installation.apply_file("overlays/single-replica/rbac.yaml").await?;
        let items = ["nudge-hub", "nudge-certs"].into_iter().flat_map(|role| {
            let binding = |kind: &str, metadata: Value| {
                json!({
                    "apiVersion": "rbac.authorization.k8s.io/v1", "kind": format!("{kind}Binding"), "metadata": metadata,
                    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
                    "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}],
                })
            };
            let name = format!("single-{role}");
            [
                binding("ClusterRole", json!({"name": name})),
                binding("Role", json!({"name": name, "namespace": NAMESPACE})),
            ]
        });
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items.collect::<Vec<_>>()}).to_string();
        cluster.kubectl_on(&APPLY, &list).await?;
        Ok(Some(installation))
    }

    /// Returns the same for processes that have one role each, and its account.
    pub async fn apply_apart(cluster: &'a Cluster) -> Result<Option<Self>> {
        let installation = Self { cluster };
        for file in ["namespace", "crd", "crd-policies", "crd-approvals", "rbac", "rbac-namespace", "state"] {
            if installation.apply_file(&format!("base/{file}.yaml")).await?.is_none() {
                return Ok(None);
            }
        }
        // A new kind is served a moment after its CRD was accepted.
        let exists = async || {
            let listed = cluster.kubectl(&["get", "versionedconfigs", "--all-namespaces"]).await.ok()??;
            (listed.code == Some(0)).then_some(())
        };
        eventually(WAIT_TIMEOUT, "VersionedConfig is served", exists).await?;
        Ok(Some(installation))
    }

    /// Applies a file of `deploy/`.
    pub async fn apply_file(&self, file: &str) -> Result<Option<()>> {
        let path = deploy().join(file);
        let text = fs::read_to_string(&path).with_context(|| format!("can't read {}", path.display()))?;
        Ok(self.cluster.kubectl_on(&APPLY, &text).await?.map(drop))
    }

    /// Applies the webhooks, answered at `address` on this machine instead of behind a Service. The leader fills in the
    /// authority, at once if it starts afterwards.
    pub async fn apply_webhooks(&self, address: SocketAddr) -> Result<()> {
        let path = deploy().join("base/webhooks.yaml");
        let text = fs::read_to_string(&path).with_context(|| format!("can't read {}", path.display()))?;
        let text = webhooks_at(&text, address)?;
        let apply = ["apply", "--server-side", "--force-conflicts", "--validate=false"];
        self.cluster.kubectl_on(&apply, &text).await.map(drop)
    }

    /// Returns the control plane that the tests of one program share, without its webhooks: what the controllers do by
    /// themselves.
    pub async fn shared() -> Result<Option<&'static (Installation<'static>, Replica)>> {
        static SHARED: OnceCell<Option<(Installation<'static>, Replica)>> = OnceCell::const_new();
        let shared_installation = SHARED.get_or_try_init(async || {
            let Some(installation) = Self::of_shared_cluster().await? else { return Ok(None) };
            let replica = installation.replica(&ReplicaOptions::with(&["--baseline-seconds=3"])).await?;
            Ok::<_, anyhow::Error>(Some((installation, replica)))
        });
        Ok(shared_installation.await?.as_ref())
    }

    /// Returns the same with its webhooks, at work.
    pub async fn shared_with_webhooks() -> Result<Option<&'static (Installation<'static>, Replica)>> {
        static SHARED: OnceCell<Option<(Installation<'static>, Replica)>> = OnceCell::const_new();
        let shared_installation = SHARED.get_or_try_init(async || {
            let Some(installation) = Self::of_shared_cluster().await? else { return Ok(None) };
            let replica = installation.guarded_replica().await?;
            Ok::<_, anyhow::Error>(Some((installation, replica)))
        });
        Ok(shared_installation.await?.as_ref())
    }

    /// Installs Nudge in a shared cluster with the controllers of workloads, which some of the tests need.
    async fn of_shared_cluster() -> Result<Option<Installation<'static>>> {
        static SHARED: OnceCell<Option<Cluster>> = OnceCell::const_new();
        let start = async || Cluster::installed(&Options::default().workloads()).await;
        Ok(SHARED.get_or_try_init(start).await?.as_ref().map(|cluster| Installation { cluster }))
    }

    /// Starts a replica with its webhooks, and waits until the API server trusts them.
    pub async fn guarded_replica(&self) -> Result<Replica> {
        self.guarded_replica_with(ReplicaOptions::default()).await
    }

    /// Returns the same with other options, apart from its addresses.
    pub async fn guarded_replica_with(&self, options: ReplicaOptions) -> Result<Replica> {
        let address = || ports::free().map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let addresses = (address()?, address()?, address()?);
        self.apply_webhooks(addresses.0).await?;
        let replica = self.replica(&ReplicaOptions { addresses: Some(addresses), ..options }).await?;
        let configs = self.enabled("trust").await?.api::<VersionedConfig>();
        let config = VersionedConfig::new("trust", VersionedConfigSpec::default());
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        let trusted = async || configs.create(&dry, &config).await.ok().map(drop);
        eventually(WAIT_TIMEOUT, "the API server trusts the webhooks", trusted).await?;
        Ok(replica)
    }

    /// Returns a namespace whose admin has enabled Nudge, without Secrets.
    pub async fn enabled(&self, purpose: &str) -> Result<TestNamespace> {
        let space = self.cluster.space_with(purpose, &[("nudge.dev/enabled", "true")]).await?;
        bind(&space, "nudge-namespace").await?;
        Ok(space)
    }

    /// Starts a replica and waits until it is ready.
    pub async fn replica(&self, options: &ReplicaOptions) -> Result<Replica> {
        let replica = self.start_replica(options, None).await?;
        replica.wait_until_ready().await?;
        Ok(replica)
    }

    /// Starts a replica that reaches the API server by a wire, and waits until it is ready.
    pub async fn replica_by(&self, wire: &Wire, options: &ReplicaOptions) -> Result<Replica> {
        let replica = self.start_replica(options, Some(wire)).await?;
        replica.wait_until_ready().await?;
        Ok(replica)
    }

    async fn start_replica(&self, options: &ReplicaOptions, wire: Option<&Wire>) -> Result<Replica> {
        let mut replica = self.start_as(ACCOUNT, options, wire).await?;
        replica.health = replica.wait_for_address("health").await?;
        replica.admission = replica.wait_for_address("admission").await?;
        replica.hub = replica.wait_for_address("hub").await?;
        Ok(replica)
    }

    /// Starts a process for each role, as `deploy/base` does, and waits until all are ready. The webhooks are applied.
    pub async fn apart(&self, options: &ReplicaOptions) -> Result<Apart> {
        let free = || ports::free().map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let (admission, hub) = (free()?, free()?);
        self.apply_webhooks(admission).await?;
        let certs = self.certs(options).await?;
        let mounted = self.mount(&certs).await?;
        let hub = self.hub(&options.with_more(&mounted), hub).await?;
        let control = self.control(&options.with_more(&mounted), admission, hub.hub).await?;
        control.wait_until_ready().await?;
        hub.wait_until_ready().await?;
        Ok(Apart { control, hub, certs })
    }

    /// Returns the same with two processes for each role. Either of the role control answers the webhooks.
    pub async fn apart_twice(&self, options: &ReplicaOptions) -> Result<ApartTwice> {
        let webhooks = Balancer::start(&[]).await?;
        self.apply_webhooks(webhooks.address).await?;
        let certs = [self.certs(options).await?, self.certs(options).await?];
        let mounted = options.with_more(&self.mount(&certs[0]).await?);
        let hub = [self.hub(&mounted, ANY).await?, self.hub(&mounted, ANY).await?];
        let control = [self.control(&mounted, ANY, hub[0].hub).await?, self.control(&mounted, ANY, hub[0].hub).await?];
        for replica in control.iter().chain(&hub) {
            replica.wait_until_ready().await?;
        }
        webhooks.set(&control.each_ref().map(|replica| replica.admission));
        Ok(ApartTwice { control, hub, certs, _webhooks: webhooks })
    }

    /// Starts the role certs, which is not waited for.
    pub async fn certs(&self, options: &ReplicaOptions) -> Result<Replica> {
        let options = ReplicaOptions { addresses: Some((ANY, ANY, ANY)), ..options.with_more(&["--roles=certs"]) };
        self.start_as(CERTS_ACCOUNT, &options, None).await
    }

    async fn hub(&self, options: &ReplicaOptions, at: SocketAddr) -> Result<Replica> {
        let options = ReplicaOptions { addresses: Some((ANY, at, ANY)), ..options.with_more(&["--roles=hub"]) };
        let mut hub = self.start_as(HUB_ACCOUNT, &options, None).await?;
        hub.hub = hub.wait_for_address("hub").await?;
        hub.health = hub.wait_for_address("health").await?;
        Ok(hub)
    }

    /// Starts the role control with what is mounted, which is not waited for. The API server asks it at `at`.
    pub async fn control(&self, options: &ReplicaOptions, at: SocketAddr, hub: SocketAddr) -> Result<Replica> {
        let options = ReplicaOptions { addresses: Some((at, hub, ANY)), ..options.with_more(&["--roles=control"]) };
        let mut control = self.start_as(ACCOUNT, &options, None).await?;
        control.admission = control.wait_for_address("admission").await?;
        control.health = control.wait_for_address("health").await?;
        Ok(control)
    }

    /// Returns what the kubelet mounts into the pods of the roles control and hub, as soon as the role certs has filled
    /// the Secrets: the arguments that name it.
    pub async fn mount(&self, certs: &Replica) -> Result<[String; 2]> {
        let folder = self.cluster.folder().join(&certs.name).join("mounted");
        fs::create_dir(&folder)?;
        let secrets: Api<Secret> = Api::namespaced(self.cluster.admin().await?, NAMESPACE);
        for (secret, keys) in
            [("nudge-serving", &["tls.crt", "tls.key", "ca.crt"][..]), ("nudge-content-key", &["content", "notes"])]
        {
            let filled = async || {
                let data = secrets.get(secret).await.ok()?.data?;
                keys.iter().all(|key| data.contains_key(*key)).then_some(data)
            };
            let data = eventually(WAIT_TIMEOUT, &format!("Secret {secret} is filled"), filled).await;
            let data = data.with_context(|| format!("its log:\n{}", certs.log()))?;
            for key in keys {
                fs::write(folder.join(key), &data.get(*key).context("no such key")?.0)?;
            }
        }
        Ok(["--certificate-dir", "--content-key-dir"].map(|flag| format!("{flag}={}", folder.display())))
    }

    /// Starts a process with a service account, which is not waited for.
    pub(super) async fn start_as(
        &self,
        account: &str,
        options: &ReplicaOptions,
        wire: Option<&Wire>,
    ) -> Result<Replica> {
        static COUNT: AtomicUsize = AtomicUsize::new(1);
        let name = format!("replica-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let token = self.token(account).await?;
        let identity = Identity::Token(&token);
        let kubeconfig = match wire {
            Some(wire) => self.cluster.kubeconfig_by(wire, &identity),
            None => self.cluster.kubeconfig_of(&identity),
        };
        self.launch(&name, &kubeconfig, options)
    }

    /// Starts a process that is called so, with a kubeconfig, and returns at once. One that is started again continues
    /// with its log.
    pub fn launch(&self, name: &str, kubeconfig: &str, options: &ReplicaOptions) -> Result<Replica> {
        let folder = self.cluster.folder().join(name);
        fs::create_dir_all(&folder)?;
        let file = folder.join("kubeconfig");
        fs::write(&file, kubeconfig)?;
        let (admission, hub, health) = options.addresses.unwrap_or((ANY, ANY, ANY));
        let program = match &options.binary {
            Some(program) => program,
            None => binary::injector()?,
        };
        let mut command = urgent(program);
        command.arg("serve").env("KUBECONFIG", &file);
        command
            .args(["--identity", name, "--certificate-names", "127.0.0.1,localhost"])
            .env("NUDGE_LOG_LEVEL", "debug");
        for (flag, address) in [("admission", admission), ("hub", hub), ("health", health)] {
            command.arg(format!("--listen-{flag}={address}"));
        }
        if hub.port() != 0 {
            command.arg(format!("--hub-url=https://{hub}"));
        }
        command.args(&options.arguments).envs(options.variables.iter().map(|(name, value)| (*name, value)));
        let log = folder.join("log");
        let file = File::options().create(true).append(true).open(&log)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        self.cluster.guard(&mut command);
        let process = Process::spawn("nudge-injector", &mut command)?;
        Ok(Replica { name: name.to_owned(), process, admission, hub, health, log })
    }

    /// Returns a token of a service account of the control plane, for the API server.
    pub async fn token(&self, account: &str) -> Result<String> {
        let spec = json!({"spec": {"audiences": [ISSUER], "expirationSeconds": 7200}});
        let request: TokenRequest = serde_json::from_value(spec)?;
        let accounts: Api<ServiceAccount> = Api::namespaced(self.cluster.admin().await?, NAMESPACE);
        let reply = accounts.create_token_request(account, &PostParams::default(), &request).await?;
        Ok(reply.status.context("no token")?.token)
    }
}

/// `spec.rollout` of a config whose pods are all moved at once, and watched for no longer than it takes.
pub fn at_once() -> serde_json::Value {
    json!({"steps": [{"pods": "100%"}], "minReadySeconds": 0, "bakeSeconds": 0})
}

/// `spec.rollout.override` that assigns this version to all pods at once, for the next three hours.
pub fn overridden(version: &str, reason: &str) -> Value {
    let end = Timestamp::from_second(Timestamp::now().as_second() + 3 * 3600).unwrap_or(Timestamp::MAX);
    json!({"version": version, "reason": reason, "untilTime": end.to_string()})
}

/// Returns the webhooks of a manifest, answered at `address` on this machine instead of behind a Service.
pub fn webhooks_at(manifest: &str, address: SocketAddr) -> Result<String> {
    let mut items = Vec::new();
    for mut document in serde_saphyr::from_multiple::<Value>(manifest)? {
        for webhook in document["webhooks"].as_array_mut().context("no webhooks")? {
            let path = webhook["clientConfig"]["service"]["path"].as_str().context("a webhook without a Service")?;
            webhook["clientConfig"] = json!({"url": format!("https://{address}{path}")});
        }
        items.push(document);
    }
    Ok(json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string())
}

/// Makes a part of a version as it is after the webhook has marked it, because its maker may update the published
/// ConfigMap: for clusters without webhooks. The control plane must have begun, because it draws the key.
pub async fn create_part<K>(space: &TestNamespace, mut object: Value) -> Result<K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned + Serialize + Debug,
{
    let kind = if K::kind(&()) == "Secret" { PartKind::Secret } else { PartKind::ConfigMap };
    let mut content = BTreeMap::new();
    for (field, encoded) in [("data", kind == PartKind::Secret), ("stringData", false), ("binaryData", true)] {
        for (key, value) in object[field].as_object().into_iter().flatten() {
            let text = value.as_str().context("a value is no text")?;
            let bytes = if encoded { BASE64_STANDARD.decode(text)? } else { text.as_bytes().to_vec() };
            content.insert(key.clone(), bytes);
        }
    }
    let keys: Api<Secret> = Api::namespaced(space.client.clone(), NAMESPACE);
    let key = keys.get("nudge-content-key").await?.data.and_then(|mut data| data.remove(NOTES)).context("no key")?;
    let (key, part) = (NoteKey::new(&key.0), ObjectMeta::deserialize(&object["metadata"])?);
    let place = PartPlace { kind, namespace: &space.name };
    let mark = mark(&key, place, &part, &content, Timestamp::now()).context("the part has no name")?;
    object["metadata"]["annotations"][labels::MAY_ACTIVATE] = mark.into();
    space.create_object(object).await
}

/// Binds one of Nudge's cluster roles in a namespace to the accounts that need it, as a cluster admin does.
pub async fn bind(space: &TestNamespace, role: &str) -> Result<()> {
    let of_hub = format!("{role}-hub");
    let both = ["nudge-namespace", "nudge-secrets"].contains(&role);
    let account = if role.starts_with(SOURCES_ACCOUNT) { SOURCES_ACCOUNT } else { ACCOUNT };
    for (role, account) in [(role, account)].into_iter().chain(both.then_some((&*of_hub, HUB_ACCOUNT))) {
        let binding = json!({
            "metadata": {"name": role},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}],
        });
        space.create_object::<RoleBinding>(binding).await?;
    }
    Ok(())
}

/// Returns the authority that agents of pods trust that are made now.
pub async fn hub_ca(space: &TestNamespace) -> Result<String> {
    let secrets: Api<Secret> = Api::namespaced(space.client.clone(), NAMESPACE);
    let text = async || String::from_utf8(secrets.get("nudge-serving").await.ok()?.data?.remove("ca.crt")?.0).ok();
    eventually(WAIT_TIMEOUT, "the hub's authority is there", text).await
}

/// Returns a pod as the injector makes it, for an agent and a container `app`, running and ready.
pub async fn injected_pod(space: &TestNamespace, name: &str, configs: &str) -> Result<Pod> {
    injected_pod_with(space, configs, &json!({"name": name}), &json!({})).await
}

/// Returns the same with more metadata, and with more in the container.
pub async fn injected_pod_with(space: &TestNamespace, configs: &str, meta: &Value, container: &Value) -> Result<Pod> {
    let mut app = container.clone();
    (app["name"], app["image"]) = ("app".into(), "test".into());
    let agent = json!({"name": "nudge-agent", "image": "test", "env": [{"name": "NUDGE_CONFIGS", "value": configs}]});
    injected_pod_of(space, meta, &json!({"containers": [agent, app]})).await
}

/// Creates a pod with this spec, as injection would leave it, and runs it.
pub async fn injected_pod_of(space: &TestNamespace, meta: &Value, spec: &Value) -> Result<Pod> {
    if space.api::<ServiceAccount>().get_opt("app").await?.is_none() {
        // Another test step may have been faster.
        let _ = space.service_account("app").await;
    }
    let (mut meta, mut spec) = (meta.clone(), spec.clone());
    meta["labels"]["nudge.dev/agent"] = "0.1.0".into();
    (spec["serviceAccountName"], spec["automountServiceAccountToken"]) = ("app".into(), false.into());
    let pod = json!({"metadata": meta, "spec": spec});
    let pod = space.create_object::<Pod>(pod).await?;
    space.run(&pod).await
}

/// Returns which of the replicas leads, as soon as one does.
pub async fn leader(replicas: &[Replica]) -> Result<usize> {
    // A lease must run out first where the leader was killed.
    eventually(Duration::from_mins(2), "one replica leads", async || {
        for (index, replica) in replicas.iter().enumerate() {
            if replica.metric("nudge_leader").await.is_ok_and(|leads| leads > 0.0) {
                return Some(index);
            }
        }
        None
    })
    .await
}

/// Returns the token of an injected pod's agent.
pub async fn agent_token(space: &TestNamespace, pod: &Pod) -> Result<String> {
    space.token("app", nudge_protocol::pod::TOKEN_AUDIENCE, Some(pod)).await
}
