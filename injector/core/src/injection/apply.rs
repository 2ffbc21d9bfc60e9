//! The difference between a pod and what it is to be, as small changes. What is there and does is left as it is.

use std::collections::BTreeMap;

use json_patch::{Patch, PatchError};
use nudge_protocol::{labels, pod};
use serde_json::{Value, json};

use super::container_patch::ContainerPatch;
use super::covers::covers;
use super::edit::{Edit, Step, place};
use super::remarks;
use super::user_pod::{LISTS, POD_IP, is_agent, is_our_mount, is_our_volume, items, our_variables};

/// The agent's version, which stands in the pod's label.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What is to be in the pod.
pub(super) struct Plan<'a> {
    pub(super) agent: Value,
    /// The list in which the agent stands first.
    pub(super) list: &'static str,
    pub(super) volumes: &'a [Value],
    /// By the containers' names.
    pub(super) container_patch: BTreeMap<String, ContainerPatch>,
    pub(super) share_processes: bool,
    pub(super) pull_secrets: &'a [String],
    pub(super) warnings: &'a [String],
}

/// The changes that make `pod` so.
pub(super) fn apply(pod: &Value, plan: &Plan<'_>) -> Result<Patch, PatchError> {
    let mut edit = Edit::new(pod);
    volumes(&mut edit, plan.volumes)?;
    agent(&mut edit, plan)?;
    for list in LISTS {
        let count = items(&edit.object()["spec"], list).count();
        for at in 0..count {
            container(&mut edit, list, at, plan)?;
        }
    }
    if plan.share_processes && edit.object()["spec"]["shareProcessNamespace"] != true {
        edit.add(place!["spec", "shareProcessNamespace"], json!(true))?;
    }
    for name in plan.pull_secrets {
        let secret = json!({"name": name});
        if !items(&edit.object()["spec"], "imagePullSecrets").any(|(_, present)| covers(present, &secret)) {
            edit.list(place!["spec", "imagePullSecrets"])?;
            edit.add(place!["spec", "imagePullSecrets", Step::End], secret)?;
        }
    }
    let injected_before = edit.object()["metadata"]["labels"][labels::AGENT] == VERSION;
    if !injected_before {
        edit.map(place!["metadata"])?;
        edit.map(place!["metadata", "labels"])?;
        edit.add(place!["metadata", "labels", labels::AGENT], json!(VERSION))?;
    }
    remarks::write(&mut edit, plan.warnings, injected_before)?;
    Ok(edit.patch())
}

fn volumes(edit: &mut Edit, request: &[Value]) -> Result<(), PatchError> {
    let named = |name: &Value| request.iter().find(|request| request["name"] == *name);
    let present: Vec<(usize, Value)> = items(&edit.object()["spec"], "volumes")
        .filter(|(_, volume)| is_our_volume(volume))
        .map(|(at, volume)| (at, volume.clone()))
        .collect();
    // From the end, so that the places before stay what they are.
    for (at, volume) in present.iter().rev() {
        match named(&volume["name"]) {
            Some(request) if covers(volume, request) => {}
            Some(request) => edit.replace(place!["spec", "volumes", *at], request.clone())?,
            None => edit.remove(place!["spec", "volumes", *at])?,
        }
    }
    for volume in
        request.iter().filter(|request| !present.iter().any(|(_, present)| present["name"] == request["name"]))
    {
        edit.list(place!["spec", "volumes"])?;
        edit.add(place!["spec", "volumes", Step::End], volume.clone())?;
    }
    Ok(())
}

/// Puts the agent in front of all others: it must run before those that use it.
fn agent(edit: &mut Edit, plan: &Plan<'_>) -> Result<(), PatchError> {
    let same_version = edit.object()["metadata"]["labels"][labels::AGENT] == VERSION;
    let mut present: Vec<(&str, usize, bool)> = Vec::new();
    for list in LISTS {
        for (at, container) in items(&edit.object()["spec"], list).filter(|(_, container)| is_agent(container)) {
            present.push((list, at, does(container, &plan.agent, same_version)));
        }
    }
    match present[..] {
        [(list, 0, true)] if list == plan.list => Ok(()),
        [(list, at, true)] if list == plan.list => edit.shift(place!["spec", list, at], place!["spec", list, 0]),
        _ => {
            for (list, at, _) in present.into_iter().rev() {
                edit.remove(place!["spec", list, at])?;
            }
            edit.list(place!["spec", plan.list])?;
            edit.add(place!["spec", plan.list, 0], plan.agent.clone())
        }
    }
}

/// Whether the agent that is there does. Its image and resources may have been changed for good reasons since (a mirror of images,
/// a vertical autoscaler), as long as it is of this version.
fn does(present: &Value, request: &Value, same_version: bool) -> bool {
    let mut request = request.clone();
    if let Some(fields) = request.as_object_mut().filter(|_| same_version) {
        for others in ["image", "imagePullPolicy", "resources"] {
            fields.remove(others);
        }
    }
    covers(present, &request) && !has_more(present, &request)
}

/// Whether it has something of ours that is not wanted any more. What others have added is theirs.
fn has_more(present: &Value, request: &Value) -> bool {
    let strange = |list: &str, is_ours: fn(&Value) -> bool| {
        let known = |one: &Value| items(request, list).any(|(_, request)| request["name"] == one["name"]);
        items(present, list).any(|(_, one)| is_ours(one) && !known(one))
    };
    let is_setting = |variable: &Value| variable["name"].as_str().is_some_and(|name| name.starts_with("NUDGE_"));
    let capabilities = |agent: &Value| agent["securityContext"]["capabilities"].clone();
    strange("env", is_setting)
        || strange("volumeMounts", is_our_volume)
        || capabilities(present) != capabilities(request)
}

fn container(edit: &mut Edit, list: &'static str, at: usize, plan: &Plan<'_>) -> Result<(), PatchError> {
    let container = &edit.object()["spec"][list][at];
    let name = container["name"].as_str().unwrap_or_default().to_owned();
    if name == pod::AGENT_CONTAINER {
        return Ok(());
    }
    let none = ContainerPatch::default();
    let request = plan.container_patch.get(&name).unwrap_or(&none);
    let variables = our_variables(container);
    let mounts: Vec<(usize, Value)> = items(container, "volumeMounts")
        .filter(|(_, mount)| is_our_mount(mount))
        .map(|(at, mount)| (at, mount.clone()))
        .collect();
    if !has_variables(container, &variables, &request.variables) {
        for index in variables.iter().rev() {
            edit.remove(place!["spec", list, at, "env", *index])?;
        }
        // First, so that the user's own variables can refer to them.
        for variable in request.variables.iter().rev() {
            edit.list(place!["spec", list, at, "env"])?;
            edit.add(place!["spec", list, at, "env", 0], variable.clone())?;
        }
    }
    let all = request.mounts.iter().all(|request| mounts.iter().any(|(_, present)| covers(present, request)));
    if !all || mounts.len() != request.mounts.len() {
        for (index, _) in mounts.iter().rev() {
            edit.remove(place!["spec", list, at, "volumeMounts", *index])?;
        }
        for mount in &request.mounts {
            edit.list(place!["spec", list, at, "volumeMounts"])?;
            edit.add(place!["spec", list, at, "volumeMounts", Step::End], mount.clone())?;
        }
    }
    Ok(())
}

/// Whether the variables at `places` are those that are wanted. They may stand anywhere, as long as the address comes before what it is used in.
fn has_variables(container: &Value, places: &[usize], request: &[Value]) -> bool {
    let place = |name: &Value| places.iter().position(|at| container["env"][*at]["name"] == *name);
    let there =
        |request: &Value| place(&request["name"]).is_some_and(|at| covers(&container["env"][places[at]], request));
    let address = place(&json!(POD_IP));
    let endpoint = place(&json!(nudge_protocol::env::ENDPOINT));
    places.len() == request.len()
        && request.iter().all(there)
        && (address.is_none() || endpoint.is_none() || address < endpoint)
}
