//! Injected pods on a real API server: it accepts them, and a second injection of the stored pods changes nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use k8s_openapi::api::core::v1::{LimitRange, LimitRangeItem, Pod};
use kube::Api;
use kube::api::{ApiResource, DynamicObject, PostParams};
use nudge_api::PartKind;
use nudge_core::baseline::BaselineVerdict;
use nudge_core::injection::{
    AgentDefaults, Features, InjectionFacts, InjectionSettings, MountedPart, ResolvedConfig, UnknownKeys, inject, read,
};
use nudge_protocol::ConfigName;
use nudge_tests::cluster::{TestNamespace, Version};
use nudge_tests::{Cluster, eventually};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(30);

fn settings() -> InjectionSettings {
    InjectionSettings {
        agent_image: "example.com/nudge-agent:1".to_owned(),
        agent_kill_image: "example.com/nudge-agent-kill:1".to_owned(),
        image_pull_policy: Some("IfNotPresent".to_owned()),
        image_pull_secrets: vec!["pull".to_owned()],
        hub: "https://nudge-hub.nudge-system.svc".to_owned(),
        foreign_containers: Vec::new(),
        foreign_containers_allowed: false,
        agent_defaults: AgentDefaults::default(),
        unknown_keys: UnknownKeys::Refuse,
    }
}

fn facts(features: Features) -> Result<InjectionFacts> {
    let part = |kind, name: &str, part| MountedPart { kind, name: name.to_owned(), part, digest: None };
    let parts = vec![part(PartKind::ConfigMap, "shop-1.0.0", 1), part(PartKind::Secret, "shop-keys-1.0.0", 2)];
    let shop = ResolvedConfig { version: Some("1.0.0".to_owned()), parts, ..ResolvedConfig::default() };
    Ok(InjectionFacts {
        features,
        hub_ca: "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n".to_owned(),
        configs: [(ConfigName::new("shop")?, shop)].into(),
        config_maps: [("web".to_owned(), BaselineVerdict::Unwanted)].into(),
        secrets: BTreeMap::new(),
        limits: Vec::new(),
    })
}

/// A pod that opts in with these annotations, and this specification in addition to the fields that the test server
/// needs.
fn pod(name: &str, annotations: &Value, spec: &Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": {"nudge.dev/inject": "true"}},
        // Old servers refuse a pod whose service account has no token in a Secret yet.
        "spec": {"serviceAccountName": "app", "automountServiceAccountToken": false, "containers": [{"name": "app", "image": "app"}]},
    });
    let annotations = annotations.as_object().into_iter().flatten();
    for (name, value) in annotations {
        pod["metadata"]["annotations"][format!("nudge.dev/{name}")] = value.clone();
    }
    if pod["metadata"]["annotations"]["nudge.dev/configs"].is_null() {
        pod["metadata"]["annotations"]["nudge.dev/configs"] = json!("shop");
    }
    for (key, value) in spec.as_object().into_iter().flatten() {
        pod["spec"][key] = value.clone();
    }
    pod
}

/// The pod after injection, and the warnings.
fn injected(pod: &Value, facts: &InjectionFacts) -> Result<(Value, Vec<String>)> {
    let request = read(pod)?.context("the pod does not opt in")?;
    let injection = inject(pod, &request, facts, &settings())?;
    let mut injected = pod.clone();
    json_patch::patch(&mut injected, &injection.patch)?;
    Ok((injected, injection.warnings))
}

/// Asks as it is: types would drop fields that are newer than they are.
async fn create(space: &TestNamespace, pod: &Value, dry_run: bool) -> Result<Value, kube::Error> {
    let pods: Api<DynamicObject> =
        Api::namespaced_with(space.client.clone(), &space.name, &ApiResource::erase::<Pod>(&()));
    let object: DynamicObject = serde_json::from_value(pod.clone()).map_err(kube::Error::SerdeError)?;
    let stored = pods.create(&PostParams { dry_run, ..PostParams::default() }, &object).await?;
    serde_json::to_value(stored).map_err(kube::Error::SerdeError)
}

/// Injects and creates a pod. Checks that a second injection changes nothing, and that the pod's class is the same as
/// without injection.
async fn accepted(space: &TestNamespace, pod: &Value, facts: &InjectionFacts) -> Result<Value> {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let plain = create(space, pod, true).await.with_context(|| format!("{name} without an agent"))?;
    let (injected, _) = injected(pod, facts).with_context(|| name.clone())?;
    let stored = create(space, &injected, false).await.with_context(|| name.clone())?;
    ensure!(
        stored["status"]["qosClass"].is_string() && stored["status"]["qosClass"] == plain["status"]["qosClass"],
        "{name} was {} and is {}",
        plain["status"]["qosClass"],
        stored["status"]["qosClass"]
    );
    let request = read(&stored)?.context("the stored pod does not opt in")?;
    let again = inject(&stored, &request, facts, &settings())?;
    ensure!(again.patch.0.is_empty(), "{name} is to be changed again: {}", serde_json::to_string_pretty(&again.patch)?);
    Ok(stored)
}

fn features(version: Version) -> Features {
    Features { native_sidecars: version >= (Version { major: 1, minor: 29 }), ..Features::default() }
}

/// Pods of all sorts: name, annotations, specification.
fn sorts() -> Vec<Value> {
    let user = |uid: i64| json!({"runAsUser": uid});
    let full = json!({"limits": {"cpu": "500m", "memory": "128Mi"}});
    let cpu = json!({"limits": {"cpu": "500m"}, "requests": {"cpu": "10m", "memory": "64Mi"}});
    vec![
        pod("plain", &json!({}), &json!({})),
        pod("same-user", &json!({"notify": "SIGHUP", "ack": "fetched"}), &json!({"securityContext": user(1000)})),
        pod("root", &json!({"notify.app": "SIGUSR1"}), &json!({"securityContext": user(0)})),
        pod("unknown-user", &json!({"notify": "SIGUSR2"}), &json!({})),
        pod(
            "guaranteed",
            &json!({}),
            &json!({
                "containers": [{"name": "app", "image": "app", "resources": full}],
                "initContainers": [{"name": "setup", "image": "app", "resources": full}],
            }),
        ),
        pod(
            "burstable",
            &json!({"agent-cpu": "0.1", "agent-memory": "65536Ki"}),
            &json!({"containers": [{"name": "app", "image": "app", "resources": cpu}]}),
        ),
        pod("files", &json!({"mount-path": "/etc/shop", "agent-start-timeout": "2m"}), &json!({})),
        pod(
            "hooks",
            &json!({"webhook.app": "http://127.0.0.1:8080/changed?$(x)", "webhook.web": "http://10.0.0.9:80/", "webhook-allow": "10.0.0.9:80, [fd00::9]:80"}),
            &json!({"containers": [{"name": "app", "image": "app"}, {"name": "web", "image": "web"}]}),
        ),
        pod(
            "on-node",
            &json!({"agent-port": "9400", "notify": "SIGHUP", "agent-run-as-user": "1000"}),
            &json!({"hostNetwork": true, "hostPID": true, "dnsPolicy": "ClusterFirstWithHostNet"}),
        ),
        pod(
            "init",
            &json!({"containers": "app"}),
            &json!({
                "initContainers": [{"name": "setup", "image": "app", "env": [{"name": "A", "value": "1"}]}],
                "containers": [{
                    "name": "app",
                    "image": "app",
                    "env": [{"name": "URL", "value": "$(MY_CONFIG_ENDPOINT)"}, {"name": "MY_CONFIG_CERT", "value": "/mine"}],
                    "volumeMounts": [{"name": "own", "mountPath": "/own"}],
                }],
                "volumes": [{"name": "own", "emptyDir": {}}],
                "imagePullSecrets": [{"name": "mine"}],
            }),
        ),
        pod("once", &json!({}), &json!({"restartPolicy": "Never"})),
        pod("late", &json!({"configs": "shop,later"}), &json!({})),
    ]
}

async fn space(cluster: &Cluster, purpose: &str, labels: &[(&str, &str)]) -> Result<TestNamespace> {
    let space = cluster.space_with(purpose, labels).await?;
    space.service_account("app").await?;
    Ok(space)
}

#[tokio::test]
async fn pods_of_all_sorts_are_taken_and_need_nothing_more() -> Result<()> {
    let Some(cluster) = Cluster::shared().await? else { return Ok(()) };
    let space = space(cluster, "sorts", &[]).await?;
    let facts = facts(features(cluster.version()))?;
    for pod in sorts() {
        let stored = accepted(&space, &pod, &facts).await?;
        let list = if facts.features.native_sidecars { "initContainers" } else { "containers" };
        let agent = &stored["spec"][list][0];
        ensure!(agent["name"] == "nudge-agent", "the agent does not stand first: {stored}");
        ensure!(agent["securityContext"]["runAsNonRoot"] == true, "{agent}");
        ensure!(stored["metadata"]["labels"]["nudge.dev/agent"].is_string(), "{stored}");
    }
    Ok(())
}

#[tokio::test]
async fn legacy_pods_are_taken_by_every_server() -> Result<()> {
    let Some(cluster) = Cluster::shared().await? else { return Ok(()) };
    let space = space(cluster, "legacy", &[]).await?;
    let facts = facts(Features::default())?;
    for pod in sorts() {
        let stored = accepted(&space, &pod, &facts).await?;
        ensure!(stored["spec"]["containers"][0]["name"] == "nudge-agent", "the agent does not stand first: {stored}");
    }
    Ok(())
}

#[tokio::test]
async fn env_files_are_taken_by_servers_that_know_them() -> Result<()> {
    let Some(cluster) = Cluster::shared().await? else { return Ok(()) };
    if !cluster.has(35, "an env file") {
        return Ok(());
    }
    let space = space(cluster, "env-files", &[]).await?;
    let facts = facts(Features { env_files: true, ipv6: true, ..features(cluster.version()) })?;
    for pod in sorts() {
        let stored = accepted(&space, &pod, &facts).await?;
        let text = stored.to_string();
        ensure!(text.contains("fileKeyRef") && !text.contains("NUDGE_POD_IP\""), "{text}");
    }
    Ok(())
}

#[tokio::test]
async fn the_servers_own_token_is_not_mounted_into_the_agent() -> Result<()> {
    let Some(cluster) = Cluster::shared().await? else { return Ok(()) };
    if !cluster.has(29, "a pod whose service account has no Secret") {
        return Ok(());
    }
    let space = space(cluster, "tokens", &[]).await?;
    let pod = pod("plain", &json!({}), &json!({"automountServiceAccountToken": true}));
    let stored = accepted(&space, &pod, &facts(features(cluster.version()))?).await?;
    let mounts = |container: &Value| container["volumeMounts"].to_string();
    ensure!(mounts(&stored["spec"]["containers"][0]).contains("kube-api-access"), "{stored}");
    ensure!(!mounts(&stored["spec"]["initContainers"][0]).contains("kube-api-access"), "{stored}");
    Ok(())
}

#[tokio::test]
async fn pod_security_takes_what_it_should() -> Result<()> {
    let Some(cluster) = Cluster::shared().await? else { return Ok(()) };
    if !cluster.has(29, "Pod Security with native sidecars") {
        return Ok(());
    }
    let enforced = |level| [("pod-security.kubernetes.io/enforce", level)];
    let restricted = space(cluster, "restricted", &enforced("restricted")).await?;
    let baseline = space(cluster, "baseline", &enforced("baseline")).await?;
    let facts = facts(features(cluster.version()))?;
    let context = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
    let strict = |uid: Option<i64>| {
        let mut pod = json!({"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}});
        if let Some(uid) = uid {
            pod["runAsUser"] = json!(uid);
        }
        json!({"securityContext": pod, "containers": [{"name": "app", "image": "app", "securityContext": context}]})
    };
    let signal = json!({"notify": "SIGHUP", "mount-path": "/etc/shop"});
    let own = json!({"notify": "SIGHUP", "agent-run-as-user": "1000"});
    for (name, annotations, spec) in [
        ("not-notified", &json!({}), strict(None)),
        ("same-user", &signal, strict(Some(1000))),
        ("own-user", &own, strict(None)),
    ] {
        let pod = pod(name, annotations, &spec);
        accepted(&restricted, &pod, &facts).await?;
        accepted(&baseline, &pod, &facts).await?;
    }
    let unknown = pod("unknown-user", &signal, &strict(None));
    accepted(&baseline, &unknown, &facts).await?;
    accepted(&baseline, &pod("root", &signal, &json!({"securityContext": {"runAsUser": 0}})), &facts).await?;
    let (kill, warnings) = injected(&unknown, &facts)?;
    ensure!(warnings.iter().any(|warning| warning.contains("restricted")), "{warnings:?}");
    let refusal = create(&restricted, &kill, true).await.err().context("restricted takes the capability KILL")?;
    ensure!(refusal.to_string().contains("capabilities") && refusal.to_string().contains("KILL"), "{refusal}");
    Ok(())
}

#[tokio::test]
async fn limits_of_the_namespace_are_kept() -> Result<()> {
    let Some(cluster) = Cluster::shared().await? else { return Ok(()) };
    let space = space(cluster, "limits", &[]).await?;
    let limits = json!([
        {
            "type": "Container",
            "min": {"memory": "64Mi", "cpu": "10m"},
            "max": {"cpu": "2"},
            "maxLimitRequestRatio": {"cpu": "4"},
            "defaultRequest": {"cpu": "500m"},
            "default": {"cpu": "1", "memory": "128Mi"},
        },
        {"type": "Pod", "max": {"memory": "256Mi"}},
    ]);
    space.create_object::<LimitRange>(json!({"metadata": {"name": "limits"}, "spec": {"limits": limits}})).await?;
    let mut facts = facts(features(cluster.version()))?;
    let amounts = |cpu: &str, memory: &str| json!({"requests": {"cpu": cpu, "memory": memory}, "limits": {"cpu": cpu, "memory": memory}});
    let sized = |name: &str, resources: &Value| {
        let spec = json!({"containers": [{"name": "app", "image": "app", "resources": resources}]});
        pod(name, &json!({}), &spec)
    };
    // The server learns of the limits a moment later.
    let small = sized("small", &amounts("100m", "32Mi"));
    let works = async || create(&space, &small, true).await.err().map(drop);
    eventually(SOON, "the LimitRange works", works).await?;

    let (unfit, _) = injected(
        &sized("unfit", &json!({"requests": {"cpu": "100m"}, "limits": {"cpu": "200m", "memory": "100Mi"}})),
        &facts,
    )?;
    let refusal = create(&space, &unfit, true).await.err().context("limits that nobody knew of were kept")?;
    ensure!(refusal.to_string().contains("minimum memory usage per Container"), "{refusal}");

    facts.limits = serde_json::from_value::<Vec<LimitRangeItem>>(limits)?;
    for (name, resources) in [
        ("guaranteed", amounts("100m", "100Mi")),
        ("burstable", json!({"requests": {"cpu": "100m"}, "limits": {"cpu": "200m", "memory": "100Mi"}})),
        ("cpu-only", json!({"requests": {"cpu": "100m"}, "limits": {"cpu": "200m"}})),
        // The defaults that the server gives a pod without resources, before it asks.
        ("given", json!({"requests": {"cpu": "500m", "memory": "128Mi"}, "limits": {"cpu": "1", "memory": "128Mi"}})),
    ] {
        let mut pod = sized(name, &resources);
        // As the server would show it to a webhook.
        pod["spec"]["containers"] = create(&space, &pod, true).await?["spec"]["containers"].clone();
        accepted(&space, &pod, &facts).await?;
    }
    let large = sized("large", &amounts("100m", "224Mi"));
    let refusal = injected(&large, &facts).err().ok_or_else(|| anyhow!("more than a pod may have was taken"))?;
    ensure!(refusal.to_string().contains("max memory 256Mi for a pod"), "{refusal}");
    Ok(())
}
