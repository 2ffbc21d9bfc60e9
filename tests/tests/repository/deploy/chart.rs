//! `deploy/chart` compared with the overlays: the same objects, and the messages about wrong values.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use nudge_tests::cluster::Options;
use nudge_tests::cluster::installation::{NAMESPACE, deploy};
use nudge_tests::{Cluster, Finished, Helm};
use serde_json::{Value, json};

use crate::deploy::manifests::{EVERYWHERE, by_title, difference, documents, everywhere, installed};

/// Renders the chart with these values.
fn render(helm: &Helm, values: &Value) -> Result<BTreeMap<String, Value>> {
    let finished = helm.run(&template(), values)?;
    ensure!(finished.code == Some(0), "{values}: {}", finished.stderr);
    by_title(documents(&finished.stdout)?)
}

fn find_helm() -> Result<Option<Helm>> {
    Helm::find(Path::new(env!("CARGO_TARGET_TMPDIR")))
}

fn template() -> [String; 5] {
    let chart = deploy().join("chart").display().to_string();
    ["template", "nudge", &chart, "--namespace", NAMESPACE].map(str::to_owned)
}

/// Removes what means nothing: the order of variables and webhooks, and how an expression is broken into lines.
fn plain(value: &mut Value) {
    match value {
        Value::Array(items) => {
            items.iter_mut().for_each(plain);
            if items.iter().all(|item| {
                item["value"].is_string() || item["valueFrom"].is_object() || item["sideEffects"].is_string()
            }) {
                items.sort_by_key(|item| item["name"].to_string());
            }
        }
        Value::Object(fields) => fields.values_mut().for_each(plain),
        Value::String(text) => *text = text.split_whitespace().collect::<Vec<_>>().join(" "),
        _ => {}
    }
}

/// Returns an overlay and its components, and the values that are the same.
fn cases() -> [(&'static str, &'static [&'static str], Value); 10] {
    [
        ("base", &[], json!({"admissionPolicies": false, "disruptionBudget": false})),
        ("overlays/current", &[], json!({})),
        ("overlays/all-namespaces", &[], json!({"allNamespaces": true})),
        ("overlays/cert-manager", &[], json!({"certManager": true})),
        (
            "overlays/single-replica",
            &[],
            json!({"singleReplica": true, "admissionPolicies": false, "disruptionBudget": false}),
        ),
        ("overlays/current", &["cluster-reads"], json!({"clusterReads": true})),
        ("overlays/current", &["sources"], json!({"sources": true})),
        ("overlays/current", &["analysis"], json!({"analysis": true})),
        ("overlays/current", &["monitoring"], json!({"monitoring": true})),
        (
            "overlays/current",
            &["sources", "analysis", "all-namespaces"],
            json!({"allNamespaces": true, "sources": true, "analysis": true}),
        ),
    ]
}

#[test]
fn the_chart_has_the_objects_of_the_overlays() -> Result<()> {
    let Some(helm) = find_helm()? else { return Ok(()) };
    for (resource, components, mut values) in cases() {
        let name = format!("{resource} {components:?}");
        let Some(mut kustomized) = installed(resource, components)? else { return Ok(()) };
        kustomized.values_mut().for_each(plain);
        // `helm install --create-namespace` makes it.
        ensure!(kustomized.remove(&format!("Namespace/{NAMESPACE}")).is_some());

        values["keep"] = json!(false);
        let mut charted = render(&helm, &values)?;
        charted.values_mut().for_each(plain);
        let test = charted.remove("Pod/nudge-test").context("no test")?;
        assert_eq!(test["metadata"]["annotations"]["helm.sh/hook"], "test");
        assert_eq!(difference(&charted, &kustomized), Vec::<&String>::new(), "{name}");
        assert_eq!(everywhere(&charted)?, EVERYWHERE, "{values}");
        ensure!(charted.len() > 30, "{name}: {}", charted.len());
    }
    Ok(())
}

#[test]
fn values_reach_what_they_are_for() -> Result<()> {
    let Some(helm) = find_helm()? else { return Ok(()) };
    let digest = format!("sha256:{}", "0123456789abcdef".repeat(4));
    let objects = render(
        &helm,
        &json!({
            "images": {
                "registry": "registry.example.com/team",
                "tag": "0.2.0",
                "digests": {"nudge-agent": digest},
                "pullSecrets": ["registry"],
                "agentPullSecrets": ["one", "two"],
            },
            "control": {"replicas": 3, "env": {"NUDGE_LOG_LEVEL": "debug"}},
            "hub": {"resources": {"limits": {"memory": "2Gi"}}, "nodeSelector": {"pool": "system"}},
            "certs": {"tolerations": [{"operator": "Exists"}]},
            "unknownKeys": "warn",
        }),
    )?;
    let pod = |name: &str| &objects[&format!("Deployment/{name}")]["spec"]["template"]["spec"];
    for name in ["nudge-injector", "nudge-hub", "nudge-certs"] {
        assert_eq!(pod(name)["containers"][0]["image"], "registry.example.com/team/nudge-injector:0.2.0");
        assert_eq!(pod(name)["imagePullSecrets"], json!([{"name": "registry"}]));
    }
    let variables = &pod("nudge-injector")["containers"][0]["env"];
    for (name, value) in [
        ("NUDGE_AGENT_IMAGE", &*format!("registry.example.com/team/nudge-agent@{digest}")),
        ("NUDGE_AGENT_KILL_IMAGE", "registry.example.com/team/nudge-agent-kill:0.2.0"),
        ("NUDGE_IMAGE_PULL_SECRETS", "one,two"),
        ("NUDGE_LOG_LEVEL", "debug"),
        ("NUDGE_UNKNOWN_KEYS", "warn"),
    ] {
        let expected = json!({"name": name, "value": value});
        ensure!(variables.as_array().is_some_and(|all| all.contains(&expected)), "{expected}: {variables}");
    }
    assert_eq!(objects["Deployment/nudge-injector"]["spec"]["replicas"], 3);
    let hub = pod("nudge-hub");
    let resources = json!({"limits": {"memory": "2Gi"}, "requests": {"cpu": "100m", "memory": "128Mi"}});
    assert_eq!(hub["containers"][0]["resources"], resources);
    assert_eq!(hub["nodeSelector"], json!({"kubernetes.io/os": "linux", "pool": "system"}));
    assert_eq!(pod("nudge-certs")["tolerations"], json!([{"operator": "Exists"}]));
    // What `helm uninstall` leaves.
    let kept =
        objects.iter().filter(|(_, object)| object["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep");
    let expected = [
        "CustomResourceDefinition/rolloutpolicies.nudge.dev",
        "CustomResourceDefinition/versionapprovals.nudge.dev",
        "CustomResourceDefinition/versionedconfigs.nudge.dev",
        "Secret/nudge-authority",
        "Secret/nudge-content-key",
    ];
    assert_eq!(kept.map(|(title, _)| title.as_str()).collect::<Vec<_>>(), expected);
    Ok(())
}

#[test]
fn wrong_values_are_refused_with_what_is_wrong() -> Result<()> {
    let Some(helm) = find_helm()? else { return Ok(()) };
    let cases = [
        (json!({"replicas": 3}), "additional properties 'replicas' not allowed"),
        (json!({"hub": {"replicas": 0}}), "at '/hub/replicas': minimum: got 0, want 1"),
        (json!({"hub": {"replicas": "3"}}), "at '/hub/replicas': got string, want integer"),
        (json!({"certs": {"replicas": 2}}), "at '/certs': additional properties 'replicas' not allowed"),
        (
            json!({"control": {"env": {"NUDGE_CA_DAYS": 30}}}),
            "at '/control/env/NUDGE_CA_DAYS': got number, want string",
        ),
        (
            json!({"images": {"registry": "registry.example.com/"}}),
            "at '/images/registry': 'registry.example.com/' does not match",
        ),
        (
            json!({"images": {"digests": {"nudge-agent": "0123"}}}),
            "at '/images/digests/nudge-agent': '0123' does not match",
        ),
        (json!({"sources": "yes"}), "at '/sources': got string, want boolean"),
        (json!({"unknownKeys": "ignore"}), "at '/unknownKeys': value must be one of"),
        (
            json!({"allNamespaces": true, "admissionPolicies": false}),
            "allNamespaces needs the policies: set admissionPolicies=true",
        ),
        (
            json!({"singleReplica": true, "certManager": true}),
            "singleReplica can't be had together with certManager: set one of them",
        ),
    ];
    for (values, expected) in cases {
        let finished = helm.run(&template(), &values)?;
        ensure!(finished.code != Some(0) && finished.stderr.contains(expected), "{values}: {}", finished.stderr);
    }
    let mut elsewhere = template();
    NAMESPACE.replace("-system", "").clone_into(&mut elsewhere[4]);
    let finished = helm.run(&elsewhere, &json!({}))?;
    ensure!(finished.stderr.contains("add --namespace nudge-system --create-namespace"), "{}", finished.stderr);
    let chart = deploy().join("chart").display().to_string();
    let finished = helm.run(&["lint", &chart, "--namespace", NAMESPACE], &json!({}))?;
    ensure!(finished.code == Some(0), "{}{}", finished.stdout, finished.stderr);
    Ok(())
}

/// On a real server: Nudge's writes survive an upgrade of the release, and the lasting objects survive its removal.
#[tokio::test]
async fn it_is_installed_upgraded_and_removed() -> Result<()> {
    let Some(helm) = find_helm()? else { return Ok(()) };
    let Some(cluster) = Cluster::start(&Options::default()).await? else { return Ok(()) };
    let kubeconfig = cluster.kubeconfig().display().to_string();
    let chart = deploy().join("chart").display().to_string();
    let on = ["--namespace", NAMESPACE, "--kubeconfig", &kubeconfig];
    let install = [&["install", "nudge", &*chart, "--create-namespace"], &on[..]].concat();
    let mut values = json!({});
    if !cluster.has(30, "policies of the chart") {
        let finished = helm.run(&install, &values)?;
        let expected = "admissionPolicies needs Kubernetes 1.30 or newer, and the server has v1.";
        ensure!(finished.code != Some(0) && finished.stderr.contains(expected), "{}", finished.stderr);
        values = json!({"admissionPolicies": false, "disruptionBudget": false});
    }
    let done = |finished: Finished| {
        ensure!(finished.code == Some(0), "{}", finished.stderr);
        Ok(())
    };
    done(helm.run(&install, &values)?)?;

    // What the role certs does.
    let client = cluster.admin().await?;
    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    secrets
        .patch("nudge-content-key", &PatchParams::default(), &Patch::Merge(json!({"data": {"key": "a2V5"}})))
        .await?;
    let webhooks: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let bundle = ByteString(cluster.authority().certificate().into_bytes());
    let mut configuration = webhooks.get("nudge-injector").await?;
    configuration
        .webhooks
        .iter_mut()
        .flatten()
        .for_each(|webhook| webhook.client_config.ca_bundle = Some(bundle.clone()));
    webhooks.replace("nudge-injector", &PostParams::default(), &configuration).await?;

    values["hub"] = json!({"replicas": 3});
    done(helm.run(&[&["upgrade", "nudge", &*chart], &on[..]].concat(), &values)?)?;
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), NAMESPACE);
    let hub = deployments.get("nudge-hub").await?;
    assert_eq!(hub.spec.and_then(|spec| spec.replicas), Some(3));
    let key = secrets.get("nudge-content-key").await?.data.context("the key is gone")?;
    assert_eq!(key["key"].0, b"key");
    let configuration = webhooks.get("nudge-injector").await?;
    ensure!(
        configuration
            .webhooks
            .iter()
            .flatten()
            .all(|webhook| webhook.client_config.ca_bundle.as_ref() == Some(&bundle))
    );

    done(helm.run_with_defaults(&[&["uninstall", "nudge"], &on[..]].concat())?)?;
    ensure!(webhooks.get_opt("nudge-injector").await?.is_none());
    ensure!(deployments.list(&ListParams::default()).await?.items.is_empty());
    let crds: Api<CustomResourceDefinition> = Api::all(client);
    ensure!(crds.get_opt("versionedconfigs.nudge.dev").await?.is_some());
    ensure!(secrets.get_opt("nudge-content-key").await?.is_some());
    // And it is taken over by the next installation.
    values["hub"] = json!({"replicas": 1});
    done(helm.run(&install, &values)?)?;
    let key = secrets.get("nudge-content-key").await?.data.context("the key is gone")?;
    assert_eq!(key["key"].0, b"key");
    Ok(())
}
