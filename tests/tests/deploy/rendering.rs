//! What the kustomizations make, without any cluster.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use nudge_tests::cluster::installation::{NAMESPACE, deploy};
use serde_json::{Value, json};

use crate::manifests::{base, by_title, difference, documents, read, render};

fn overlay(name: &str) -> PathBuf {
    deploy().join("overlays").join(name)
}

/// Every YAML file below a folder.
fn files(folder: &Path, into: &mut BTreeSet<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            files(&path, into)?;
        } else if path.extension().is_some_and(|kind| kind == "yaml") {
            into.insert(path.canonicalize()?);
        }
    }
    Ok(())
}

#[test]
fn every_file_belongs_to_a_kustomization() -> Result<()> {
    let mut all = BTreeSet::new();
    files(&deploy(), &mut all)?;
    let (kustomizations, mut others): (BTreeSet<_>, BTreeSet<_>) =
        all.into_iter().partition(|path| path.ends_with("kustomization.yaml"));
    let mut reached = BTreeSet::new();
    for path in &kustomizations {
        let folder = path.parent().context("no folder")?;
        let text = documents(&read(path)?)?.remove(0);
        let lists = ["resources", "components", "configurations"].into_iter();
        let names = lists.flat_map(|list| text[list].as_array().into_iter().flatten());
        let patches = text["patches"].as_array().into_iter().flatten().filter_map(|patch| patch.get("path"));
        for name in names.chain(patches) {
            let named = folder.join(name.as_str().context("no name")?);
            reached.insert(named.canonicalize().with_context(|| format!("{} names {name}", path.display()))?);
        }
    }
    others.retain(|file| !reached.contains(file));
    ensure!(others.is_empty(), "not in any kustomization: {others:?}");
    // Those that people name themselves, and those that others name.
    let doors = ["", "overlays/current", "overlays/single-replica", "overlays/all-namespaces"];
    let doors =
        doors.into_iter().chain(["components/monitoring", "namespace", "namespace/secrets", "namespace/restart"]);
    for door in doors {
        reached.insert(deploy().join(door).canonicalize()?);
    }
    let lost = kustomizations.iter().filter_map(|path| path.parent()).find(|folder| !reached.contains(*folder));
    ensure!(lost.is_none(), "nobody names {lost:?}");
    Ok(())
}

#[test]
fn the_base_renders_to_what_its_files_say() -> Result<()> {
    let Some(rendered) = render(&deploy())? else { return Ok(()) };
    let rendered = by_title(documents(&rendered)?)?;
    let files = by_title(documents(&base()?)?)?;
    assert_eq!(difference(&rendered, &files), Vec::<&String>::new());
    ensure!(
        !rendered.keys().any(|title| title.starts_with("PodDisruptionBudget/")),
        "no version of it is on every server"
    );
    Ok(())
}

#[test]
fn the_overlay_for_current_servers_adds_policies_and_a_budget_and_changes_no_name() -> Result<()> {
    let Some(rendered) = render(&overlay("current"))? else { return Ok(()) };
    let rendered = by_title(documents(&rendered)?)?;
    let base = by_title(documents(&base()?)?)?;
    let missing: Vec<_> = base.keys().filter(|title| !rendered.contains_key(*title)).collect();
    ensure!(missing.is_empty(), "{missing:?}");
    let kinds: BTreeSet<_> = rendered
        .keys()
        .filter(|title| !base.contains_key(*title))
        .filter_map(|title| title.split('/').next())
        .collect();
    let expected = ["PodDisruptionBudget", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"];
    assert_eq!(kinds, BTreeSet::from(expected));
    assert_eq!(rendered["Deployment/nudge-injector"], base["Deployment/nudge-injector"]);
    let budget = &rendered["PodDisruptionBudget/nudge-injector"]["spec"]["selector"];
    assert_eq!(*budget, base["Deployment/nudge-injector"]["spec"]["selector"]);
    Ok(())
}

#[test]
fn a_single_replica_has_nothing_to_spread() -> Result<()> {
    let Some(rendered) = render(&overlay("single-replica"))? else { return Ok(()) };
    let mut rendered = by_title(documents(&rendered)?)?;
    let mut base = by_title(documents(&base()?)?)?;
    let deployment = rendered.remove("Deployment/nudge-injector").context("no Deployment")?;
    let mut expected = base.remove("Deployment/nudge-injector").context("no Deployment")?;
    expected["spec"]["replicas"] = json!(1);
    let pod = expected["spec"]["template"]["spec"].as_object_mut().context("no pod")?;
    ensure!(pod.remove("affinity").is_some() && pod.remove("topologySpreadConstraints").is_some(), "{pod:?}");
    assert_eq!(deployment, expected);
    assert_eq!(difference(&rendered, &base), Vec::<&String>::new());
    Ok(())
}

#[test]
fn the_selectors_for_all_namespaces_are_those_of_the_control_plane() -> Result<()> {
    let Some(rendered) = render(&overlay("all-namespaces"))? else { return Ok(()) };
    let objects = by_title(documents(&rendered)?)?;
    ensure!(!objects.keys().any(|title| title.starts_with("NamespaceSelector/")), "only a source of what is copied");
    let mut selectors = Vec::new();
    for (title, object) in &objects {
        // For every namespace, whatever is enabled.
        if title == "ValidatingAdmissionPolicy/nudge-versions-marked" {
            ensure!(object["spec"]["matchConstraints"].get("namespaceSelector").is_none(), "{object}");
            continue;
        }
        match object["kind"].as_str().context("no kind")? {
            "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => {
                let webhooks = object["webhooks"].as_array().context("no webhooks")?;
                selectors.extend(webhooks.iter().map(|webhook| &webhook["namespaceSelector"]));
            }
            "ValidatingAdmissionPolicy" => selectors.push(&object["spec"]["matchConstraints"]["namespaceSelector"]),
            _ => {}
        }
    }
    ensure!(selectors.len() >= 9, "{selectors:?}");
    let expected = BTreeSet::from(["kube-node-lease", "kube-public", "kube-system", NAMESPACE]);
    for selector in selectors {
        let expressions = selector["matchExpressions"].as_array().context("no expressions")?;
        let [names, said] = expressions.as_slice() else { anyhow::bail!("{selector}") };
        assert_eq!((&names["key"], &names["operator"]), (&json!("kubernetes.io/metadata.name"), &json!("NotIn")));
        let excluded: BTreeSet<_> =
            names["values"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        assert_eq!(excluded, expected);
        assert_eq!(*said, json!({"key": "nudge.dev/enabled", "operator": "NotIn", "values": ["false"]}));
    }
    let variables = &objects["Deployment/nudge-injector"]["spec"]["template"]["spec"]["containers"][0]["env"];
    let variables = variables.as_array().context("no variables")?;
    ensure!(variables.contains(&json!({"name": "NUDGE_ALL_NAMESPACES", "value": "true"})), "{variables:?}");
    ensure!(variables.len() > 5, "the others stay: {variables:?}");
    let bound: Vec<_> = objects.keys().filter(|title| title.starts_with("ClusterRoleBinding/")).collect();
    assert_eq!(bound, ["ClusterRoleBinding/nudge-injector", "ClusterRoleBinding/nudge-namespace"]);
    Ok(())
}

/// The example in deploy/README.md of an installation with images from elsewhere.
#[test]
fn images_and_pull_secrets_are_set_as_the_page_says() -> Result<()> {
    let page = read(&deploy().join("README.md"))?;
    let mut blocks = page.split("```").skip(1).step_by(2);
    let block = blocks.find(|block| block.contains("registry.example.com")).context("the page has no such example")?;
    let text = block.strip_prefix("yaml\n").context("not YAML")?;
    let ours = "../nudge/deploy/overlays/current";
    ensure!(text.contains(ours), "{text}");
    let home = tempfile::tempdir()?;
    std::os::unix::fs::symlink(deploy().join("..").canonicalize()?, home.path().join("nudge"))?;
    let folder = home.path().join("site");
    fs::create_dir(&folder)?;
    fs::write(folder.join("kustomization.yaml"), text)?;
    let Some(rendered) = render(&folder)? else { return Ok(()) };
    let objects = by_title(documents(&rendered)?)?;
    let pod = &objects["Deployment/nudge-injector"]["spec"]["template"]["spec"];
    assert_eq!(pod["imagePullSecrets"], json!([{"name": "registry"}]));
    let container = &pod["containers"][0];
    assert_eq!(container["image"], "registry.example.com/nudge-injector:0.1.0");
    let value = |name: &str| {
        let variables = container["env"].as_array().into_iter().flatten();
        variables.clone().find(|variable| variable["name"] == name).map(|variable| variable["value"].clone())
    };
    assert_eq!(value("NUDGE_AGENT_IMAGE"), Some(json!("registry.example.com/nudge-agent:0.1.0")));
    assert_eq!(value("NUDGE_AGENT_KILL_IMAGE"), Some(json!("registry.example.com/nudge-agent-kill:0.1.0")));
    assert_eq!(value("NUDGE_IMAGE_PULL_SECRETS"), Some(json!("registry")));
    Ok(())
}
