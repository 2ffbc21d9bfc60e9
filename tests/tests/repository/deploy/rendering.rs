//! What the kustomizations make, without any cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use nudge_tests::cluster::installation::{NAMESPACE, deploy};
use serde_json::{Value, json};

use crate::deploy::manifests::{
    EVERYWHERE, base, by_title, difference, documents, everywhere, installed, read, render,
};

fn overlay(name: &str) -> PathBuf {
    deploy().join("overlays").join(name)
}

/// Collects every YAML file below a folder.
fn files(folder: &Path, into: &mut BTreeSet<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        // The chart reads the same files.
        let chart = path.ends_with("chart");
        if path.is_dir() && !chart {
            files(&path, into)?;
        } else if path.extension().is_some_and(|kind| kind == "yaml") {
            into.insert(path.canonicalize()?);
        }
    }
    Ok(())
}

#[test]
fn every_file_belongs_to_a_kustomization() -> Result<()> {
    let mut yaml_files = BTreeSet::new();
    files(&deploy(), &mut yaml_files)?;
    let (kustomizations, mut others): (BTreeSet<_>, BTreeSet<_>) =
        yaml_files.into_iter().partition(|path| path.ends_with("kustomization.yaml"));
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
    let doors = ["", "overlays/current", "overlays/single-replica", "overlays/all-namespaces", "overlays/cert-manager"];
    let doors = doors.into_iter().chain([
        "components/cluster-reads",
        "components/monitoring",
        "components/sources",
        "components/analysis",
        "namespace",
        "namespace/secrets",
        "namespace/publish-secrets",
        "namespace/restart",
        "namespace/sources",
        "namespace/sources/secrets",
    ]);
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
    for name in ["nudge-injector", "nudge-hub"] {
        let deployment = &base[&format!("Deployment/{name}")];
        assert_eq!(rendered[&format!("Deployment/{name}")], *deployment);
        assert_eq!(
            rendered[&format!("PodDisruptionBudget/{name}")]["spec"]["selector"],
            deployment["spec"]["selector"]
        );
        assert_eq!(base[&format!("Service/{name}")]["spec"]["selector"], deployment["spec"]["selector"]["matchLabels"]);
        let policy = &base[&format!("NetworkPolicy/{name}")]["spec"]["podSelector"];
        assert_eq!(*policy, deployment["spec"]["selector"]);
    }
    Ok(())
}

#[test]
fn a_single_replica_is_one_process_with_all_roles() -> Result<()> {
    let Some(rendered) = render(&overlay("single-replica"))? else { return Ok(()) };
    let rendered = by_title(documents(&rendered)?)?;
    let deployments: Vec<_> = rendered.keys().filter(|title| title.starts_with("Deployment/")).collect();
    assert_eq!(deployments, ["Deployment/nudge-injector"]);
    let spec = &rendered["Deployment/nudge-injector"]["spec"];
    assert_eq!(spec["replicas"], json!(1));
    let pod = &spec["template"]["spec"];
    ensure!(pod.get("affinity").is_none() && pod.get("topologySpreadConstraints").is_none(), "{pod}");
    let container = &pod["containers"][0];
    assert_eq!(container["args"], json!(["serve"]));
    let names = |list: &Value| -> Vec<String> {
        let names = list.as_array().into_iter().flatten().filter_map(|one| one["name"].as_str());
        names.map(str::to_owned).collect()
    };
    ensure!(!names(&container["env"]).iter().any(|name| name.ends_with("_DIR") || name.ends_with("_FILE")));
    assert_eq!(
        (names(&pod["volumes"]), names(&container["volumeMounts"])),
        (vec!["run".to_owned()], vec!["run".to_owned()])
    );
    assert_eq!(names(&container["ports"]), ["hub", "admission", "health"]);
    // Both Services reach it, and it has the rights of all roles.
    for service in ["nudge-injector", "nudge-hub"] {
        assert_eq!(rendered[&format!("Service/{service}")]["spec"]["selector"], spec["selector"]["matchLabels"]);
    }
    let account = json!([{"kind": "ServiceAccount", "name": "nudge-injector", "namespace": NAMESPACE}]);
    let bindings: Vec<_> = rendered.iter().filter(|(title, _)| title.contains("RoleBinding/")).collect();
    assert_eq!(bindings.len(), 7);
    ensure!(bindings.iter().all(|(_, binding)| binding["subjects"] == account), "{bindings:?}");
    let ports = rendered["NetworkPolicy/nudge-injector"]["spec"]["ingress"].to_string();
    ensure!(["8443", "9443", "8080"].iter().all(|port| ports.contains(port)), "{ports}");
    ensure!(!rendered.keys().any(|title| title == "ServiceAccount/nudge-hub" || title == "NetworkPolicy/nudge-certs"));
    Ok(())
}

/// Returns whether a role lets its account change webhook configurations.
fn patches_webhooks(role: &Value) -> bool {
    let rules = role["rules"].as_array().into_iter().flatten();
    rules.clone().any(|rule| rule["apiGroups"].to_string().contains("admissionregistration"))
}

#[test]
fn with_cert_manager_nothing_may_change_a_webhook_configuration() -> Result<()> {
    let Some(rendered) = render(&overlay("cert-manager"))? else { return Ok(()) };
    let (rendered, base) = (by_title(documents(&rendered)?)?, by_title(documents(&base()?)?)?);
    ensure!(base.values().any(patches_webhooks), "the base has a role that may");
    let still: Vec<_> = rendered.iter().filter(|(_, role)| patches_webhooks(role)).collect();
    ensure!(still.is_empty(), "{still:?}");
    // Nothing of the role certs is left, and no Secret that cert-manager or the admin makes.
    let left: Vec<_> = rendered.iter().filter(|(_, object)| object.to_string().contains("nudge-certs")).collect();
    ensure!(left.is_empty(), "{left:?}");
    ensure!(!rendered.keys().any(|title| title.starts_with("Secret/")));
    let serving = &rendered["Certificate/nudge-serving"];
    for kind in ["Mutating", "Validating"] {
        let annotations = &rendered[&format!("{kind}WebhookConfiguration/nudge-injector")]["metadata"]["annotations"];
        let named = format!("{NAMESPACE}/{}", serving["metadata"]["name"].as_str().context("no name")?);
        assert_eq!(annotations["cert-manager.io/inject-ca-from"], json!(named));
    }
    // The Secret that is mounted, and the names by which the API server and agents call.
    let volumes = rendered["Deployment/nudge-hub"]["spec"]["template"]["spec"]["volumes"].to_string();
    ensure!(volumes.contains(&serving["spec"]["secretName"].to_string()), "{volumes}");
    let names = serving["spec"]["dnsNames"].to_string();
    for service in ["nudge-injector", "nudge-hub"] {
        ensure!(names.contains(&format!("\"{service}.{NAMESPACE}.svc\"")), "{names}");
    }
    Ok(())
}

/// A role that listens to clients may not create objects that it should only change, and may not change webhooks.
#[test]
fn no_role_that_listens_may_patch_webhooks_or_create_secrets() -> Result<()> {
    for role in
        documents(&base()?)?.iter().filter(|object| object["kind"].as_str().is_some_and(|kind| kind.ends_with("Role")))
    {
        let name = role["metadata"]["name"].as_str().context("no name")?;
        let of_certs = role["kind"] == "ClusterRole" && name == "nudge-certs";
        assert_eq!(patches_webhooks(role), of_certs, "{name}");
        for rule in role["rules"].as_array().context("no rules")? {
            let (resources, verbs) = (rule["resources"].to_string(), rule["verbs"].to_string());
            ensure!(!verbs.contains('*') && !resources.contains('*') && !verbs.contains("bind"), "{name}: {rule}");
            let kept = resources.contains("\"secrets\"") || resources.contains("\"leases\"");
            // Nobody but an admin of a namespace binds the first, and an admin of the cluster the other, to users
            // alone.
            let creates = ["nudge-publish-secrets", "nudge-restore"].contains(&name);
            ensure!(!kept || !verbs.contains("create") || creates, "{name}: {rule}");
            let of_users = ["nudge-edit", "nudge-restore"];
            let of_accounts = ["nudge-namespace", "nudge-namespace-hub", "nudge-restart", "nudge-certs"];
            let allowed = [&of_users[..], &of_accounts].concat();
            ensure!(!verbs.contains("patch") || allowed.contains(&name), "{name}: {rule}");
        }
    }
    Ok(())
}

/// The overlays with each set of components that can be had together with it.
pub(crate) const INSTALLATIONS: [(&str, &[&str]); 12] = [
    ("base", &[]),
    ("base", &["sources", "analysis"]),
    ("overlays/single-replica", &[]),
    ("overlays/cert-manager", &["sources", "analysis"]),
    ("overlays/current", &[]),
    ("overlays/current", &["sources", "analysis", "cluster-reads"]),
    ("overlays/current", &["all-namespaces"]),
    ("overlays/current", &["sources", "all-namespaces"]),
    ("overlays/current", &["analysis", "all-namespaces"]),
    ("overlays/current", &["sources", "analysis", "all-namespaces"]),
    ("overlays/all-namespaces", &[]),
    ("overlays/all-namespaces", &["sources", "analysis"]),
];

/// Who takes over a pod of the hub or of the sources can't sign what admission notes about users.
#[test]
fn only_the_role_control_mounts_the_key_of_notes() -> Result<()> {
    let components = deploy().join("components");
    let (sources, analysis) = (components.join("sources/sources.yaml"), components.join("analysis/analysis.yaml"));
    let mut mounted = BTreeMap::new();
    for object in documents(&[base()?, read(&sources)?, read(&analysis)?].join("\n---\n"))? {
        let pod = &object["spec"]["template"]["spec"];
        let (name, text) = (object["metadata"]["name"].as_str().unwrap_or_default(), pod.to_string());
        if !text.contains("nudge-content-key") {
            continue;
        }
        ensure!(text.matches("nudge-content-key").count() == 1, "{name}: {text}");
        let volumes = pod["volumes"].as_array().into_iter().flatten();
        let items = volumes.filter(|volume| volume["secret"]["secretName"] == "nudge-content-key");
        mounted.insert(name.to_owned(), items.map(|volume| volume["secret"]["items"].clone()).collect::<Vec<_>>());
    }
    let [content, notes] = ["content", "notes"].map(|entry| json!({"key": entry, "path": entry}));
    let expected = [
        ("nudge-hub", json!([content])),
        ("nudge-injector", json!([content, notes])),
        ("nudge-sources", json!([content])),
    ];
    assert_eq!(mounted, expected.map(|(name, items)| (name.to_owned(), vec![items])).into());
    Ok(())
}

#[test]
fn what_is_asked_about_every_namespace_is_so_in_every_installation() -> Result<()> {
    for (resource, components) in INSTALLATIONS {
        let Some(objects) = installed(resource, components)? else { return Ok(()) };
        assert_eq!(everywhere(&objects)?, EVERYWHERE, "{resource} {components:?}");
    }
    Ok(())
}

/// A role that looks for namespaces by their label finds none of those that are enabled without it.
#[test]
fn with_all_namespaces_every_role_that_asks_knows_it() -> Result<()> {
    let Some(objects) = installed("overlays/current", &["sources", "analysis", "all-namespaces"])? else {
        return Ok(());
    };
    for name in ["nudge-injector", "nudge-hub", "nudge-sources"] {
        let variables = &objects[&format!("Deployment/{name}")]["spec"]["template"]["spec"]["containers"][0]["env"];
        let expected = json!({"name": "NUDGE_ALL_NAMESPACES", "value": "true"});
        ensure!(variables.as_array().is_some_and(|all| all.contains(&expected)), "{name}: {variables}");
    }
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
        if ["nudge-versions-marked", "nudge-pods-status"]
            .iter()
            .any(|name| *title == format!("ValidatingAdmissionPolicy/{name}"))
        {
            ensure!(object["spec"]["matchConstraints"].get("namespaceSelector").is_none(), "{object}");
            continue;
        }
        match object["kind"].as_str().context("no kind")? {
            "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => {
                let webhooks = object["webhooks"].as_array().context("no webhooks")?;
                let of_enabled =
                    webhooks.iter().filter(|webhook| !EVERYWHERE.iter().any(|name| webhook["name"] == *name));
                selectors.extend(of_enabled.map(|webhook| &webhook["namespaceSelector"]));
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
    for name in ["nudge-injector", "nudge-hub"] {
        let variables = &objects[&format!("Deployment/{name}")]["spec"]["template"]["spec"]["containers"][0]["env"];
        let variables = variables.as_array().context("no variables")?;
        for variable in [("NUDGE_ALL_NAMESPACES", "true"), ("NUDGE_READS", "cluster")] {
            ensure!(variables.contains(&json!({"name": variable.0, "value": variable.1})), "{variables:?}");
        }
        ensure!(variables.len() > 5, "the others stay: {variables:?}");
    }
    let bound = objects.keys().filter_map(|title| title.strip_prefix("ClusterRoleBinding/"));
    let expected = ["nudge-certs", "nudge-hub", "nudge-injector", "nudge-namespace", "nudge-namespace-hub"];
    assert_eq!(bound.collect::<Vec<_>>(), expected);
    Ok(())
}

/// The rules of the component are those that the roles of a namespace have for reading.
#[test]
fn cluster_wide_reads_are_the_reads_of_a_namespace() -> Result<()> {
    let wide = by_title(documents(&read(&deploy().join("components/cluster-reads/rbac.yaml"))?)?)?;
    let bound = by_title(documents(&base()?)?)?;
    for (wide_name, name) in
        [("nudge-cluster-reads", "nudge-namespace"), ("nudge-cluster-reads-hub", "nudge-namespace-hub")]
    {
        let reads = |role: &Value| -> BTreeSet<(String, String)> {
            let rules = role["rules"].as_array().into_iter().flatten();
            let pairs = rules.flat_map(|rule| {
                let verbs = rule["verbs"].as_array().into_iter().flatten().filter_map(Value::as_str);
                let verbs = verbs.filter(|verb| ["get", "list", "watch"].contains(verb));
                let description = format!("{}{}", rule["apiGroups"], rule["resources"]);
                verbs.map(|verb| (description.clone(), verb.to_owned())).collect::<Vec<_>>()
            });
            pairs.collect()
        };
        let wide = reads(&wide[&format!("ClusterRole/{wide_name}")]);
        ensure!(!wide.is_empty());
        assert_eq!(wide, reads(&bound[&format!("ClusterRole/{name}")]), "{name}");
    }
    Ok(())
}

/// `digest:` of a kustomization sets the images of the agent, too.
#[test]
fn images_may_be_named_by_digest() -> Result<()> {
    let home = tempfile::tempdir()?;
    std::os::unix::fs::symlink(deploy().canonicalize()?, home.path().join("deploy"))?;
    let folder = home.path().join("site");
    fs::create_dir(&folder)?;
    let digest = format!("sha256:{}", "0123456789abcdef".repeat(4));
    let names = ["nudge-injector", "nudge-agent", "nudge-agent-kill"];
    let images = names
        .map(|name| format!("- {{name: {name}, newName: registry.example.com/{name}, digest: '{digest}'}}\n"))
        .concat();
    let head =
        "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [../deploy/overlays/current]\n";
    fs::write(folder.join("kustomization.yaml"), format!("{head}images:\n{images}"))?;
    let Some(rendered) = render(&folder)? else { return Ok(()) };
    let objects = by_title(documents(&rendered)?)?;
    let image = |name: &str| format!("registry.example.com/{name}@{digest}");
    for name in ["nudge-injector", "nudge-hub", "nudge-certs"] {
        let container = &objects[&format!("Deployment/{name}")]["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container["image"], json!(image("nudge-injector")), "{name}");
    }
    let variables = &objects["Deployment/nudge-injector"]["spec"]["template"]["spec"]["containers"][0]["env"];
    for (variable, name) in [("NUDGE_AGENT_IMAGE", "nudge-agent"), ("NUDGE_AGENT_KILL_IMAGE", "nudge-agent-kill")] {
        let expected = json!({"name": variable, "value": image(name)});
        ensure!(variables.as_array().is_some_and(|all| all.contains(&expected)), "{variables}");
    }
    Ok(())
}

/// The example in deploy/README.md of an installation with images from elsewhere.
#[test]
fn images_and_pull_secrets_are_set_as_the_page_says() -> Result<()> {
    let page = read(&deploy().join("README.md"))?;
    let mut blocks = page.split("```").skip(1).step_by(2);
    let block = blocks
        .find(|block| block.starts_with("yaml") && block.contains("registry.example.com"))
        .context("the page has no such example")?;
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
    for name in ["nudge-injector", "nudge-hub", "nudge-certs"] {
        let pod = &objects[&format!("Deployment/{name}")]["spec"]["template"]["spec"];
        assert_eq!(pod["imagePullSecrets"], json!([{"name": "registry"}]), "{name}");
        assert_eq!(pod["containers"][0]["image"], "registry.example.com/nudge-injector:0.1.0", "{name}");
    }
    let container = &objects["Deployment/nudge-injector"]["spec"]["template"]["spec"]["containers"][0];
    let value = |name: &str| {
        let variables = container["env"].as_array().into_iter().flatten();
        variables.clone().find(|variable| variable["name"] == name).map(|variable| variable["value"].clone())
    };
    assert_eq!(value("NUDGE_AGENT_IMAGE"), Some(json!("registry.example.com/nudge-agent:0.1.0")));
    assert_eq!(value("NUDGE_AGENT_KILL_IMAGE"), Some(json!("registry.example.com/nudge-agent-kill:0.1.0")));
    assert_eq!(value("NUDGE_IMAGE_PULL_SECRETS"), Some(json!("registry")));
    Ok(())
}
