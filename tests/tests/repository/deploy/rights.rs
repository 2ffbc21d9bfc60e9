//! The rights of Nudge and the API server's requests to it: SECURITY.md agrees with the kustomizations.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::deploy::manifests::installed;
use crate::deploy::rendering::INSTALLATIONS;

/// An account, and the namespace in which it has rights: `*` for all.
type Place = (String, String);

fn texts(value: &Value) -> Vec<&str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Returns the rights of a role, such as `read nodes` or `update leases nudge-hub`.
fn rights(role: &Value) -> BTreeSet<String> {
    let mut all_rights = BTreeSet::<String>::new();
    for rule in role["rules"].as_array().into_iter().flatten() {
        let names = texts(&rule["resourceNames"]);
        for verb in texts(&rule["verbs"]) {
            let verb = if ["get", "list", "watch"].contains(&verb) { "read" } else { verb };
            for resource in texts(&rule["resources"]) {
                if names.is_empty() {
                    all_rights.insert(format!("{verb} {resource}"));
                }
                all_rights.extend(names.iter().map(|name| format!("{verb} {resource} {name}")));
            }
        }
    }
    all_rights
}

/// Returns the rights that the bindings of an installation give.
fn granted_rights(objects: &BTreeMap<String, Value>) -> Result<BTreeMap<Place, BTreeSet<String>>> {
    let mut given = BTreeMap::<Place, BTreeSet<String>>::new();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    for (title, binding) in objects.iter().filter(|(title, _)| title.contains("RoleBinding/")) {
        let kind = text(&binding["roleRef"]["kind"]).context("a binding without a kind")?;
        let name = text(&binding["roleRef"]["name"]).context("a binding without a name")?;
        let role = objects.get(&format!("{kind}/{name}")).with_context(|| format!("{title}: no {kind} {name}"))?;
        let namespace = text(&binding["metadata"]["namespace"]).unwrap_or_else(|| "*".to_owned());
        for subject in binding["subjects"].as_array().into_iter().flatten() {
            let account = text(&subject["name"]).context("a subject without a name")?;
            given.entry((account, namespace.clone())).or_default().extend(rights(role));
        }
    }
    Ok(given)
}

/// What an installation with sources and analysis gives before somebody binds a role in a namespace.
const OUTSIDE: [(&str, &str, &[&str]); 14] = [
    (
        "nudge-injector",
        "*",
        &[
            "read namespaces",
            "read nodes",
            "read customresourcedefinitions versionedconfigs.nudge.dev",
            "read rolloutpolicies",
            "update rolloutpolicies/status",
            "create subjectaccessreviews",
            "create selfsubjectaccessreviews",
            "read rolloutanalyses",
            "create rolloutanalyses",
            "patch rolloutanalyses",
            "delete rolloutanalyses",
        ],
    ),
    (
        "nudge-injector",
        "nudge-system",
        &["read leases nudge-injector", "update leases nudge-injector", "read leases nudge-hub"],
    ),
    ("nudge-hub", "*", &["read namespaces", "create tokenreviews"]),
    ("nudge-hub", "nudge-system", &["read leases nudge-hub", "update leases nudge-hub"]),
    (
        "nudge-certs",
        "*",
        &[
            "read mutatingwebhookconfigurations nudge-injector",
            "patch mutatingwebhookconfigurations nudge-injector",
            "read validatingwebhookconfigurations nudge-injector",
            "patch validatingwebhookconfigurations nudge-injector",
        ],
    ),
    (
        "nudge-certs",
        "nudge-system",
        &[
            "read secrets nudge-authority",
            "update secrets nudge-authority",
            "read secrets nudge-serving",
            "update secrets nudge-serving",
            "read secrets nudge-content-key",
            "update secrets nudge-content-key",
            "create versionedconfigs",
        ],
    ),
    ("nudge-sources", "*", &["read namespaces", "read nodes"]),
    ("nudge-sources", "nudge-system", &["read leases nudge-sources", "update leases nudge-sources"]),
    ("nudge-sources", "kube-system", &["read services", "read endpoints", "read endpointslices"]),
    ("nudge-sources", "default", &["read services kubernetes", "read endpoints kubernetes", "read endpointslices"]),
    (
        "nudge-analysis",
        "*",
        &["read nodes", "read versionedconfigs", "read rolloutanalyses", "patch rolloutanalyses/status"],
    ),
    ("nudge-analysis", "nudge-system", &["read leases nudge-analysis", "update leases nudge-analysis"]),
    ("nudge-analysis", "kube-system", &["read services", "read endpoints", "read endpointslices"]),
    ("nudge-analysis", "default", &["read services kubernetes", "read endpoints kubernetes", "read endpointslices"]),
];

/// What the component cluster-reads adds.
const CLUSTER_READS: [&str; 13] = [
    "versionedconfigs",
    "versionapprovals",
    "configmaps",
    "pods",
    "limitranges",
    "deployments",
    "statefulsets",
    "daemonsets",
    "replicasets",
    "jobs",
    "cronjobs",
    "replicationcontrollers",
    "serviceaccounts",
];

#[test]
fn outside_of_its_namespaces_nudge_has_the_rights_that_the_page_names() -> Result<()> {
    let expected: BTreeMap<Place, BTreeSet<String>> = OUTSIDE
        .into_iter()
        .map(|(account, namespace, rights)| {
            let rights = rights.iter().map(|right| (*right).to_owned()).collect();
            ((account.to_owned(), namespace.to_owned()), rights)
        })
        .collect();
    for resource in ["base", "overlays/current"] {
        let Some(objects) = installed(resource, &["sources", "analysis"])? else { return Ok(()) };
        assert_eq!(granted_rights(&objects)?, expected, "{resource}");
    }
    let Some(objects) = installed("overlays/current", &["sources", "analysis", "cluster-reads"])? else {
        return Ok(());
    };
    let mut extra_rights = BTreeSet::<String>::new();
    for (place, rights) in granted_rights(&objects)? {
        let before = expected.get(&place).with_context(|| format!("{place:?} has no rights without it"))?;
        extra_rights.extend(rights.difference(before).cloned());
    }
    assert_eq!(extra_rights, BTreeSet::from(CLUSTER_READS.map(|resource| format!("read {resource}"))));
    Ok(())
}

/// Returns whether no role of Nudge may have it: everything, pods, Leases, or other rights than its own.
fn is_for_nobody(right: &str) -> bool {
    let (verb, resource) = right.split_once(' ').unwrap_or_default();
    ["*", "bind", "escalate", "impersonate"].contains(&verb)
        || ["*", "pods/exec", "pods/attach", "pods/ephemeralcontainers"].contains(&resource)
        || resource.contains("role")
        || (verb == "create" && (resource == "pods" || resource.starts_with("leases")))
}

#[test]
fn two_roles_create_secrets_and_none_creates_leases_or_pods_or_changes_roles() -> Result<()> {
    // Nobody but an admin of a namespace, or of the cluster, binds the first two, and the other to users alone.
    let creators = ["nudge-publish-secrets", "nudge-sources-secrets", "nudge-restore"];
    for (resource, components) in INSTALLATIONS {
        let Some(objects) = installed(resource, components)? else { return Ok(()) };
        for (title, role) in &objects {
            let Some(("Role" | "ClusterRole", name)) = title.split_once('/') else { continue };
            let role_rights = rights(role);
            let never = role_rights.iter().find(|right| is_for_nobody(right));
            ensure!(never.is_none(), "{resource} {components:?}, {title}: {never:?}");
            let creates = role_rights.iter().any(|right| right.starts_with("create secrets"));
            ensure!(!creates || creators.contains(&name), "{resource} {components:?}: {title} creates Secrets");
            let mut of_webhooks = role_rights.iter().filter(|right| right.contains("webhookconfigurations"));
            let its_own = of_webhooks.all(|right| right.ends_with(" nudge-injector") && name == "nudge-certs");
            ensure!(its_own, "{resource} {components:?}: {title} changes webhooks");
        }
        for (title, binding) in objects.iter().filter(|(title, _)| title.contains("RoleBinding/")) {
            let role = binding["roleRef"]["name"].as_str().unwrap_or_default();
            ensure!(!creators.contains(&role), "{resource} {components:?}: {title} is not for an installation to bind");
        }
    }
    Ok(())
}

#[test]
fn the_api_server_asks_about_enabled_namespaces_and_elsewhere_about_kinds_of_nudge_alone() -> Result<()> {
    let of_versions = json!({"matchExpressions": [{"key": "nudge.dev/config", "operator": "Exists"}]});
    let of_texts = json!({"matchExpressions": [{"key": "nudge.dev/follows", "operator": "Exists"}]});
    let of_questions = json!({"matchExpressions": [{"key": "nudge.dev/contact", "operator": "Exists"}]});
    let expected = BTreeMap::from([
        ("analyses.nudge.dev", ("Fail", vec!["rolloutanalyses", "rolloutanalyses/status"])),
        ("contact.nudge.dev", ("Fail", vec!["versionedconfigs"])),
        ("policies.nudge.dev", ("Ignore", vec!["rolloutpolicies"])),
        ("sources.nudge.dev", ("Fail", vec!["configsources"])),
    ]);
    for (resource, components) in INSTALLATIONS {
        let Some(objects) = installed(resource, components)? else { return Ok(()) };
        let configurations = objects.iter().filter(|(title, _)| title.ends_with("WebhookConfiguration/nudge-injector"));
        let mut everywhere = BTreeMap::new();
        for webhook in configurations.flat_map(|(_, object)| object["webhooks"].as_array().into_iter().flatten()) {
            let name = webhook["name"].as_str().context("a webhook without a name")?;
            let rules = webhook["rules"].as_array().context("a webhook without rules")?;
            let resources: Vec<&str> = rules.iter().flat_map(|rule| texts(&rule["resources"])).collect();
            if webhook["namespaceSelector"] == json!({}) {
                let policy = webhook["failurePolicy"].as_str().context("a webhook without a policy")?;
                let is_narrow = name != "contact.nudge.dev" || webhook["objectSelector"] == of_questions;
                ensure!(is_narrow, "{resource} {components:?}: users create configs without Nudge in every namespace");
                everywhere.insert(name, (policy, resources));
                continue;
            }
            let selector = webhook["namespaceSelector"].to_string();
            ensure!(selector.contains("nudge.dev/enabled"), "{resource} {components:?}, {name}: {selector}");
            let is_said = match resources[..] {
                ["configmaps", "secrets"] => [&of_versions, &of_texts].contains(&&webhook["objectSelector"]),
                ["pods"] => {
                    let conditions = format!("{}{}", webhook["objectSelector"], webhook["matchConditions"]);
                    conditions.contains("nudge.dev/inject")
                }
                ["versionedconfigs" | "versionapprovals" | "configsources"] => true,
                _ => false,
            };
            ensure!(is_said, "{resource} {components:?}: {name} is asked about other objects");
        }
        assert_eq!(everywhere, expected, "{resource} {components:?}");
    }
    Ok(())
}
