//! Every right of the control plane and the call that uses it: a process for each role, with the account of
//! `deploy/base` for it, does all that Nudge does. The API server's audit log then has every right that was given, and
//! no refusal. deploy/README.md has the same table.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Pod as PodObject, Secret};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use nudge_api::{ConfigSource, RolloutAnalysis, RolloutPolicy, VersionApproval, VersionedConfig};
use nudge_tests::cluster::analysis::may_send;
use nudge_tests::cluster::installation::{
    ACCOUNT, ANALYSIS_ACCOUNT, CERTS_ACCOUNT, HUB_ACCOUNT, NAMESPACE, SOURCES_ACCOUNT, agent_token, bind, deploy,
    hub_ca, injected_pod, injected_pod_with,
};
use nudge_tests::cluster::{Options, TestNamespace};
use nudge_tests::servers::git_content::git_content;
use nudge_tests::servers::openbao::OpenBao;
use nudge_tests::{Apart, Cluster, Installation, Pod, ReplicaOptions, eventually, tools};
use serde_json::{Value, json};

const WAIT_TIMEOUT: Duration = Duration::from_mins(1);

/// A verb and a resource, such as `patch pods/status` or `get deployments.apps`.
type Right = String;

fn right(verb: &str, group: &str, resource: &str) -> Right {
    match (group, resource.split_once('/')) {
        ("", _) => format!("{verb} {resource}"),
        (_, Some((resource, sub))) => format!("{verb} {resource}.{group}/{sub}"),
        (_, None) => format!("{verb} {resource}.{group}"),
    }
}

fn texts(value: &Value) -> Vec<&str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Returns the rights of each account by its roles of the files, where those of a namespace are bound by their names.
fn granted_rights(folder: &str) -> Result<BTreeMap<&'static str, BTreeSet<Right>>> {
    let mut given = BTreeMap::<_, BTreeSet<_>>::new();
    let files = ["rbac", "rbac-namespace"].map(|file| deploy().join(format!("{folder}/{file}.yaml")));
    for file in files.into_iter().filter(|file| file.exists()) {
        let text = fs::read_to_string(file)?;
        for role in serde_saphyr::from_multiple::<Value>(&text)? {
            if !role["kind"].as_str().is_some_and(|kind| kind.ends_with("Role")) {
                continue;
            }
            let account = match role["metadata"]["name"].as_str().context("no name")? {
                "nudge-certs" => CERTS_ACCOUNT,
                name if name.starts_with("nudge-sources") => SOURCES_ACCOUNT,
                "nudge-analysis-control" => ACCOUNT,
                name if name.starts_with("nudge-analysis") => ANALYSIS_ACCOUNT,
                name if name.ends_with("-hub") => HUB_ACCOUNT,
                _ => ACCOUNT,
            };
            for rule in role["rules"].as_array().context("no rules")? {
                for group in texts(&rule["apiGroups"]) {
                    for resource in texts(&rule["resources"]) {
                        let rights = texts(&rule["verbs"]).into_iter().map(|verb| right(verb, group, resource));
                        given.entry(account).or_default().extend(rights);
                    }
                }
            }
        }
    }
    Ok(given)
}

/// Takes away what is read of servers without EndpointSlices alone, unless this is one.
fn without_endpoints(cluster: &Cluster, rights: &mut BTreeSet<Right>) {
    if cluster.version().minor > 20 {
        rights.retain(|right| !right.ends_with(" endpoints"));
    }
}

/// The requests of each account: answered requests, and requests that were always refused.
#[derive(Default)]
struct Asked {
    answered: BTreeSet<Right>,
    refused: BTreeMap<Right, Value>,
}

fn asked(cluster: &Cluster, account: &str) -> Result<Asked> {
    let user = format!("system:serviceaccount:{NAMESPACE}:{account}");
    let mut asked = Asked::default();
    for event in cluster.audit(&user)?.into_iter().filter(|event| event["user"]["username"] == *user) {
        let object = &event["objectRef"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        // Paths such as /version are open to everybody.
        if object["resource"].is_null() {
            continue;
        }
        let mut resource = text(&object["resource"]);
        if let Some(sub) = object["subresource"].as_str() {
            resource = format!("{resource}/{sub}");
        }
        let right = right(&text(&event["verb"]), &text(&object["apiGroup"]), &resource);
        // A webhook has refused what the account may ask.
        let is_allowed = event["annotations"]["authorization.k8s.io/decision"] == "allow";
        if event["responseStatus"]["code"] == 403 && !is_allowed {
            asked.refused.insert(right, event);
        } else {
            asked.answered.insert(right);
        }
    }
    // A server that has just got the roles refuses for a moment what they allow.
    let Asked { answered, refused } = &mut asked;
    refused.retain(|right, _| !answered.contains(right));
    Ok(asked)
}

/// Makes a version of `shop`, a ConfigMap, and of `vault`, a Secret.
async fn version(space: &TestNamespace, name: &str) -> Result<()> {
    let object = |config: &str, data: Value| {
        let labels = json!({"nudge.dev/config": config, "nudge.dev/version": name, "nudge.dev/prune": "true"});
        json!({"metadata": {"name": format!("{config}-{name}"), "labels": labels}, "immutable": true, "data": data})
    };
    space.create_object::<ConfigMap>(object("shop", json!({"key": name}))).await?;
    space.create_object::<Secret>(object("vault", json!({"password": "aHVudGVy"}))).await.map(drop)
}

/// Makes a version of both configs current.
async fn switch(space: &TestNamespace, name: &str) -> Result<()> {
    for config in ["shop", "vault"] {
        request_version(space, config, name).await?;
        wait_until_current(space, config, name).await?;
    }
    Ok(())
}

async fn request_version(space: &TestNamespace, config: &str, name: &str) -> Result<()> {
    let patch = Patch::Merge(json!({"spec": {"version": name}}));
    space.api::<VersionedConfig>().patch(config, &PatchParams::default(), &patch).await.map(drop)?;
    Ok(())
}

async fn wait_until_current(space: &TestNamespace, config: &str, version: &str) -> Result<()> {
    let configs = space.api::<VersionedConfig>();
    let current = async || {
        let status = configs.get(config).await.ok()?.status?;
        let held = if config == "vault" { &status.published_secret_version } else { &status.published_version };
        let published = held.as_deref() == Some(version);
        let proven = status.current_version.as_deref() == Some(version);
        (published && proven && status.rollout.stage.is_none()).then_some(())
    };
    let waited = eventually(WAIT_TIMEOUT, &format!("{version} of {config} is current"), current).await;
    match waited {
        Ok(()) => Ok(()),
        Err(error) => Err(error.context(format!("{:#?}", configs.get(config).await?.status))),
    }
}

/// Returns a template whose pods read the published ConfigMap from the environment.
fn template(app: &str) -> Value {
    json!({"metadata": {"labels": {"app": app}}, "spec": {"automountServiceAccountToken": false, "containers": [
        {"name": "app", "image": "test", "envFrom": [{"configMapRef": {"name": "shop"}}]}]}})
}

async fn workloads(space: &TestNamespace) -> Result<()> {
    let spec = |app: &str| json!({"selector": {"matchLabels": {"app": app}}, "template": template(app)});
    let mut deployment = spec("web");
    deployment["replicas"] = 0.into();
    space.create_object::<Deployment>(json!({"metadata": {"name": "web"}, "spec": deployment})).await?;
    let mut set = spec("db");
    (set["serviceName"], set["replicas"]) = ("db".into(), 0.into());
    space.create_object::<StatefulSet>(json!({"metadata": {"name": "db"}, "spec": set})).await?;
    space.create_object::<DaemonSet>(json!({"metadata": {"name": "log"}, "spec": spec("log")})).await.map(drop)
}

/// Creates a pod that has opted in and has no agent, of a controller that would create another.
async fn create_pod_without_agent(space: &TestNamespace) -> Result<()> {
    let mut pod = template("lost");
    pod["metadata"]["name"] = "lost".into();
    pod["metadata"]["labels"]["nudge.dev/inject"] = "true".into();
    pod["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "lost", "uid": "lost", "controller": true}]);
    space.create_object::<PodObject>(pod).await.map(drop)
}

/// The label of the namespace makes a config of a Secret and the ConfigMap of its name, and the config goes with both.
async fn namespace_baseline(space: &TestNamespace) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(space.client.clone());
    let label = async |value: Value| {
        let patch = Patch::Merge(json!({"metadata": {"labels": {"nudge.dev/baseline": value}}}));
        namespaces.patch(&space.name, &PatchParams::default(), &patch).await
    };
    label(json!("mounted")).await?;
    space.create_object::<Secret>(json!({"metadata": {"name": "both"}, "stringData": {"pin": "hunter2"}})).await?;
    space.create_object::<ConfigMap>(json!({"metadata": {"name": "both"}, "data": {"key": "0"}})).await?;
    let configs = space.api::<VersionedConfig>();
    let container = json!({"envFrom": [{"secretRef": {"name": "both"}}, {"configMapRef": {"name": "both"}}]});
    injected_pod_with(space, "both", &json!({"name": "both-1"}), &container).await?;
    eventually(WAIT_TIMEOUT, "the config has two objects", async || {
        (configs.get("both").await.ok()?.spec.objects.len() == 2).then_some(())
    })
    .await?;
    space.api::<PodObject>().delete("both-1", &DeleteParams::default().grace_period(0)).await?;
    space.api::<Secret>().delete("both", &DeleteParams::default()).await?;
    space.api::<ConfigMap>().delete("both", &DeleteParams::default()).await?;
    eventually(WAIT_TIMEOUT, "the config goes", async || configs.get_opt("both").await.ok()?.is_none().then_some(()))
        .await?;
    label(Value::Null).await.map(drop).map_err(Into::into)
}

/// Does all that Nudge does.
async fn use_all_rights(space: &TestNamespace, apart: &Apart) -> Result<()> {
    // A ConfigMap becomes the first version of a config.
    let labels = json!({"nudge.dev/baseline": "true"});
    space
        .create_object::<ConfigMap>(json!({"metadata": {"name": "plain", "labels": labels}, "data": {"key": "0"}}))
        .await?;
    injected_pod(space, "based", "plain").await?;
    wait_until_current(space, "plain", "1.0.0").await?;

    namespace_baseline(space).await?;

    space.create_object::<ConfigMap>(json!({"metadata": {"name": "shop"}, "data": {"key": "0"}})).await?;
    // Versions with both kinds of parts, an agent, and workloads without one.
    let rollout = json!({"steps": [{"pods": "100%"}], "minReadySeconds": 0, "bakeSeconds": 0});
    for name in ["shop", "vault"] {
        let config: VersionedConfig = serde_json::from_value(json!({
            "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": name},
            "spec": {"historyLimit": 1, "rollout": rollout, "objects": [if name == "vault" { "Secret" } else { "ConfigMap" }]},
        }))?;
        let try_to_create = async || space.api().create(&PostParams::default(), &config).await.ok().map(drop);
        eventually(WAIT_TIMEOUT, "the API server trusts the webhooks", try_to_create).await?;
    }
    version(space, "1").await?;
    switch(space, "1").await?;
    workloads(space).await?;
    let object = injected_pod(space, "served", "shop,vault").await?;
    let hub = format!("https://{}", apart.hub.hub);
    let mut pod = Pod::of(hub, &hub_ca(space).await?, &agent_token(space, &object).await?)?;
    pod.configs = "shop,vault";
    let mut client = pod.start().await?;
    pod.wait_until_served(&mut client, "shop=1,vault=1").await?;
    for name in ["2", "3", "4"] {
        version(space, name).await?;
        switch(space, name).await?;
        pod.wait_until_served(&mut client, &format!("shop={name},vault={name}")).await?;
    }
    let restarted = async || {
        let template = space.api::<Deployment>().get("web").await.ok()?.spec?.template;
        template.metadata?.annotations?.contains_key("nudge.dev/config-digest").then_some(())
    };
    let restarted = eventually(Duration::from_secs(20), "web is restarted", restarted).await;
    let status = space.api::<VersionedConfig>().get("shop").await?.status;
    restarted.with_context(|| format!("{:#?}", status.map(|status| (status.conditions, status.rollout))))?;
    // The same Event again.
    for name in ["3", "4"] {
        switch(space, name).await?;
    }
    let pods = space.api::<PodObject>();
    eventually(WAIT_TIMEOUT, "the hub writes the pod's condition", async || {
        let conditions = pods.get("served").await.ok()?.status?.conditions?;
        conditions
            .iter()
            .any(|condition| condition.type_ == "nudge.dev/ConfigCurrent" && condition.status == "True")
            .then_some(())
    })
    .await?;
    let maps = space.api::<ConfigMap>();
    eventually(WAIT_TIMEOUT, "the first version is pruned", async || maps.get("shop-1").await.err().map(drop)).await?;
    eventually(WAIT_TIMEOUT, "the lost pod is evicted", async || pods.get("lost").await.err().map(drop)).await?;
    node_away(space, &pods).await?;

    statuses(space).await?;

    // Injection.
    let mut opted_in = template("opted-in");
    (opted_in["metadata"]["name"], opted_in["metadata"]["labels"]["nudge.dev/inject"]) = ("new".into(), "true".into());
    opted_in["metadata"]["annotations"] = json!({"nudge.dev/configs": "shop"});
    let opted_in = serde_json::from_value(opted_in)?;
    let injected = async || {
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        let pod = pods.create(&dry, &opted_in).await.ok()?;
        pod.labels().contains_key("nudge.dev/agent").then_some(())
    };
    eventually(WAIT_TIMEOUT, "pods are injected", injected).await?;

    // Deletion, with the objects of the versions.
    for name in ["based", "served"] {
        pods.delete(name, &DeleteParams::default().grace_period(0)).await?;
    }
    let configs = space.api::<VersionedConfig>();
    let deleted = async || configs.delete("shop", &DeleteParams::default()).await.ok().map(drop);
    eventually(WAIT_TIMEOUT, "the config may be deleted", deleted).await?;
    eventually(WAIT_TIMEOUT, "its versions are deleted", async || maps.get("shop-4").await.err().map(drop)).await
}

/// Creates a policy and an approval, whose statuses are written.
async fn statuses(space: &TestNamespace) -> Result<()> {
    let policies: Api<RolloutPolicy> = Api::all(space.client.clone());
    let policy = json!({
        "apiVersion": "nudge.dev/v1alpha1", "kind": "RolloutPolicy", "metadata": {"name": "nowhere"},
        "spec": {"namespaceSelector": {"matchLabels": {"team": "nobody"}}},
    });
    policies.create(&PostParams::default(), &serde_json::from_value(policy)?).await?;
    let digest = format!("sha256:{}", "0".repeat(48));
    let spec = json!({"configName": "shop", "version": "4", "digest": digest, "decision": "Approve", "reason": "r", "approver": ""});
    space.create_object::<VersionApproval>(json!({"metadata": {"name": "approval"}, "spec": spec})).await?;
    let noted = async || policies.get("nowhere").await.ok()?.status.map(drop);
    eventually(WAIT_TIMEOUT, "the policy has a status", noted).await?;
    let noted = |approval: &VersionApproval| approval.status.is_some();
    space.object_until(WAIT_TIMEOUT, "approval", "it has a status", noted).await.map(drop)
}

/// A pod is not Ready any more during a rollout, so its node is looked at.
async fn node_away(space: &TestNamespace, pods: &Api<PodObject>) -> Result<()> {
    let nodes: Api<Node> = Api::all(space.client.clone());
    let node = json!({"metadata": {"name": format!("of-{}", space.name)}});
    nodes.create(&PostParams::default(), &serde_json::from_value(node)?).await?;
    let binding =
        json!({"metadata": {"name": "held"}, "target": {"kind": "Node", "name": format!("of-{}", space.name)}});
    injected_pod(space, "held", "shop").await?;
    let path = format!("/api/v1/namespaces/{}/pods/held/binding", space.name);
    let request =
        hyper::Request::post(path).header("content-type", "application/json").body(serde_json::to_vec(&binding)?)?;
    space.client.request_text(request).await?;
    version(space, "5").await?;
    request_version(space, "shop", "5").await?;
    let now = k8s_openapi::jiff::Timestamp::from_second(k8s_openapi::jiff::Timestamp::now().as_second() + 1)?;
    let now = now.to_string();
    let unready = json!({"status": {"conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": now}]}});
    pods.patch_status("held", &PatchParams::default(), &Patch::Strategic(unready)).await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    pods.delete("held", &DeleteParams::default().grace_period(0)).await?;
    wait_until_current(space, "shop", "5").await
}

#[tokio::test]
async fn every_right_is_used_and_none_is_missing() -> Result<()> {
    let Some(cluster) = Cluster::start(&Options::default().workloads()).await? else { return Ok(()) };
    if !cluster.controls("deployment") {
        tools::skipped("restarting workloads needs kube-controller-manager");
        return Ok(());
    }
    let Some(installation) = Installation::apply_apart(&cluster).await? else { return Ok(()) };
    let space = installation.enabled("rights").await?;
    for role in ["nudge-secrets", "nudge-publish-secrets", "nudge-restart"] {
        bind(&space, role).await?;
    }
    // Before there are webhooks that would give it an agent.
    create_pod_without_agent(&space).await?;
    let options =
        ["--lease-seconds=3", "--baseline-seconds=1", "--repair=evict", "--repair-seconds=1", "--repair-age-seconds=0"];
    let apart = installation.apart(&ReplicaOptions::with(&options)).await?;
    let done = use_all_rights(&space, &apart).await;
    done.with_context(|| {
        format!("control:\n{}\nhub:\n{}\ncerts:\n{}", apart.control.log(), apart.hub.log(), apart.certs.log())
    })?;

    agree(&cluster, granted_rights("base")?).await
}

/// Fails unless each account has used every right that it was given, and has requested no other.
async fn agree(cluster: &Cluster, given: BTreeMap<&'static str, BTreeSet<Right>>) -> Result<()> {
    let mut faults = Vec::new();
    for (account, given) in given {
        let all_used = async || {
            let asked = asked(cluster, account).ok()?;
            given.is_subset(&asked.answered).then_some(())
        };
        // Leases are renewed and watches renewed from time to time.
        let _ = eventually(Duration::from_secs(10), "every right is used", all_used).await;
        let asked = asked(cluster, account)?;
        faults.extend(given.difference(&asked.answered).map(|right| format!("{account} never does: {right}")));
        faults.extend(asked.refused.iter().map(|(right, event)| format!("{account} may not: {right} {event}")));
        faults.extend(asked.answered.difference(&given).map(|right| format!("{account} does by other means: {right}")));
    }
    ensure!(faults.is_empty(), "{}", faults.join("\n"));
    Ok(())
}

#[tokio::test]
async fn so_it_is_with_the_rights_of_sources() -> Result<()> {
    let Some(cluster) = Cluster::installed(&Options::default()).await? else { return Ok(()) };
    let installation = Installation { cluster: &cluster };
    let _control = installation.guarded_replica().await?;
    installation.apply_sources().await?;
    let space = installation.enabled("rights").await?;
    for role in ["nudge-secrets", "nudge-sources", "nudge-sources-secrets"] {
        bind(&space, role).await?;
    }
    let sources = installation.sources(&ReplicaOptions::with(&["--lease-seconds=3", "--watch-seconds=3"])).await?;
    let Some(content) = git_content(&space, "shop", "1").await? else { return Ok(()) };
    let Some(bao) = OpenBao::start(Path::new(env!("CARGO_TARGET_TMPDIR"))).await? else { return Ok(()) };
    bao.configure_kubernetes_auth(&space, &cluster.url(), &cluster.authority().certificate()).await?;
    for (name, from) in [("shop", content.from.clone()), ("vault", bao.serve(&space, &["pin=1"]).await?)] {
        let object = json!({
            "apiVersion": "nudge.dev/v1alpha1", "kind": "ConfigSource", "metadata": {"name": name},
            "spec": {"from": from, "debounceSeconds": 0, "minPeriodSeconds": 0}
        });
        space.create_object::<ConfigSource>(object).await?;
    }
    for name in ["shop", "vault"] {
        let configs = space.api::<VersionedConfig>();
        let current = async || {
            let config = configs.get(name).await.ok()?;
            config.spec.version.is_some_and(|version| version.starts_with("src-")).then_some(())
        };
        let waited = eventually(WAIT_TIMEOUT, "a version is requested", current).await;
        waited.with_context(|| format!("its log:\n{}", sources.log()))?;
    }
    // Before any request, the guarded addresses are known.
    let object = json!({
        "apiVersion": "nudge.dev/v1alpha1", "kind": "ConfigSource", "metadata": {"name": "git"},
        "spec": {"from": {"git": {"url": "https://git.invalid/shop"}}}
    });
    space.create_object::<ConfigSource>(object).await?;
    let failed = async || {
        let status = space.api::<ConfigSource>().get("git").await.ok()?.status?;
        status.conditions.iter().any(|condition| condition.reason == "FetchFailed").then_some(())
    };
    eventually(WAIT_TIMEOUT, "the server has no address", failed).await?;
    let mut given = granted_rights("components/sources")?;
    let account_rights = given.get_mut(SOURCES_ACCOUNT).context("no rights")?;
    without_endpoints(&cluster, account_rights);
    // What admission asks of everybody who makes a version current.
    ensure!(account_rights.remove("update configmaps"));
    // Tokens of a service account are allowed by its name alone, in the namespace.
    account_rights.insert(right("create", "", "serviceaccounts/token"));
    agree(&cluster, given).await
}

#[tokio::test]
async fn so_it_is_with_the_rights_of_analysis() -> Result<()> {
    let Some(cluster) = Cluster::installed(&Options::default()).await? else { return Ok(()) };
    let installation = Installation { cluster: &cluster };
    installation.apply_analysis().await?;
    let space = installation.enabled("rights").await?;
    space.create_object::<Secret>(json!({"metadata": {"name": "metrics"}, "stringData": {"token": "a"}})).await?;
    may_send(&space, "metrics").await?;
    // What the role control writes.
    let prometheus =
        json!({"address": "http://127.0.0.1:1", "query": "up{pod=~\"{{pods}}\"}", "secretRef": {"name": "metrics"}});
    let analysis = json!([{"name": "errors", "max": "1", "periodSeconds": 5, "prometheus": prometheus}]);
    let config = json!({"metadata": {"name": "shop"}, "spec": {"rollout": {"analysis": analysis}}});
    space.create_object::<VersionedConfig>(config).await?;
    let status = json!({"status": {"currentVersion": "1", "targetVersion": "2", "rollout": {"stage": "Moving"}}});
    space.api::<VersionedConfig>().patch_status("shop", &PatchParams::default(), &Patch::Merge(status)).await?;
    let wanted = json!({
        "apiVersion": "internal.nudge.dev/v1alpha1", "kind": "RolloutAnalysis", "metadata": {"name": "shop"},
        "spec": {"targetVersion": "2", "generation": 1, "round": "a", "pods": ["web"], "control": []}
    });
    space.create_object::<RolloutAnalysis>(wanted).await?;
    let analysis = installation.analysis(&ReplicaOptions::with(&["--lease-seconds=3", "--watch-seconds=3"])).await?;
    let measured = |object: &RolloutAnalysis| object.status.as_ref().is_some_and(|status| !status.queries.is_empty());
    let waited = space.object_until(WAIT_TIMEOUT, "shop", "it was measured", measured).await;
    waited.with_context(|| format!("its log:\n{}", analysis.log()))?;
    let mut given = granted_rights("components/analysis")?;
    given.retain(|account, _| *account == ANALYSIS_ACCOUNT);
    let account_rights = given.get_mut(ANALYSIS_ACCOUNT).context("no rights")?;
    without_endpoints(&cluster, account_rights);
    account_rights.insert(right("get", "", "secrets"));
    agree(&cluster, given).await
}
