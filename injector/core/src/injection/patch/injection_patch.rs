//! The patch from a pod to the injected pod. Fields that already match stay as they are.

use std::collections::BTreeMap;

use json_patch::{Patch, PatchError};
use nudge_protocol::{labels, pod};
use serde_json::{Value, json};

use super::container_patch::ContainerPatch;
use super::coverage::covers;
use super::patch_builder::{END, PatchBuilder, pointer};
use super::warnings;
use super::{backup_exclusion, birth_labels};
use crate::injection::moved_mounts::MovedMounts;
use crate::injection::user_pod::{
    LISTS, POD_IP, is_agent, is_our_mount, is_our_volume, items, originals, our_variables,
};

/// The agent's version, the value of the pod's label.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The plan of an injection: the properties of the injected pod.
pub(in crate::injection) struct InjectionPlan<'a> {
    pub(in crate::injection) agent: Value,
    /// The list that begins with the agent.
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

/// Returns the patch that makes `pod` match the plan.
pub(in crate::injection) fn injection_patch(pod: &Value, plan: &InjectionPlan<'_>) -> Result<Patch, PatchError> {
    let mut builder = PatchBuilder::new(pod);
    let original_names = originals(&pod["spec"]);
    update_volumes(&mut builder, plan.volumes)?;
    update_agent(&mut builder, plan)?;
    for list in LISTS {
        let count = items(&builder.object()["spec"], list).count();
        for at in 0..count {
            move_mounts(&mut builder, list, at, plan, &original_names)?;
            update_container(&mut builder, list, at, plan)?;
        }
    }
    if plan.share_processes && builder.object()["spec"]["shareProcessNamespace"] != true {
        builder.add(pointer!["spec", "shareProcessNamespace"], json!(true))?;
    }
    for name in plan.pull_secrets {
        let secret = json!({"name": name});
        if !items(&builder.object()["spec"], "imagePullSecrets").any(|(_, present)| covers(present, &secret)) {
            builder.create_list(pointer!["spec", "imagePullSecrets"])?;
            builder.add(pointer!["spec", "imagePullSecrets", END], secret)?;
        }
    }
    let injected_before = builder.object()["metadata"]["labels"][labels::AGENT] == VERSION;
    if !injected_before {
        builder.create_map(pointer!["metadata"])?;
        builder.create_map(pointer!["metadata", "labels"])?;
        builder.add(pointer!["metadata", "labels", labels::AGENT], json!(VERSION))?;
    }
    backup_exclusion::write(&mut builder, plan.volumes)?;
    warnings::write(&mut builder, plan.warnings, injected_before)?;
    birth_labels::write(&mut builder, plan.birth_labels)?;
    Ok(builder.patch())
}

fn update_volumes(builder: &mut PatchBuilder, required: &[Value]) -> Result<(), PatchError> {
    let find_required = |name: &Value| required.iter().find(|required| required["name"] == *name);
    let present: Vec<(usize, Value)> = items(&builder.object()["spec"], "volumes")
        .filter(|(_, volume)| is_our_volume(volume))
        .map(|(at, volume)| (at, volume.clone()))
        .collect();
    // Changes begin at the end, so that earlier indexes stay valid.
    for (at, volume) in present.iter().rev() {
        match find_required(&volume["name"]) {
            Some(required) if covers(volume, required) => {}
            Some(required) => builder.replace(pointer!["spec", "volumes", *at], required.clone())?,
            None => builder.remove(pointer!["spec", "volumes", *at])?,
        }
    }
    for volume in
        required.iter().filter(|required| !present.iter().any(|(_, present)| present["name"] == required["name"]))
    {
        builder.create_list(pointer!["spec", "volumes"])?;
        builder.add(pointer!["spec", "volumes", END], volume.clone())?;
    }
    Ok(())
}

/// Puts the agent before all other containers: it must run before the containers that use it.
fn update_agent(builder: &mut PatchBuilder, plan: &InjectionPlan<'_>) -> Result<(), PatchError> {
    let same_version = builder.object()["metadata"]["labels"][labels::AGENT] == VERSION;
    let mut present: Vec<(&str, usize, bool)> = Vec::new();
    for list in LISTS {
        for (at, container) in items(&builder.object()["spec"], list).filter(|(_, container)| is_agent(container)) {
            present.push((list, at, matches(container, &plan.agent, same_version)));
        }
    }
    match present[..] {
        [(list, 0, true)] if list == plan.list => Ok(()),
        [(list, at, true)] if list == plan.list => {
            builder.move_element(pointer!["spec", list, at], pointer!["spec", list, 0])
        }
        _ => {
            for (list, at, _) in present.into_iter().rev() {
                builder.remove(pointer!["spec", list, at])?;
            }
            builder.create_list(pointer!["spec", plan.list])?;
            builder.add(pointer!["spec", plan.list, 0], plan.agent.clone())
        }
    }
}

/// Returns whether the present agent matches the required agent. Another image or other resources, as from a mirror of
/// images or a vertical autoscaler, are kept while the agent is of this version.
fn matches(present: &Value, required: &Value, same_version: bool) -> bool {
    let mut required = required.clone();
    if let Some(fields) = required.as_object_mut().filter(|_| same_version) {
        for kept in ["image", "imagePullPolicy", "resources"] {
            fields.remove(kept);
        }
    }
    covers(present, &required) && !has_obsolete(present, &required)
}

/// Returns whether the present agent has something of Nudge's that is no longer required. Additions of others stay.
fn has_obsolete(present: &Value, required: &Value) -> bool {
    let obsolete = |list: &str, is_ours: fn(&Value) -> bool| {
        let is_required = |item: &Value| items(required, list).any(|(_, required)| required["name"] == item["name"]);
        items(present, list).any(|(_, item)| is_ours(item) && !is_required(item))
    };
    let is_setting = |variable: &Value| variable["name"].as_str().is_some_and(|name| name.starts_with("NUDGE_"));
    let capabilities = |agent: &Value| agent["securityContext"]["capabilities"].clone();
    let rules = |agent: &Value| agent["restartPolicyRules"].as_array().map_or(0, Vec::len);
    obsolete("env", is_setting)
        || rules(present) > rules(required)
        || obsolete("volumeMounts", is_our_volume)
        || capabilities(present) != capabilities(required)
}

/// Sets the volumes of a container's mounts: the agent's volumes, or the pod's own again if the mounts no longer move.
fn move_mounts(
    builder: &mut PatchBuilder,
    list: &'static str,
    at: usize,
    plan: &InjectionPlan<'_>,
    originals: &BTreeMap<String, String>,
) -> Result<(), PatchError> {
    let container = &builder.object()["spec"][list][at];
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
            builder.replace(pointer!["spec", list, at, "volumeMounts", index, "name"], json!(name))?;
        }
        if target.is_some() && mount["readOnly"] != true {
            builder.add(pointer!["spec", list, at, "volumeMounts", index, "readOnly"], json!(true))?;
        }
    }
    Ok(())
}

fn update_container(
    builder: &mut PatchBuilder,
    list: &'static str,
    at: usize,
    plan: &InjectionPlan<'_>,
) -> Result<(), PatchError> {
    let container = &builder.object()["spec"][list][at];
    let name = container["name"].as_str().unwrap_or_default().to_owned();
    if name == pod::AGENT_CONTAINER {
        return Ok(());
    }
    let empty = ContainerPatch::default();
    let required = plan.container_patches.get(&name).unwrap_or(&empty);
    let variables = our_variables(container);
    let mounts: Vec<(usize, Value)> = items(container, "volumeMounts")
        .filter(|(_, mount)| is_our_mount(mount))
        .map(|(at, mount)| (at, mount.clone()))
        .collect();
    if !has_variables(container, &variables, &required.variables) {
        for index in variables.iter().rev() {
            builder.remove(pointer!["spec", list, at, "env", *index])?;
        }
        // The added variables come first, so that the user's own variables can refer to them.
        for variable in required.variables.iter().rev() {
            builder.create_list(pointer!["spec", list, at, "env"])?;
            builder.add(pointer!["spec", list, at, "env", 0], variable.clone())?;
        }
    }
    let has_all = required.mounts.iter().all(|required| mounts.iter().any(|(_, present)| covers(present, required)));
    if !has_all || mounts.len() != required.mounts.len() {
        for (index, _) in mounts.iter().rev() {
            builder.remove(pointer!["spec", list, at, "volumeMounts", *index])?;
        }
        for mount in &required.mounts {
            builder.create_list(pointer!["spec", list, at, "volumeMounts"])?;
            builder.add(pointer!["spec", list, at, "volumeMounts", END], mount.clone())?;
        }
    }
    Ok(())
}

/// Returns whether the variables at `indexes` are the required ones. They may be anywhere, as long as the address comes
/// before the endpoint that refers to it.
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
