//! `kubectl nudge export` and `import`: a cluster that has lost all gets its configs back, and no application hears of
//! it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use nudge_api::{
    ConfigSource, ConfigState, RolloutStage, VersionState, VersionedConfig, VersionedConfigSpec, VersionedConfigStatus,
};
use nudge_tests::cluster::assigned::assigned;
use nudge_tests::cluster::installation::{at_once, bind, create_part};
use nudge_tests::cluster::space::user;
use nudge_tests::cluster::{Options, TestNamespace};
use nudge_tests::{
    Cluster, Finished, Installation, Pod, Process, Replica, ReplicaOptions, binary, eventually, ports, subscriber,
    tools,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;

const WAIT_TIMEOUT: Duration = Duration::from_mins(2);
const SECRET: &str = "hidden-4711";

/// Runs the command with this kubeconfig.
async fn run_by(kubeconfig: &Path, arguments: &[&str]) -> Result<Finished> {
    let mut command = Command::new(binary::kubectl_nudge()?);
    command.args(arguments).arg("--kubeconfig").arg(kubeconfig);
    tokio::task::spawn_blocking(move || Finished::of(&mut command)).await?
}

async fn run_expecting(cluster: &Cluster, code: i32, arguments: &[&str]) -> Result<Finished> {
    let finished = run_by(&cluster.kubeconfig(), arguments).await?;
    ensure!(finished.code == Some(code), "kubectl nudge {arguments:?} did not end with {code}: {finished:?}");
    Ok(finished)
}

fn addresses() -> Result<(SocketAddr, SocketAddr, SocketAddr)> {
    let free = || ports::free().map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    Ok((free()?, free()?, free()?))
}

/// Returns the control plane with its webhooks, at addresses that stay the same for agents.
async fn control_plane(
    installation: &Installation<'_>,
    addresses: (SocketAddr, SocketAddr, SocketAddr),
) -> Result<Replica> {
    installation.apply_file("base/user-roles.yaml").await?;
    installation.apply_webhooks(addresses.0).await?;
    let options = ReplicaOptions { addresses: Some(addresses), ..ReplicaOptions::quick() };
    installation.replica(&options).await
}

/// A config with its subscribers.
struct Shop {
    space: TestNamespace,
    pods: Vec<(String, Pod)>,
}

impl Shop {
    async fn new(installation: &Installation<'_>, purpose: &str, rollout: &Value) -> Result<Self> {
        let space = installation.enabled(purpose).await?;
        space.create_object::<ConfigMap>(json!({"metadata": {"name": "shop"}, "data": {"number": "0"}})).await?;
        let spec = json!({"version": "1", "rollout": rollout, "objects": ["ConfigMap"]});
        let create = async || {
            let config = json!({"metadata": {"name": "shop"}, "spec": spec});
            space.create_object::<VersionedConfig>(config).await.ok().map(drop)
        };
        eventually(WAIT_TIMEOUT, "the webhooks are at work", create).await?;
        let shop = Self { space, pods: Vec::new() };
        shop.make("1").await?;
        shop.until("version 1 is current", |status| status.current_version.as_deref() == Some("1")).await?;
        Ok(shop)
    }

    async fn make(&self, version: &str) -> Result<()> {
        let labels = json!({"nudge.dev/config": "shop", "nudge.dev/version": version});
        let object = json!({
            "metadata": {"name": format!("shop-{version}"), "labels": labels}, "immutable": true, "data": {"number": version},
        });
        create_part::<ConfigMap>(&self.space, object).await.map(drop)
    }

    /// Creates a version of a ConfigMap and a Secret.
    async fn make_with_secret(&self, version: &str, pin: &str) -> Result<()> {
        let meta = |number: &str| {
            let labels = json!({"nudge.dev/config": "shop", "nudge.dev/version": version, "nudge.dev/part": number});
            json!({"name": format!("shop-{version}-{number}"), "labels": labels, "annotations": {"nudge.dev/parts": "2"}})
        };
        let map = json!({"metadata": meta("1"), "immutable": true, "data": {"number": version}});
        create_part::<ConfigMap>(&self.space, map).await?;
        let secret = json!({"metadata": meta("2"), "immutable": true, "stringData": {"pin": pin}});
        create_part::<Secret>(&self.space, secret).await.map(drop)
    }

    async fn populate(&mut self, hub: SocketAddr, count: usize) -> Result<()> {
        for number in 0..count {
            let app = env!("CARGO_BIN_EXE_app");
            let (object, pod) = subscriber(&self.space, hub, &format!("web-{number}"), &json!({}), app).await?;
            self.pods.push((object.uid().context("no uid")?, pod));
        }
        let description = format!("{count}/{count}");
        self.until("all pods run it", |status| status.pods.summary == description).await.map(drop)
    }

    async fn set(&self, spec: Value) -> Result<()> {
        let patch = Patch::Merge(json!({"spec": spec}));
        self.space.api::<VersionedConfig>().patch("shop", &PatchParams::default(), &patch).await?;
        Ok(())
    }

    async fn until(&self, what: &str, is: impl Fn(&VersionedConfigStatus) -> bool) -> Result<VersionedConfigStatus> {
        let is_expected = |config: &VersionedConfig| config.status.as_ref().is_some_and(&is);
        self.space.object_until(WAIT_TIMEOUT, "shop", what, is_expected).await?.status.context("no status")
    }

    /// Returns what every application was notified of, by pod.
    fn notified_versions(&self) -> Vec<Vec<String>> {
        let notified_versions_of = |pod: &Pod| {
            let output = pod.app_output();
            output.lines().filter_map(|line| Some(line.rsplit_once("SIGUSR1 ")?.1.to_owned())).collect()
        };
        self.pods.iter().map(|(_, pod)| notified_versions_of(pod)).collect()
    }

    /// Returns the version that the status assigns to each pod.
    fn assigned(&self, status: &VersionedConfigStatus) -> Vec<Option<String>> {
        let identity = status.internal.identity.clone().unwrap_or_default();
        let uuid = [&identity[..8], &identity[8..12], &identity[12..16], &identity[16..20], &identity[20..]].join("-");
        let assigned_to = |uid: &str| assigned(status, &uuid, uid, "", &BTreeMap::new()).map(str::to_owned);
        self.pods.iter().map(|(uid, _)| assigned_to(uid)).collect()
    }
}

/// Returns a key of age: its file, and its recipient.
fn age_key(folder: &Path) -> Result<(String, String)> {
    let file = folder.join("key.txt");
    let age_keygen = Finished::of(Command::new("age-keygen").arg("-o").arg(&file))?;
    ensure!(age_keygen.code == Some(0), "{age_keygen:?}");
    let text = std::fs::read_to_string(&file)?;
    let recipient = text.lines().find_map(|line| line.strip_prefix("# public key: ")).context("no recipient")?;
    Ok((file.to_str().context("a path")?.to_owned(), recipient.to_owned()))
}

/// Returns an export of all namespaces, in a folder of its own.
async fn export(cluster: &Cluster, more: &[&str]) -> Result<(TempDir, PathBuf)> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("nudge.yaml");
    let arguments = [&["export", "-A", "-f", file.to_str().context("a path")?][..], more].concat();
    run_expecting(cluster, 0, &arguments).await?;
    Ok((folder, file))
}

/// Returns what an empty etcd is given back by others: namespaces, pods as kubelets run them with their accounts, and
/// the authority that agents trust.
fn objects_of_others(spaces: &[&TestNamespace]) -> Vec<String> {
    let of_nudge =
        ["namespaces/nudge-system", "secrets/nudge-system/nudge-authority", "secrets/nudge-system/nudge-serving"]
            .map(str::to_owned);
    let of_spaces = spaces.iter().flat_map(|space| {
        ["namespaces/NAME", "pods/NAME/", "serviceaccounts/NAME/"].map(|prefix| prefix.replace("NAME", &space.name))
    });
    of_nudge.into_iter().chain(of_spaces).map(|prefix| format!("/registry/{prefix}")).collect()
}

/// Returns a rollout whose first step is watched until somebody says otherwise.
fn in_steps() -> Value {
    json!({"steps": [{"pods": 1}], "minReadySeconds": 600, "bakeSeconds": 0})
}

fn in_the_middle(status: &VersionedConfigStatus) -> bool {
    status.rollout.stage == Some(RolloutStage::Moving) && status.rollout.step == 1 && status.pods.summary == "1/3"
}

#[tokio::test]
async fn a_cluster_that_lost_all_is_restored_and_nobody_is_notified() -> Result<()> {
    let Some(mut cluster) = Cluster::installed(&Options::default()).await? else { return Ok(()) };
    let addresses = addresses()?;
    if tools::find("age")?.is_none() {
        return Ok(());
    }
    let keys = tempfile::tempdir()?;
    let (mut calm, mut moving, before, file, identity, _folder);
    {
        let installation = Installation { cluster: &cluster };
        let mut replica = control_plane(&installation, addresses).await?;
        calm = Shop::new(&installation, "calm", &at_once()).await?;
        calm.populate(addresses.1, 1).await?;
        bind(&calm.space, "nudge-secrets").await?;
        calm.make_with_secret("2", SECRET).await?;
        calm.set(json!({"version": "2"})).await?;
        calm.until("2 is current", at_two).await?;
        moving = Shop::new(&installation, "moving", &in_steps()).await?;
        moving.populate(addresses.1, 3).await?;
        moving.make("2").await?;
        moving.set(json!({"version": "2"})).await?;
        let status = moving.until("one pod runs 2", in_the_middle).await?;
        before = (calm.until("it is at rest", |_| true).await?, status);
        ensure!(moving.assigned(&before.1).iter().flatten().filter(|it| *it == "2").count() == 1);
        let (key, recipient) = age_key(keys.path())?;
        (_folder, file) = export(&cluster, &["--secrets-to", &recipient, "--content-key"]).await?;
        identity = key;
        replica.process.stop()?;
    }
    let notified = (calm.notified_versions(), moving.notified_versions());
    ensure!(notified.0 == [["2"]] && notified.1.concat() == ["2"], "{notified:?}");

    cluster.empty_etcd(&objects_of_others(&[&calm.space, &moving.space])).await?;
    let file = file.to_str().context("a path")?;
    let import = ["import", "-f", file, "--identity", &identity];
    let key = run_expecting(&cluster, 0, &[&import[..], &["--content-key"]].concat()).await?;
    ensure!(key.stdout.starts_with("the content key is restored"), "{key:?}");
    let installation = Installation::apply(&cluster).await?.context("kubectl")?;
    let replica = control_plane(&installation, addresses).await?;
    bind(&calm.space, "nudge-secrets").await?;
    for shop in [&calm, &moving] {
        bind(&shop.space, "nudge-namespace").await?;
        ensure!(shop.space.api::<VersionedConfig>().get_opt("shop").await?.is_none());
    }
    // The agents hear that there is no such config.
    let polls = async || replica.metric("nudge_hub_polls_total").await.ok().filter(|polls| *polls >= 4.0).map(drop);
    eventually(WAIT_TIMEOUT, "all agents have asked", polls).await?;

    let planned = run_expecting(&cluster, 0, &[&import[..], &["--dry-run"]].concat()).await?.stdout;
    ensure!(planned.contains(&format!("create: VersionedConfig {}/shop", calm.space.name)), "{planned}");
    ensure!(calm.space.api::<VersionedConfig>().get_opt("shop").await?.is_none(), "a dry run changes nothing");
    let imported = run_expecting(&cluster, 0, &import).await?;
    ensure!(imported.stdout.starts_with("imported 2 configs"), "{imported:?}");

    let runs = |of: &'static str| {
        move |status: &VersionedConfigStatus| status.observed_generation.is_some() && status.pods.summary == of
    };
    let after = (calm.until("it runs 2", runs("1/1")).await?, moving.until("it continues", runs("1/3")).await?);
    for (shop, before, after) in [(&calm, &before.0, &after.0), (&moving, &before.1, &after.1)] {
        ensure!(shop.assigned(before) == shop.assigned(after), "{after:#?}");
        ensure!(before.internal.identity == after.internal.identity, "{after:#?}");
        ensure!(before.current_version == after.current_version, "{after:#?}");
        ensure!(before.previous_version == after.previous_version, "{after:#?}");
        ensure!(before.target_version == after.target_version, "{after:#?}");
        ensure!(before.rollout.stage == after.rollout.stage, "{after:#?}");
        let thresholds =
            |status: &VersionedConfigStatus| (status.internal.threshold, status.internal.workloads.clone());
        let assignment = |status: &VersionedConfigStatus| (thresholds(status), status.internal.revision);
        ensure!(assignment(before) == assignment(after), "{before:#?} {after:#?}");
    }
    ensure!(
        (calm.notified_versions(), moving.notified_versions()) == notified,
        "{:?} {:?}",
        calm.notified_versions(),
        moving.notified_versions()
    );
    let states = |status: &VersionedConfigStatus| {
        status.versions.iter().map(|version| (version.version.clone(), version.state)).collect::<Vec<_>>()
    };
    ensure!(states(&after.0) == states(&before.0), "the seal of the Secret is good: {:#?}", after.0);
    ensure!(calm.space.api::<ConfigMap>().get("shop").await?.data.context("no data")?["number"] == "2");

    // The rollout continues where it was: each pod is notified of 2 once.
    moving.set(json!({"rollout": {"minReadySeconds": 0}})).await?;
    moving.until("2 is current", at_two).await?;
    let once = async || moving.notified_versions().iter().all(|all| *all == ["2"]).then_some(());
    eventually(WAIT_TIMEOUT, "each pod was notified once", once)
        .await
        .map_err(|error| error.context(format!("{:?}", moving.notified_versions())))?;
    ensure!(calm.notified_versions() == notified.0);
    // What moved on is not overwritten; what is as it was is there already.
    let refused = run_expecting(&cluster, 1, &import).await?;
    let differs = format!(
        "VersionedConfig {}/shop exists and differs: spec; status.currentVersion: 1 in the export, 2 in",
        moving.space.name
    );
    ensure!(refused.stdout.contains(&differs) && refused.stderr.contains("nothing was changed"), "{refused:?}");
    Ok(())
}

/// Returns the kubeconfig of a user.
fn kubeconfig(cluster: &Cluster, folder: &Path, user: &str) -> Result<PathBuf> {
    let file = folder.join(user);
    std::fs::write(&file, cluster.kubeconfig_of(&cluster.user(user, &[])))?;
    Ok(file)
}

/// Binds a ClusterRole of `deploy/base` to a user in the namespace.
async fn bind_role(space: &TestNamespace, name: &str, role: &str) -> Result<()> {
    let binding = json!({
        "metadata": {"name": format!("{name}-{role}")},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [user(name)],
    });
    space.create_object::<RoleBinding>(binding).await.map(drop)
}

/// Deletes the config, and waits until its versions are gone.
async fn lose(space: &TestNamespace) -> Result<()> {
    let (configs, force) = (space.api::<VersionedConfig>(), json!({"nudge.dev/force-delete": "true"}));
    let patch = Patch::Merge(json!({"metadata": {"annotations": force}}));
    configs.patch("shop", &PatchParams::default(), &patch).await?;
    configs.delete("shop", &DeleteParams::default()).await?;
    let selector = ListParams::default().labels("nudge.dev/config=shop");
    let gone = async || {
        let (maps, secrets) = (space.api::<ConfigMap>(), space.api::<Secret>());
        let maps = maps.list(&selector).await.ok()?;
        (maps.items.is_empty() && secrets.list(&selector).await.ok()?.items.is_empty()).then_some(())
    };
    eventually(WAIT_TIMEOUT, "the versions are gone", gone).await
}

fn at_two(status: &VersionedConfigStatus) -> bool {
    status.state() == ConfigState::Current && status.current_version.as_deref() == Some("2")
}

#[tokio::test]
async fn without_its_secrets_a_config_is_left_alone_until_they_are_there() -> Result<()> {
    if tools::find("age")?.is_none() {
        return Ok(());
    }
    let Some((installation, _)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    installation.apply_file("base/user-roles.yaml").await?;
    let (cluster, folder) = (installation.cluster, tempfile::tempdir()?);
    let shop = Shop::new(installation, "secrets", &at_once()).await?;
    bind(&shop.space, "nudge-secrets").await?;
    shop.make_with_secret("2", SECRET).await?;
    shop.set(json!({"version": "2"})).await?;
    let before = shop.until("2 is current", at_two).await?;
    let secret = shop.space.api::<Secret>().get("shop-2-2").await?;

    // The operators have the roles of deploy/base, and no other.
    let (alice, bob) = (kubeconfig(cluster, folder.path(), "alice")?, kubeconfig(cluster, folder.path(), "bob")?);
    bind_role(&shop.space, "alice", "nudge-backup").await?;
    bind_role(&shop.space, "bob", "nudge-restore").await?;
    let file = folder.path().join("names.yaml");
    let file = file.to_str().context("a path")?;
    let exported = run_by(&alice, &["export", "-n", &shop.space.name, "-f", file]).await?;
    ensure!(exported.code == Some(0) && exported.stderr.contains("left out: the values of Secrets"), "{exported:?}");
    let (key, recipient) = age_key(folder.path())?;
    let full = folder.path().join("full.yaml");
    let full = full.to_str().context("a path")?;
    let arguments = ["export", "-n", &shop.space.name, "-f", full, "--secrets-to", &recipient, "--content-key"];
    run_expecting(cluster, 0, &arguments).await?;
    for file in [file, full] {
        let text = std::fs::read_to_string(file)?;
        ensure!(text.contains(&format!("{}/shop-2-2", shop.space.name)), "its name is there: {text}");
        // Neither as it is nor as the API server has it.
        ensure!(!text.contains(SECRET) && !text.contains(&BASE64_STANDARD.encode(SECRET)), "{text}");
        assert_eq!(std::fs::metadata(file)?.permissions().mode() & 0o077, 0, "others can read {file}");
    }

    lose(&shop.space).await?;
    let waits = run_by(&bob, &["import", "-f", file]).await?;
    ensure!(waits.code == Some(1) && waits.stderr.contains("1 of 1 config waits for Secrets"), "{waits:?}");
    ensure!(waits.stderr.contains("lacks its Secrets: shop-2-2"), "{waits:?}");
    let importing = |status: &VersionedConfigStatus| {
        status.conditions.iter().any(|condition| condition.type_ == "Ready" && condition.reason == "Importing")
    };
    shop.until("the status says so", importing).await?;
    // It is left alone, whatever its spec says.
    shop.set(json!({"version": "1"})).await?;
    let generation = shop.space.api::<VersionedConfig>().get("shop").await?.metadata.generation;
    let observe = |status: &VersionedConfigStatus| status.observed_generation == generation;
    let status = shop.until("the controller has seen that", observe).await?;
    ensure!(importing(&status) && status.versions.is_empty() && status.internal.identity.is_none(), "{status:#?}");

    // Somebody creates the Secret as it was, and the import continues where it ended.
    let again = json!({
        "metadata": {"name": "shop-2-2", "labels": secret.metadata.labels, "annotations": {"nudge.dev/parts": "2"}},
        "immutable": true, "data": secret.data,
    });
    shop.space.create_object::<Secret>(again).await?;
    let done = run_by(&bob, &["import", "-f", file]).await?;
    ensure!(done.code == Some(0), "{done:?}");
    let same = |status: &VersionedConfigStatus| at_two(status) && !importing(status);
    let after = shop.until("it is as it was", same).await?;
    let kept = |status: &VersionedConfigStatus| (status.internal.identity.clone(), status.internal.revision);
    ensure!(kept(&after) == kept(&before), "{after:#?}");
    let twice = run_by(&bob, &["import", "-f", file]).await?;
    ensure!(twice.code == Some(0) && twice.stderr.contains("is there already"), "{twice:?}");

    // With the Secrets all is restored at once, and the controller finds their seals good.
    lose(&shop.space).await?;
    let restored = run_by(&bob, &["import", "-f", full, "--identity", &key]).await?;
    ensure!(restored.code == Some(0), "{restored:?}");
    let after = shop.until("it is as it was", same).await?;
    ensure!(after.versions.iter().all(|version| version.state != VersionState::Broken), "{after:#?}");
    ensure!(shop.space.api::<Secret>().get("shop-2-2").await?.data == secret.data);
    let second_import = run_expecting(cluster, 0, &["import", "-f", full, "--identity", &key, "--content-key"]).await?;
    ensure!(second_import.stdout == "the content key is there already\n", "{second_import:?}");
    Ok(())
}

/// Lets the API server ask here before it creates a ConfigMap or changes a config of the namespace: what writes one
/// waits for as long as its connection is kept, and then continues.
async fn gate(space: &TestNamespace) -> Result<TcpListener> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let label = json!({"gate": space.name});
    let patch = Patch::Merge(json!({"metadata": {"labels": label}}));
    Api::<Namespace>::all(space.client.clone()).patch(&space.name, &PatchParams::default(), &patch).await?;
    let rule = |group: &str, resource: &str, operation: &str| json!({"apiGroups": [group], "apiVersions": ["*"], "resources": [resource], "operations": [operation]});
    let webhook = json!({
        "name": "gate.example.com", "clientConfig": {"url": format!("https://{}/", listener.local_addr()?)},
        "rules": [rule("", "configmaps", "CREATE"), rule("nudge.dev", "versionedconfigs", "UPDATE")],
        "namespaceSelector": {"matchLabels": label}, "failurePolicy": "Ignore", "timeoutSeconds": 30,
        "sideEffects": "None", "admissionReviewVersions": ["v1"],
    });
    let object = json!({"metadata": {"name": format!("gate-{}", space.name)}, "webhooks": [webhook]});
    let webhooks = Api::<ValidatingWebhookConfiguration>::all(space.client.clone());
    webhooks.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    // The API server knows of it a moment later.
    let (maps, probe) = (space.api::<ConfigMap>(), serde_json::from_value(json!({"metadata": {"name": "probe"}}))?);
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    loop {
        tokio::select! {
            asked = listener.accept() => return Ok(asked.map(|_| listener)?),
            _ = maps.create(&dry, &probe) => {}
        }
    }
}

/// Kills an import at the first write before which this holds, and returns the config as it is then.
async fn kill_import_at(
    cluster: &Cluster,
    space: &TestNamespace,
    gate: &TcpListener,
    file: &str,
    reached: impl AsyncFn(&VersionedConfig) -> bool,
) -> Result<VersionedConfig> {
    let mut command = Command::new(binary::kubectl_nudge()?);
    command.args(["import", "-f", file, "--kubeconfig"]).arg(cluster.kubeconfig()).stderr(Stdio::null());
    let mut import = Process::spawn("import", &mut command)?;
    loop {
        let first_write =
            tokio::time::timeout(WAIT_TIMEOUT, gate.accept()).await.context("it ended without that")??;
        if let Some(config) = space.api::<VersionedConfig>().get_opt("shop").await?
            && reached(&config).await
        {
            import.kill()?;
            return Ok(config);
        }
        drop(first_write);
    }
}

fn is_importing(config: &VersionedConfig) -> bool {
    config.annotations().contains_key("nudge.dev/importing")
}

#[tokio::test]
async fn an_import_that_was_killed_is_finished_by_the_next_one_and_nobody_is_notified() -> Result<()> {
    let Some((installation, replica)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    let (cluster, folder) = (installation.cluster, tempfile::tempdir()?);
    let mut shop = Shop::new(installation, "killed", &in_steps()).await?;
    shop.populate(replica.hub, 3).await?;
    shop.make("2").await?;
    shop.set(json!({"version": "2"})).await?;
    let before = shop.until("one pod runs 2", in_the_middle).await?;
    let notified = shop.notified_versions();
    ensure!(notified.concat() == ["2"], "{notified:?}");
    let file = folder.path().join("nudge.yaml");
    let file = file.to_str().context("a path")?;
    run_expecting(cluster, 0, &["export", "-n", &shop.space.name, "-f", file]).await?;
    lose(&shop.space).await?;

    // When the first version is there and the second one is not, and when the status is written and the import has not
    // ended.
    let (gate, maps) = (gate(&shop.space).await?, shop.space.api::<ConfigMap>());
    let has = async |name: &str| maps.get_opt(name).await.is_ok_and(|found| found.is_some());
    let config = kill_import_at(cluster, &shop.space, &gate, file, async |_| has("shop-1").await).await?;
    ensure!(is_importing(&config) && !has("shop-2").await, "{config:#?}");
    let written =
        async |config: &VersionedConfig| config.status.as_ref().is_some_and(|it| it.internal.identity.is_some());
    let config = kill_import_at(cluster, &shop.space, &gate, file, written).await?;
    ensure!(is_importing(&config) && has("shop-2").await, "{config:#?}");
    drop(gate);
    run_expecting(cluster, 0, &["import", "-f", file]).await?;

    let runs = |status: &VersionedConfigStatus| status.observed_generation.is_some() && in_the_middle(status);
    let after = shop.until("it continues", runs).await?;
    ensure!(shop.assigned(&before) == shop.assigned(&after), "{after:#?}");
    ensure!(before.internal.identity == after.internal.identity, "{after:#?}");
    ensure!(shop.notified_versions() == notified, "{:?}", shop.notified_versions());
    let versioned_configs = shop.space.api::<VersionedConfig>().list(&ListParams::default()).await?;
    ensure!(
        !versioned_configs.items.is_empty() && !versioned_configs.iter().any(is_importing),
        "{versioned_configs:#?}"
    );
    Ok(())
}

#[tokio::test]
async fn a_tampered_export_is_refused_and_names_the_object() -> Result<()> {
    let Some((installation, _)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    let shop = Shop::new(installation, "tampered", &at_once()).await?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("nudge.yaml");
    let path = file.to_str().context("a path")?;
    run_expecting(installation.cluster, 0, &["export", "-n", &shop.space.name, "-f", path]).await?;
    lose(&shop.space).await?;
    let text = std::fs::read_to_string(&file)?;
    // The last one is in the version, whether or not the published ConfigMap has it already.
    let (before, after) = text.rsplit_once("number: \"1\"").with_context(|| text.clone())?;
    let tampered = format!("{before}number: \"9\"{after}");
    std::fs::write(&file, tampered)?;
    let refused = run_expecting(installation.cluster, 1, &["import", "-f", path]).await?.stderr;
    let names = "/shop-1 does not have the content that was sealed as part of version 1 of config";
    ensure!(refused.contains(&format!("ConfigMap {}{names}", shop.space.name)), "{refused}");
    ensure!(shop.space.api::<VersionedConfig>().get_opt("shop").await?.is_none(), "nothing was created");
    Ok(())
}

#[tokio::test]
async fn who_may_only_edit_can_neither_switch_nudge_off_nor_write_a_status() -> Result<()> {
    let Some((installation, _)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    let shop = Shop::new(installation, "rights", &at_once()).await?;
    let verbs = ["get", "list", "watch", "create", "update", "patch", "delete", "override"];
    let rules = json!([
        {"apiGroups": ["nudge.dev"], "resources": ["versionedconfigs"], "verbs": verbs},
        {"apiGroups": [""], "resources": ["configmaps", "secrets"], "verbs": ["*"]},
    ]);
    shop.space.grant("like-edit", rules, user("eve")).await?;
    let eve = installation.cluster.client(&installation.cluster.user("eve", &[])).await?;
    let configs: Api<VersionedConfig> = Api::namespaced(eve, &shop.space.name);
    let annotate = |value: Value| Patch::Merge(json!({"metadata": {"annotations": {"nudge.dev/importing": value}}}));
    let allowed = async || configs.get("shop").await.ok().map(drop);
    eventually(WAIT_TIMEOUT, "her rights are known", allowed).await?;
    let params = PatchParams::default();
    let refused = |result: kube::Result<VersionedConfig>, part: &str| {
        let message = result.err().map(|error| error.to_string()).unwrap_or_default();
        ensure!(message.contains(part), "{message}");
        Ok(())
    };
    let import = "this needs the right to import VersionedConfig";
    refused(configs.patch("shop", &params, &annotate(json!("now"))).await, import)?;
    let mut other = VersionedConfig::new("other", VersionedConfigSpec::default());
    other.metadata.annotations = Some([("nudge.dev/importing".to_owned(), String::new())].into());
    refused(configs.create(&PostParams::default(), &other).await, import)?;
    let admins = shop.space.api::<VersionedConfig>();
    admins.patch("shop", &params, &annotate(json!("now"))).await?;
    refused(configs.patch("shop", &params, &annotate(Value::Null)).await, import)?;
    // While it is being imported, too, only who may write a status writes one.
    let status = Patch::Merge(json!({"status": {"currentVersion": "evil"}}));
    refused(configs.patch_status("shop", &params, &status).await, "versionedconfigs/status")?;
    let stays = admins.get("shop").await?;
    ensure!(stays.status.context("no status")?.current_version.as_deref() == Some("1"));
    Ok(())
}

#[tokio::test]
async fn on_top_of_an_older_etcd_an_import_refuses_until_it_is_asked_to_overwrite() -> Result<()> {
    let Some(mut cluster) = Cluster::installed(&Options::default()).await? else { return Ok(()) };
    let addresses = addresses()?;
    let (mut shop, mut replica);
    {
        let installation = Installation { cluster: &cluster };
        replica = control_plane(&installation, addresses).await?;
        shop = Shop::new(&installation, "older", &at_once()).await?;
        shop.populate(addresses.1, 1).await?;
    }
    cluster.back_up_etcd().await?;
    let create = async || shop.make("2").await.ok();
    eventually(WAIT_TIMEOUT, "the API server has found etcd again", create).await?;
    shop.set(json!({"version": "2"})).await?;
    shop.until("2 is current", at_two).await?;
    let (_folder, file) = export(&cluster, &[]).await?;
    replica.process.stop()?;
    cluster.restore_etcd().await?;
    let installation = Installation { cluster: &cluster };
    let options = ReplicaOptions { addresses: Some(addresses), ..ReplicaOptions::quick() };
    let _replica = installation.replica(&options).await?;

    // A rollout is missing: the status says 1, and the pod has 2, which it keeps.
    let status = shop.until("the older status", |_| true).await?;
    ensure!(status.current_version.as_deref() == Some("1") && status.version("2").is_none(), "{status:#?}");
    let file = file.to_str().context("a path")?;
    let refused = run_expecting(&cluster, 1, &["import", "-f", file]).await?;
    let differs = "exists and differs: spec; status.currentVersion: 2 in the export, 1 in the cluster; versions that are missing \
                   or differ: 2";
    ensure!(refused.stdout.contains(differs) && refused.stderr.contains("nothing was changed"), "{refused:?}");
    ensure!(shop.space.api::<ConfigMap>().get_opt("shop-2").await?.is_none());
    // Who requests it gets the state of the export.
    let annotation = Patch::Merge(json!({"metadata": {"annotations": {"nudge.dev/importing": "over"}}}));
    shop.space.api::<VersionedConfig>().patch("shop", &PatchParams::default(), &annotation).await?;
    run_expecting(&cluster, 0, &["import", "-f", file]).await?;
    shop.until("2 is current again", |status| at_two(status) && status.pods.summary == "1/1").await?;
    ensure!(shop.notified_versions() == [["2"]], "{:?}", shop.notified_versions());
    Ok(())
}

#[tokio::test]
async fn a_source_has_its_config_again_unless_somebody_else_held_it() -> Result<()> {
    let Some((installation, _)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    installation.apply_sources().await?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("nudge.yaml");
    let file = file.to_str().context("a path")?;
    let shop = Shop::new(installation, "sourced", &at_once()).await?;
    let (configs, sources) = (shop.space.api::<VersionedConfig>(), shop.space.api::<ConfigSource>());
    let source =
        json!({"metadata": {"name": "shop"}, "spec": {"from": {"git": {"url": "https://git.example.com/upstream"}}}});
    shop.space.create_object::<ConfigSource>(source).await?;
    for held in [true, false] {
        let config = configs.get("shop").await?;
        ensure!(holder(&config).is_some() == held, "{:#?}", config.metadata.managed_fields);
        run_expecting(installation.cluster, 0, &["export", "-n", &shop.space.name, "-f", file]).await?;
        lose(&shop.space).await?;
        sources.delete("shop", &DeleteParams::default()).await?;
        run_expecting(installation.cluster, 0, &["import", "-f", file]).await?;
        let config = configs.get("shop").await?;
        ensure!(holder(&config).is_some() == held, "{:#?}", config.metadata.managed_fields);
        ensure!(config.annotations().get("nudge.dev/importing").is_none() && sources.get_opt("shop").await?.is_some());
        // As `kubectl nudge source resume` does.
        run_expecting(installation.cluster, 0, &["source", "resume", "shop", "-n", &shop.space.name]).await?;
        shop.until("it is as it was", |status| status.state() == ConfigState::Current).await?;
    }
    Ok(())
}

/// Returns the manager other than sources that set `spec.version`.
fn holder(config: &VersionedConfig) -> Option<&str> {
    let entries = config.metadata.managed_fields.iter().flatten();
    let mut others = entries.filter(|entry| entry.manager.as_deref() != Some("nudge-sources"));
    let holds = others
        .find(|entry| entry.fields_v1.as_ref().is_some_and(|fields| fields.0.pointer("/f:spec/f:version").is_some()));
    holds.and_then(|entry| entry.manager.as_deref())
}
