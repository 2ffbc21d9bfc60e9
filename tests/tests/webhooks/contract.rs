//! The contract between injector and agent: pods made through the API server with the webhook at work, and started by
//! exactly what is stored.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use kube::api::{DeleteParams, Patch, PatchParams};
use nudge_api::VersionedConfig;
use nudge_protocol::pod::{AGENT_CONTAINER, env as agent_env};
use nudge_protocol::{env, labels};
use nudge_tests::cluster::installation::{at_once, bind, hub_ca};
use nudge_tests::cluster::{Identity, Options, TestNamespace};
use nudge_tests::kubelet::{self, Image};
use nudge_tests::{
    Cluster, FakeHub, HookServer, Installation, Kubelet, Raw, agent::tls, binary, eventually, ports, tools,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpStream;

/// How long something may take that should be there at once, on a busy machine.
const WAIT_TIMEOUT: Duration = Duration::from_mins(1);
/// The user of the agent's images.
const NOBODY: u32 = 65532;

/// Requests the versions as a shell does, by nothing but what every container gets.
const GET: &str = r#"curl --silent --fail --cacert "$MY_CONFIG_CERT" --oauth2-bearer "$(cat "$MY_CONFIG_TOKEN_FILE")" "$MY_CONFIG_ENDPOINT/nudge.configs""#;

/// Makes one version of a config, of one ConfigMap or Secret.
async fn version(space: &TestNamespace, config: &str, version: &str, lives: &str, secret: bool) -> Result<()> {
    let name = format!("{config}-{version}");
    let meta = json!({"name": name, "labels": {labels::CONFIG: config, labels::VERSION: version}});
    let data = json!({config: lives});
    if secret {
        space.create_object::<Secret>(json!({"metadata": meta, "immutable": true, "stringData": data})).await?;
    } else {
        space.create_object::<ConfigMap>(json!({"metadata": meta, "immutable": true, "data": data})).await?;
    }
    Ok(())
}

/// Makes a config and waits until its version is current.
async fn config(space: &TestNamespace, name: &str, current: &str) -> Result<()> {
    space
        .create_object::<VersionedConfig>(
            json!({"metadata": {"name": name}, "spec": {"version": current, "rollout": at_once()}}),
        )
        .await?;
    let api = space.api::<VersionedConfig>();
    let is_current = async || {
        let status = api.get(name).await.ok()?.status?;
        (status.current_version.as_deref() == Some(current)).then_some(())
    };
    eventually(WAIT_TIMEOUT, "the version is current", is_current).await
}

/// Makes another version current.
async fn activate(space: &TestNamespace, config: &str, current: &str) -> Result<()> {
    let patch = Patch::Merge(json!({"spec": {"version": current}}));
    space.api::<VersionedConfig>().patch(config, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Waits until a version is current and nothing moves any more.
async fn wait_until_at_rest(space: &TestNamespace, config: &str, current: &str) -> Result<()> {
    let configs = space.api::<VersionedConfig>();
    eventually(WAIT_TIMEOUT, &format!("{current} is current"), async || {
        let status = configs.get(config).await.ok()?.status?;
        (status.current_version.as_deref() == Some(current) && status.rollout.stage.is_none()).then_some(())
    })
    .await
}

/// Returns an enabled namespace with the configs `shop` 1.0.0 and `keys` 1, each with another version, and a service
/// that is called like us: it gives every pod a variable `NUDGE_PORT`.
async fn space(
    installation: &Installation<'_>,
    purpose: &str,
    secret_keys: bool,
    bound: bool,
) -> Result<TestNamespace> {
    let space = installation.enabled(purpose).await?;
    if bound {
        bind(&space, "nudge-secrets").await?;
    }
    let ports = json!([{"name": "http", "port": 80}]);
    space.create_object::<Service>(json!({"metadata": {"name": "nudge"}, "spec": {"ports": ports}})).await?;
    version(&space, "shop", "1.0.0", "3", false).await?;
    version(&space, "shop", "1.0.1", "5", false).await?;
    version(&space, "keys", "1", "old", secret_keys).await?;
    version(&space, "keys", "2", "new", secret_keys).await?;
    config(&space, "shop", "1.0.0").await?;
    if !secret_keys || bound {
        config(&space, "keys", "1").await?;
    } else {
        space
            .create_object::<VersionedConfig>(
                json!({"metadata": {"name": "keys"}, "spec": {"version": "1", "rollout": at_once()}}),
            )
            .await?;
    }
    Ok(space)
}

/// Returns a pod that opts in, on a port of its own: all pods of these tests have this machine's addresses.
fn pod(name: &str, containers: &Value, annotations: &[(&str, &str)]) -> Result<Value> {
    let mut all = json!({"nudge.dev/configs": "shop,keys", "nudge.dev/agent-port": ports::free()?.to_string()});
    for (annotation, value) in annotations {
        all[format!("nudge.dev/{annotation}")] = json!(value);
    }
    Ok(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": {"nudge.dev/inject": "true"}, "annotations": all},
        // Old servers refuse a pod whose service account has no token in a Secret yet.
        "spec": {"automountServiceAccountToken": false, "restartPolicy": "Never", "containers": containers},
    }))
}

fn app(name: &str, user: u32, signal: &str) -> Value {
    let command = ["/app", "--catch", signal, "--fetch"];
    json!({"name": name, "image": "app", "command": command, "securityContext": {"runAsUser": user}})
}

/// Makes the pod as soon as its namespace is known to the webhook, and what it reads there.
async fn create(space: &TestNamespace, pod: &Value) -> Result<Value> {
    let mut dry = pod.clone();
    let name = pod["metadata"]["name"].as_str().context("no name")?;
    // Nothing is left of these tries but their names.
    let mut count = 0;
    let try_to_create = async || {
        count += 1;
        dry["metadata"]["name"] = json!(format!("{name}-try-{count}"));
        let tried = kubelet::create_dry(&space.client, &space.name, &dry).await.ok()?;
        let bootstrap = variable(&tried, agent_env::BOOTSTRAP_DIR);
        bootstrap.is_some().then_some(())
    };
    eventually(WAIT_TIMEOUT, "pods are injected, with what is current", try_to_create).await?;
    kubelet::create(&space.client, &space.name, pod).await
}

/// Returns a variable of the agent's container.
fn variable(pod: &Value, name: &str) -> Option<String> {
    let lists = ["initContainers", "containers"].into_iter().filter_map(|list| pod["spec"][list].as_array()).flatten();
    let agent = lists.into_iter().find(|container| container["name"] == AGENT_CONTAINER)?;
    let variable = agent["env"].as_array()?.iter().find(|variable| variable["name"] == name)?;
    variable["value"].as_str().map(str::to_owned)
}

/// Returns what the images of these tests hold; the folder has to stay. `None` if that can't be made here.
fn images() -> Result<Option<(BTreeMap<String, Image>, TempDir)>> {
    let folder = tempfile::tempdir()?;
    let program = binary::debug()?.to_owned();
    let Some(kill) = kubelet::with_kill(&program, folder.path())? else { return Ok(None) };
    let release = env!("CARGO_PKG_VERSION");
    let agent = |program| Image { program, path: "/nudge-agent", user: NOBODY };
    let images = BTreeMap::from([
        (format!("nudge-agent:{release}"), agent(program)),
        (format!("nudge-agent-kill:{release}"), agent(kill)),
        ("app".to_owned(), Image { program: env!("CARGO_BIN_EXE_app").into(), path: "/app", user: 0 }),
    ]);
    Ok(Some((images, folder)))
}

/// Makes the pod and starts it. `None` if that can't be done here.
async fn start(space: &TestNamespace, pod: &Value) -> Result<Option<(Kubelet, Value, TempDir)>> {
    let stored = create(space, pod).await?;
    let Some((images, folder)) = images()? else { return Ok(None) };
    let Some(mut kubelet) = Kubelet::take(space, &stored, images).await? else { return Ok(None) };
    kubelet.start().await?;
    Ok(Some((kubelet, stored, folder)))
}

/// Returns the files that containers get of the agent's identity.
fn identity(kubelet: &Kubelet) -> Result<[Vec<u8>; 2]> {
    let read = |name: &str| std::fs::read(kubelet.volume("nudge-share").join(name));
    Ok([read("token")?, read("ca.crt")?])
}

#[tokio::test]
async fn nobody_in_the_namespace_decides_whom_the_agent_trusts() -> Result<()> {
    let Some((installation, _)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    let space = space(installation, "trusting", false, false).await?;
    // What claims to be the hub's authority, and any user of the namespace may write.
    let forged = FakeHub::start()?.ca().to_owned();
    let map = json!({"metadata": {"name": "nudge-hub-ca"}, "immutable": true, "data": {"ca.crt": forged}});
    space.create_object::<ConfigMap>(map).await?;
    let mut pod = pod("web", &json!([app("app", 1000, "SIGUSR1")]), &[("notify.app", "SIGUSR1")])?;
    // Mounted where the agent reads its token, too: in the user's container.
    pod["spec"]["volumes"] = json!([{"name": "hub-ca", "configMap": {"name": "nudge-hub-ca"}}]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "hub-ca", "mountPath": "/run/hub-ca"}]);
    let stored = create(&space, &pod).await?;

    assert_eq!(variable(&stored, agent_env::HUB_CA), Some(hub_ca(&space).await?));
    let lists =
        ["initContainers", "containers"].into_iter().filter_map(|list| stored["spec"][list].as_array()).flatten();
    let agent = lists.into_iter().find(|container| container["name"] == AGENT_CONTAINER).context("no agent")?;
    let volumes = stored["spec"]["volumes"].as_array().context("no volumes")?;
    for mount in agent["volumeMounts"].as_array().context("no mounts")? {
        let volume = volumes.iter().find(|volume| volume["name"] == mount["name"]).context("no volume")?;
        ensure!(!volume.to_string().contains("nudge-hub-ca"), "{volume}");
    }

    let Some((images, _folder)) = images()? else { return Ok(()) };
    let Some(mut kubelet) = Kubelet::take(&space, &stored, images).await? else { return Ok(()) };
    kubelet.start().await?;
    kubelet.logs("app", "ready").await?;
    activate(&space, "shop", "1.0.1").await?;
    kubelet.logs("app", "SIGUSR1 shop=1.0.1,keys=1").await?;
    wait_until_at_rest(&space, "shop", "1.0.1").await?;
    space.api::<ConfigMap>().delete("nudge-hub-ca", &DeleteParams::default()).await?;
    activate(&space, "keys", "2").await?;
    kubelet.logs("app", "SIGUSR1 shop=1.0.1,keys=2").await
}

#[tokio::test]
async fn every_container_gets_its_own_signal_also_after_it_or_the_agent_has_crashed() -> Result<()> {
    let Some((installation, _)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    let space = space(installation, "signals", false, false).await?;
    let containers = json!([app("app", 1000, "SIGUSR1"), app("web", 1001, "SIGUSR2")]);
    let pod = pod("web", &containers, &[("notify.app", "SIGUSR1"), ("notify.web", "SIGUSR2")])?;
    let Some((mut kubelet, stored, _images)) = start(&space, &pod).await? else { return Ok(()) };

    assert_eq!(stored["spec"]["shareProcessNamespace"], true);
    for name in ["app", "web"] {
        kubelet.logs(name, "ready").await?;
        let variables = kubelet.variables(name)?;
        assert_eq!(variables[env::CONTAINER], name);
        // The service `nudge` is seen, and does no harm.
        assert!(variables["NUDGE_PORT"].starts_with("tcp://"), "{variables:?}");
        // From 1.35 on the token comes by the env file, before by its file alone; it never stands in the specification.
        let by_variable = variables.get(env::TOKEN).map(String::as_bytes);
        let token = std::fs::read(kubelet.volume("nudge-share").join("token"))?;
        assert_eq!(by_variable.is_some(), installation.cluster.version().minor >= 35);
        assert!(by_variable.is_none_or(|variable| variable == token));
        ensure!(!stored.to_string().contains(std::str::from_utf8(&token)?), "the token stands in the specification");
    }

    activate(&space, "shop", "1.0.1").await?;
    kubelet.logs("app", "SIGUSR1 shop=1.0.1,keys=1").await?;
    kubelet.logs("web", "SIGUSR2 shop=1.0.1,keys=1").await?;

    // A container that restarts while a version is on trial would speak against it.
    wait_until_at_rest(&space, "shop", "1.0.1").await?;
    let before = kubelet.id("web")?.to_owned();
    kubelet.crash("web").await?;
    assert_ne!(kubelet.id("web")?, before, "a container that starts again is another one");
    kubelet.logs("web", "ready").await?;
    activate(&space, "keys", "2").await?;
    kubelet.logs("app", "SIGUSR1 shop=1.0.1,keys=2").await?;
    kubelet.logs("web", "SIGUSR2 shop=1.0.1,keys=2").await?;

    wait_until_at_rest(&space, "keys", "2").await?;
    let before = identity(&kubelet)?;
    kubelet.crash(AGENT_CONTAINER).await?;
    assert_eq!(identity(&kubelet)?, before, "token and certificate stay for the pod's life");
    activate(&space, "shop", "1.0.0").await?;
    kubelet.logs("app", "SIGUSR1 shop=1.0.0,keys=2").await?;
    kubelet.logs("web", "SIGUSR2 shop=1.0.0,keys=2").await?;
    assert_eq!(
        kubelet.log("app").matches("SIGUSR1").count(),
        3,
        "each change is notified once: {}",
        kubelet.log("app")
    );
    assert_eq!(kubelet.log("web").matches("SIGUSR2").count(), 2, "{}", kubelet.log("web"));
    Ok(())
}

#[tokio::test]
async fn a_webhook_is_posted_when_the_files_are_there_and_needs_no_capability() -> Result<()> {
    let Some((installation, _)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    let space = space(installation, "files", false, false).await?;
    let server = HookServer::willing().await?;
    let containers = json!([{"name": "app", "image": "app", "securityContext": {"runAsUser": 1000}}]);
    let annotations = [("notify.app", "webhook"), ("webhook.app", server.url()), ("mount-path", "/etc/shop")];
    let pod = pod("web", &containers, &annotations)?;
    let Some((mut kubelet, stored, _images)) = start(&space, &pod).await? else { return Ok(()) };

    assert!(stored["spec"]["shareProcessNamespace"].is_null(), "nobody requests a signal");
    let (code, found) = kubelet.exec("app", &["cat", "/etc/shop/shop", "/etc/shop/keys"]).await?;
    assert_eq!((code, found.as_str()), (Some(0), "3old"));
    activate(&space, "shop", "1.0.1").await?;
    let notified = server.notified_of("1.0.1", WAIT_TIMEOUT).await.context(kubelet.log(AGENT_CONTAINER))?;
    assert!(notified.event()?.data.changed.contains(&"shop".to_owned()));
    let (_, found) = kubelet.exec("app", &["cat", "/etc/shop/shop"]).await?;
    assert_eq!(found, "5");
    // The containers can read their files, but not write them, and get nothing that belongs to the agent alone.
    for (words, allowed) in [
        (&["cat", "/run/nudge/token", "/run/nudge/ca.crt", "/run/nudge/env"][..], true),
        (&["touch", "/run/nudge/token"], false),
        (&["touch", "/etc/shop/shop"], false),
        (&["ls", "/run/nudge/state"], false),
        (&["ls", "/var/run/secrets/kubernetes.io/serviceaccount"], false),
    ] {
        let (code, said) = kubelet.exec("app", words).await?;
        assert_eq!(code == Some(0), allowed, "{words:?}: {said}");
    }
    // Nor does the agent's own container write anything but its volumes.
    let (code, said) = kubelet.exec(AGENT_CONTAINER, &["touch", "/root-is-read-only"]).await?;
    assert_ne!(code, Some(0), "{said}");
    Ok(())
}

#[tokio::test]
async fn pods_start_without_the_hub_and_hold_secrets_only_where_that_is_allowed() -> Result<()> {
    if tools::find("curl")?.is_none() {
        return Ok(());
    }
    let Some(cluster) = Cluster::installed(&Options::default()).await? else { return Ok(()) };
    let installation = Installation { cluster: &cluster };
    let mut replica = installation.guarded_replica().await?;
    let mut spaces = Vec::new();
    for (purpose, bound) in [("bound", true), ("unbound", false)] {
        let space = space(&installation, purpose, true, bound).await?;
        let pod = pod("web", &json!([app("app", 1000, "SIGUSR1")]), &[("notify.app", "SIGUSR1")])?;
        let stored = create(&space, &pod).await?;
        spaces.push((space, stored, bound));
    }
    replica.process.kill()?;

    for (space, stored, bound) in &spaces {
        let secrets = stored["spec"]["volumes"].as_array().context("no volumes")?;
        let secrets: Vec<&Value> = secrets.iter().filter(|volume| volume["secret"]["secretName"] == "keys-1").collect();
        assert_eq!(secrets.len(), usize::from(*bound), "{stored}");
        let Some((images, _folder)) = images()? else { return Ok(()) };
        let Some(mut kubelet) = Kubelet::take(space, stored, images).await? else { return Ok(()) };
        kubelet.start().await?;
        kubelet.logs("app", "ready").await?;
        // As the application sees it: by its own variables, token and trust anchor.
        let (code, found) = kubelet.exec("app", &["sh", "-c", GET]).await?;
        let served = if *bound { "shop=1.0.0,keys=1" } else { "shop=1.0.0" };
        assert_eq!((code, found.trim()), (Some(0), served), "{}", kubelet.log(AGENT_CONTAINER));
    }
    Ok(())
}

#[tokio::test]
async fn an_agent_that_is_an_ordinary_container_ends_when_the_others_have() -> Result<()> {
    let Some((installation, _)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    if installation.cluster.version().minor >= 29 {
        tools::skipped("with native sidecars it is the kubelet that ends the agent");
        return Ok(());
    }
    let space = space(installation, "ends", false, false).await?;
    let containers = json!([app("app", 1000, "SIGUSR1"), app("web", 1000, "SIGUSR1")]);
    let pod = pod("web", &containers, &[("notify", "SIGUSR1")])?;
    let Some((mut kubelet, stored, _images)) = start(&space, &pod).await? else { return Ok(()) };
    assert_eq!(stored["spec"]["containers"][0]["name"], AGENT_CONTAINER);
    kubelet.stop("app").await?;
    activate(&space, "shop", "1.0.1").await?;
    kubelet.logs("web", "SIGUSR1 shop=1.0.1,keys=1").await?;
    kubelet.stop("web").await?;
    assert_eq!(kubelet.wait_for_end(AGENT_CONTAINER).await?, Some(0), "{}", kubelet.log(AGENT_CONTAINER));
    Ok(())
}

/// Kubernetes lets an ephemeral container mount what the pod has. So it is the pod, for the hub too, and it is no more
/// than the pod.
#[tokio::test]
async fn an_ephemeral_container_reaches_what_its_pod_has_and_nothing_else() -> Result<()> {
    let Some((installation, replica)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    if !installation.cluster.has(25, "ephemeral containers") {
        return Ok(());
    }
    let space = space(installation, "debugged", false, false).await?;
    version(&space, "other", "1", "foreign", false).await?;
    config(&space, "other", "1").await?;
    let pod = pod("web", &json!([app("app", 1000, "SIGUSR1")]), &[("notify.app", "SIGUSR1")])?;
    let Some((mut kubelet, _, _images)) = start(&space, &pod).await? else { return Ok(()) };
    kubelet.logs("app", "ready").await?;
    // Both have the agent's own user, and see its processes.
    let security = json!({"runAsUser": 1000});
    let command = json!(["/app", "--catch", "SIGUSR1"]);
    let beside = json!({"name": "beside", "image": "app", "command": command, "securityContext": security});
    let mut mounted = beside.clone();
    mounted["name"] = json!("mounted");
    mounted["volumeMounts"] =
        json!([{"name": "nudge-hub", "mountPath": "/hub"}, {"name": "nudge-state", "mountPath": "/state"}]);
    let mut root = beside.clone();
    root["name"] = json!("root");
    root["securityContext"] = json!({"runAsUser": 0});
    for container in [&beside, &root, &mounted] {
        kubelet.debug(container).await?;
    }
    kubelet.logs("beside", "ready").await?;

    // Without a mount of its own, neither the agent's memory nor its files.
    let agent = format!("/proc/{}", kubelet.pid(AGENT_CONTAINER)?);
    for name in ["beside", "root"] {
        // Root lists the numbers of open files, and not what they are.
        for (read, part) in [("cat", "environ"), ("cat", "maps"), ("ls", "root/"), ("ls", "cwd/"), ("readlink", "fd/1")]
        {
            let (own, _) = kubelet.exec(name, &[read, &format!("/proc/self/{part}")]).await?;
            let (code, said) = kubelet.exec(name, &[read, &format!("{agent}/{part}")]).await?;
            ensure!(own == Some(0) && code != Some(0), "{name} {part}: {own:?} and {code:?}, {said}");
        }
        for folder in ["/run/nudge/state", "/var/run/secrets/kubernetes.io/serviceaccount"] {
            let (code, said) = kubelet.exec(name, &["ls", folder]).await?;
            ensure!(code != Some(0), "{name} {folder}: {said}");
        }
    }

    // With one, all that the volumes hold: key and last good contents, and the token.
    let (code, files) = kubelet.exec("mounted", &["ls", "/state"]).await?;
    let expected = ["ca.key", "last-good"];
    ensure!(code == Some(0) && expected.iter().all(|file| files.lines().any(|line| line == *file)), "{files}");
    let (code, token) = kubelet.exec("mounted", &["cat", "/hub/token"]).await?;
    ensure!(code == Some(0), "{token}");
    // The token is good for the hub alone, and there for this pod's configs.
    let folder = tempfile::tempdir()?;
    let authority = folder.path().join("ca.crt");
    std::fs::write(&authority, hub_ca(&space).await?)?;
    let client = tls::trusting(&authority)?;
    let mut raw = Raw::over(TcpStream::connect(replica.hub).await?, replica.hub.ip(), &client).await?;
    let body = json!({"configs": [{"name": "other", "revision": 1, "version": "1"}]}).to_string();
    let (token, length) = (token.trim(), body.len());
    let head =
        format!("POST /v1/poll HTTP/1.1\r\nhost: hub\r\nauthorization: Bearer {token}\r\ncontent-length: {length}");
    raw.send(format!("{head}\r\n\r\n{body}")).await?;
    let reply = raw.reply().await?;
    let text = String::from_utf8_lossy(&reply.body);
    ensure!(reply.status == 200 && text.contains("\"shop\"") && text.contains("\"keys\""), "{text}");
    ensure!(!text.contains("other") && !text.contains("foreign"), "{text}");
    let account = installation.cluster.client(&Identity::Token(token)).await?;
    let refused = account.apiserver_version().await.err().context("the API server takes the token")?;
    ensure!(refused.to_string().contains("Unauthorized"), "{refused}");

    // It is no application: nobody signals it, and its end is held against no version.
    activate(&space, "shop", "1.0.1").await?;
    kubelet.logs("app", "SIGUSR1 shop=1.0.1,keys=1").await?;
    kubelet.stop("mounted").await?;
    wait_until_at_rest(&space, "shop", "1.0.1").await?;
    ensure!(!kubelet.log("beside").contains("SIGUSR1"), "{}", kubelet.log("beside"));
    Ok(())
}
