//! The difference between a pod and the injected pod, as a patch. What already matches stays as it is.

use std::collections::BTreeMap;

use json_patch::{Patch, PatchError};
use nudge_protocol::{labels, pod};
use serde_json::{Value, json};

use super::birth_labels;
use super::container_patch::ContainerPatch;
use super::covers::covers;
use super::edit::{Edit, Step, steps};
use super::warnings;
use crate::injection::moved_mounts::MovedMounts;
use crate::injection::user_pod::{
    LISTS, POD_IP, is_agent, is_our_mount, is_our_volume, items, originals, our_variables,
};

/// The agent's version, the value of the pod's label.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What the injected pod has.
pub(in crate::injection) struct Plan<'a> {
    pub(in crate::injection) agent: Value,
    /// The list in which the agent comes first.
    pub(in crate::injection) list: &'static str,
    pub(in crate::injection) volumes: &'a [Value],
    /// The volumes that mounts of the containers with patches move to.
    pub(in crate::injection) moved: &'a MovedMounts,
    /// The patches of containers, by name.
    pub(in crate::injection) container_patches: BTreeMap<String, ContainerPatch>,
    pub(in crate::injection) share_processes: bool,
    pub(in crate::injection) pull_secrets: &'a [String],
    pub(in crate::injection) warnings: &'a [String],
    /// Whether the labels that the pod is created with are noted.
    pub(in crate::injection) birth_labels: bool,
}

/// The patch that makes `pod` match the plan.
pub(in crate::injection) fn apply(pod: &Value, plan: &Plan<'_>) -> Result<Patch, PatchError> {
    let mut edit = Edit::new(pod);
    let originals = originals(&pod["spec"]);
    volumes(&mut edit, plan.volumes)?;
    agent(&mut edit, plan)?;
    for list in LISTS {
        let count = items(&edit.object()["spec"], list).count();
        for at in 0..count {
            move_mounts(&mut edit, list, at, plan, &originals)?;
            container(&mut edit, list, at, plan)?;
        }
    }
    if plan.share_processes && edit.object()["spec"]["shareProcessNamespace"] != true {
        edit.add(steps!["spec", "shareProcessNamespace"], json!(true))?;
    }
    for name in plan.pull_secrets {
        let secret = json!({"name": name});
        if !items(&edit.object()["spec"], "imagePullSecrets").any(|(_, present)| covers(present, &secret)) {
            edit.list(steps!["spec", "imagePullSecrets"])?;
            edit.add(steps!["spec", "imagePullSecrets", Step::End], secret)?;
        }
    }
    let injected_before = edit.object()["metadata"]["labels"][labels::AGENT] == VERSION;
    if !injected_before {
        edit.map(steps!["metadata"])?;
        edit.map(steps!["metadata", "labels"])?;
        edit.add(steps!["metadata", "labels", labels::AGENT], json!(VERSION))?;
    }
    warnings::write(&mut edit, plan.warnings, injected_before)?;
    birth_labels::write(&mut edit, plan.birth_labels)?;
    Ok(edit.patch())
}

fn volumes(edit: &mut Edit, required: &[Value]) -> Result<(), PatchError> {
    let named = |name: &Value| required.iter().find(|required| required["name"] == *name);
    let present: Vec<(usize, Value)> = items(&edit.object()["spec"], "volumes")
        .filter(|(_, volume)| is_our_volume(volume))
        .map(|(at, volume)| (at, volume.clone()))
        .collect();
    // From the end, so that the indexes before stay valid.
    for (at, volume) in present.iter().rev() {
        match named(&volume["name"]) {
            Some(required) if covers(volume, required) => {}
            Some(required) => edit.replace(steps!["spec", "volumes", *at], required.clone())?,
            None => edit.remove(steps!["spec", "volumes", *at])?,
        }
    }
    for volume in
        required.iter().filter(|required| !present.iter().any(|(_, present)| present["name"] == required["name"]))
    {
        edit.list(steps!["spec", "volumes"])?;
        edit.add(steps!["spec", "volumes", Step::End], volume.clone())?;
    }
    Ok(())
}

/// Puts the agent before all others: it must run before the containers that use it.
fn agent(edit: &mut Edit, plan: &Plan<'_>) -> Result<(), PatchError> {
    let same_version = edit.object()["metadata"]["labels"][labels::AGENT] == VERSION;
    let mut present: Vec<(&str, usize, bool)> = Vec::new();
    for list in LISTS {
        for (at, container) in items(&edit.object()["spec"], list).filter(|(_, container)| is_agent(container)) {
            present.push((list, at, matches(container, &plan.agent, same_version)));
        }
    }
    match present[..] {
        [(list, 0, true)] if list == plan.list => Ok(()),
        [(list, at, true)] if list == plan.list => edit.shift(steps!["spec", list, at], steps!["spec", list, 0]),
        _ => {
            for (list, at, _) in present.into_iter().rev() {
                edit.remove(steps!["spec", list, at])?;
            }
            edit.list(steps!["spec", plan.list])?;
            edit.add(steps!["spec", plan.list, 0], plan.agent.clone())
        }
    }
}

/// Returns whether the present agent matches. Somebody may have changed its image or resources for good reasons (a mirror of images, a
/// vertical autoscaler); that is kept while the agent is of this version.
fn matches(present: &Value, required: &Value, same_version: bool) -> bool {
    let mut required = required.clone();
    if let Some(fields) = required.as_object_mut().filter(|_| same_version) {
        for kept in ["image", "imagePullPolicy", "resources"] {
            fields.remove(kept);
        }
    }
    covers(present, &required) && !has_obsolete(present, &required)
}

/// Returns whether it has something of ours that is no longer required. What others have added stays.
fn has_obsolete(present: &Value, required: &Value) -> bool {
    let obsolete = |list: &str, is_ours: fn(&Value) -> bool| {
        let known = |one: &Value| items(required, list).any(|(_, required)| required["name"] == one["name"]);
        items(present, list).any(|(_, one)| is_ours(one) && !known(one))
    };
    let is_setting = |variable: &Value| variable["name"].as_str().is_some_and(|name| name.starts_with("NUDGE_"));
    let capabilities = |agent: &Value| agent["securityContext"]["capabilities"].clone();
    let rules = |agent: &Value| agent["restartPolicyRules"].as_array().map_or(0, Vec::len);
    obsolete("env", is_setting)
        || rules(present) > rules(required)
        || obsolete("volumeMounts", is_our_volume)
        || capabilities(present) != capabilities(required)
}

/// Lets the mounts of a container be of the volumes that the agent keeps, or of the pod's own again where they do not move any more.
fn move_mounts(
    edit: &mut Edit,
    list: &'static str,
    at: usize,
    plan: &Plan<'_>,
    originals: &BTreeMap<String, String>,
) -> Result<(), PatchError> {
    let container = &edit.object()["spec"][list][at];
    if is_agent(container) {
        return Ok(());
    }
    let is_member = container["name"].as_str().is_some_and(|name| plan.container_patches.contains_key(name));
    let mounts: Vec<Value> = items(container, "volumeMounts").map(|(_, mount)| mount.clone()).collect();
    for (index, mount) in mounts.iter().enumerate() {
        let present = mount["name"].as_str().unwrap_or_default();
        let original = originals.get(present).map_or(present, String::as_str);
        let target = is_member.then(|| plan.moved.target(original)).flatten();
        let name = target.unwrap_or(original);
        if name != present {
            edit.replace(steps!["spec", list, at, "volumeMounts", index, "name"], json!(name))?;
        }
        if target.is_some() && mount["readOnly"] != true {
            edit.add(steps!["spec", list, at, "volumeMounts", index, "readOnly"], json!(true))?;
        }
    }
    Ok(())
}

fn container(edit: &mut Edit, list: &'static str, at: usize, plan: &Plan<'_>) -> Result<(), PatchError> {
    let container = &edit.object()["spec"][list][at];
    let name = container["name"].as_str().unwrap_or_default().to_owned();
    if name == pod::AGENT_CONTAINER {
        return Ok(());
    }
    let none = ContainerPatch::default();
    let required = plan.container_patches.get(&name).unwrap_or(&none);
    let variables = our_variables(container);
    let mounts: Vec<(usize, Value)> = items(container, "volumeMounts")
        .filter(|(_, mount)| is_our_mount(mount))
        .map(|(at, mount)| (at, mount.clone()))
        .collect();
    if !has_variables(container, &variables, &required.variables) {
        for index in variables.iter().rev() {
            edit.remove(steps!["spec", list, at, "env", *index])?;
        }
        // First, so that the user's own variables can refer to them.
        for variable in required.variables.iter().rev() {
            edit.list(steps!["spec", list, at, "env"])?;
            edit.add(steps!["spec", list, at, "env", 0], variable.clone())?;
        }
    }
    let all = required.mounts.iter().all(|required| mounts.iter().any(|(_, present)| covers(present, required)));
    if !all || mounts.len() != required.mounts.len() {
        for (index, _) in mounts.iter().rev() {
            edit.remove(steps!["spec", list, at, "volumeMounts", *index])?;
        }
        for mount in &required.mounts {
            edit.list(steps!["spec", list, at, "volumeMounts"])?;
            edit.add(steps!["spec", list, at, "volumeMounts", Step::End], mount.clone())?;
        }
    }
    Ok(())
}

/// Returns whether the variables at `indexes` are the required ones. They may be anywhere, as long as the address comes before the endpoint
/// that refers to it.
fn has_variables(container: &Value, indexes: &[usize], required: &[Value]) -> bool {
    let position = |name: &Value| indexes.iter().position(|at| container["env"][*at]["name"] == *name);
    let is_present = |required: &Value| {
        position(&required["name"]).is_some_and(|at| covers(&container["env"][indexes[at]], required))
    };
    let address = position(&json!(POD_IP));
    let endpoint = position(&json!(nudge_protocol::env::ENDPOINT));
    indexes.len() == required.len()
        && required.iter().all(is_present)
        && (address.is_none() || endpoint.is_none() || address < endpoint)
}
