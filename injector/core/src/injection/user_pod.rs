//! The pod as its user and other injectors wrote it, without the additions of an earlier injection.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use nudge_protocol::{env, labels, pod as names, volumes};
use serde_json::Value;

use super::refusal::{InjectionRefusal, shorten};
use crate::owners::WorkloadId;

/// The volume with the agent's keys and last good contents.
pub(super) const STATE_VOLUME: &str = "nudge-state";
/// The volume with token, certificate and env file.
pub(super) const SHARE_VOLUME: &str = "nudge-share";
/// The volume with the values as files.
pub(super) const FILES_VOLUME: &str = "nudge-files";
/// The prefix of the names of volumes that the agent keeps in place of the pod's own.
pub(super) const KEPT_VOLUME_PREFIX: &str = "nudge-files-";
/// The volume with containers' variables, which the kubelet reads.
pub(super) const VARIABLES_VOLUME: &str = "nudge-variables";
/// The volume with the agent's token for the hub and the hub's authority.
pub(super) const HUB_VOLUME: &str = "nudge-hub";
/// The prefix of the names of volumes with parts of versions.
pub(super) const BOOTSTRAP_VOLUME_PREFIX: &str = "nudge-bootstrap-";
/// The pod's first address, for the endpoint's URL.
pub(super) const POD_IP: &str = "NUDGE_POD_IP";
/// The two lists of a pod's containers.
pub(super) const LISTS: [&str; 2] = ["initContainers", "containers"];

/// The role of a container, by when it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContainerRole {
    /// The container ends before the main containers start.
    Init,
    /// The container starts before the main containers, and runs alongside them.
    Sidecar,
    /// The container is one of the main containers.
    Main,
}

/// A container that is not the agent.
#[derive(Clone, Debug)]
pub(super) struct UserContainer {
    pub(super) role: ContainerRole,
    pub(super) container: Container,
}

impl UserContainer {
    pub(super) fn name(&self) -> &str {
        &self.container.name
    }
}

#[derive(Clone, Debug)]
pub(super) struct UserPod {
    pub(super) spec: PodSpec,
    /// The containers in the order of the pod, init containers first.
    pub(super) members: Vec<UserContainer>,
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) labels: BTreeMap<String, String>,
    /// The kinds of the pod's owners.
    pub(super) owners: Vec<String>,
    pub(super) workload: Option<WorkloadId>,
    /// The namespace of the pod; empty if only the request says it.
    pub(super) namespace: String,
}

impl UserPod {
    pub(super) fn of(raw: &Value) -> Result<Self, InjectionRefusal> {
        let mut stripped = raw.clone();
        strip(&mut stripped)?;
        let typed: Pod = serde_json::from_value(stripped)
            .map_err(|error| InjectionRefusal(format!("this is not a pod: {error}")))?;
        let spec = typed.spec.ok_or_else(|| InjectionRefusal("this pod has no spec".to_owned()))?;
        let init = spec.init_containers.iter().flatten().map(|container| UserContainer {
            role: if container.restart_policy.as_deref() == Some("Always") {
                ContainerRole::Sidecar
            } else {
                ContainerRole::Init
            },
            container: container.clone(),
        });
        let main = spec
            .containers
            .iter()
            .map(|container| UserContainer { role: ContainerRole::Main, container: container.clone() });
        let members = init.chain(main).collect();
        let meta = typed.metadata;
        Ok(Self {
            members,
            workload: WorkloadId::of(&meta),
            namespace: meta.namespace.unwrap_or_default(),
            annotations: meta.annotations.unwrap_or_default(),
            labels: meta.labels.unwrap_or_default(),
            owners: meta.owner_references.into_iter().flatten().map(|owner| owner.kind).collect(),
            spec,
        })
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.members.iter().map(UserContainer::name)
    }

    /// Returns whether a volume holds the token of a service account.
    pub(super) fn has_token(&self, volume: &str) -> bool {
        let mut volumes = self.spec.volumes.iter().flatten().filter(|other| other.name == volume);
        volumes.any(|volume| {
            let sources = volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten());
            sources.into_iter().any(|source| source.service_account_token.is_some())
        })
    }

    pub(super) fn restart_policy(&self) -> &str {
        self.spec.restart_policy.as_deref().unwrap_or("Always")
    }

    pub(super) fn service_account(&self) -> &str {
        // `serviceAccount` is the older name of the field.
        let names = [&self.spec.service_account_name, &self.spec.service_account];
        let mut names = names.into_iter().flatten().map(String::as_str);
        names.find(|name| !name.is_empty()).unwrap_or("default")
    }

    pub(super) fn member(&self, name: &str) -> Option<&UserContainer> {
        self.members.iter().find(|member| member.name() == name)
    }
}

/// Returns the elements of a list in an object; none if the list is absent or `null`.
pub(super) fn items<'a>(object: &'a Value, list: &str) -> impl DoubleEndedIterator<Item = (usize, &'a Value)> {
    object.get(list).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default().iter().enumerate()
}

fn items_mut<'a>(object: &'a mut Value, list: &str) -> Option<&'a mut Vec<Value>> {
    object.get_mut(list)?.as_array_mut()
}

pub(super) fn is_agent(container: &Value) -> bool {
    container["name"] == names::AGENT_CONTAINER
}

pub(super) fn is_our_volume(volume: &Value) -> bool {
    volume["name"].as_str().is_some_and(is_reserved)
}

fn is_reserved(name: &str) -> bool {
    matches!(name, STATE_VOLUME | SHARE_VOLUME | FILES_VOLUME | VARIABLES_VOLUME | HUB_VOLUME)
        || name.starts_with(BOOTSTRAP_VOLUME_PREFIX)
        || name.starts_with(KEPT_VOLUME_PREFIX)
}

/// Returns whether a mount of a container other than the agent is one that injection adds.
pub(super) fn is_our_mount(mount: &Value) -> bool {
    mount["name"] == FILES_VOLUME || (mount["name"] == SHARE_VOLUME && mount["mountPath"] == names::CONTAINER_PATH)
}

/// Returns whether an earlier injection patched the container. Otherwise its variables are the user's, even if they
/// look like ours.
fn is_patched(container: &Value) -> bool {
    items(container, "volumeMounts").any(|(_, mount)| mount["name"] == SHARE_VOLUME && is_our_mount(mount))
}

/// Returns the indexes of the variables that an earlier injection added to a container, also by earlier annotations.
pub(super) fn our_variables(container: &Value) -> Vec<usize> {
    if !is_patched(container) {
        return Vec::new();
    }
    let name = container["name"].as_str().unwrap_or_default();
    items(container, "env").filter(|(_, variable)| is_our_variable(variable, name)).map(|(at, _)| at).collect()
}

fn is_our_variable(variable: &Value, name: &str) -> bool {
    let value = variable["value"].as_str();
    let from_file = variable["valueFrom"]["fileKeyRef"]["volumeName"] == SHARE_VOLUME;
    match variable["name"].as_str().unwrap_or_default() {
        POD_IP => variable["valueFrom"]["fieldRef"]["fieldPath"] == "status.podIP",
        env::ENDPOINT => {
            from_file || value.is_some_and(|value| value.starts_with("https://") && value.contains("$(NUDGE_POD_IP)"))
        }
        env::TOKEN => from_file,
        env::TOKEN_FILE => value == Some(&token_file()),
        env::CERT => value == Some(&certificate_file()),
        env::CONTAINER => value == Some(name),
        _ => variable["valueFrom"]["fileKeyRef"]["volumeName"] == VARIABLES_VOLUME,
    }
}

/// Returns the path of the token in containers.
pub(super) fn token_file() -> String {
    format!("{}/token", names::CONTAINER_PATH)
}

/// Returns the path of the authority's certificate in containers.
pub(super) fn certificate_file() -> String {
    format!("{}/ca.crt", names::CONTAINER_PATH)
}

/// Removes the additions of an earlier injection. Refuses other uses of reserved names.
pub(super) fn strip(raw: &mut Value) -> Result<(), InjectionRefusal> {
    let labelled = raw["metadata"]["labels"][labels::AGENT].is_string();
    let Some(spec) = raw.get_mut("spec") else { return Ok(()) };
    let original_names = originals(spec);
    let mut injected = false;
    for list in LISTS {
        if let Some((_, agent)) = items(spec, list).find(|(_, container)| is_agent(container)) {
            if !labelled && !has_agent_form(agent) {
                return Err(InjectionRefusal(format!(
                    "container name {} is reserved for Nudge's agent; rename this pod's container",
                    names::AGENT_CONTAINER
                )));
            }
            injected = true;
        }
    }
    for (_, volume) in items(spec, "volumes").filter(|(_, volume)| is_our_volume(volume)) {
        if !injected || !has_our_form(volume) {
            let name = shorten(volume["name"].as_str().unwrap_or_default());
            return Err(InjectionRefusal(format!(
                "volume name {name} is reserved for Nudge; rename this pod's volume"
            )));
        }
    }
    if let Some(volumes) = items_mut(spec, "volumes") {
        volumes.retain(|volume| !is_our_volume(volume));
    }
    for list in LISTS {
        let Some(containers) = items_mut(spec, list) else { continue };
        containers.retain(|container| !is_agent(container));
        for container in containers {
            strip_container(container, &original_names)?;
        }
    }
    Ok(())
}

/// Returns the names of the pod's own volumes, by the names of the agent's volumes that an earlier injection put in
/// their place.
pub(super) fn originals(spec: &Value) -> BTreeMap<String, String> {
    let agents = LISTS.into_iter().flat_map(|list| items(spec, list)).filter(|(_, container)| is_agent(container));
    let variables = agents.flat_map(|(_, agent)| items(agent, "env"));
    let setting = variables.map(|(_, variable)| variable).find(|variable| variable["name"] == names::env::VOLUMES);
    // Kubernetes reads `$$` as `$`.
    let text = setting.and_then(|setting| setting["value"].as_str()).unwrap_or_default().replace("$$", "$");
    let kept = volumes::read(&text).unwrap_or_default();
    (1..).zip(kept).map(|(number, kept)| (format!("{KEPT_VOLUME_PREFIX}{number}"), kept.volume)).collect()
}

/// Removes the additions of an earlier injection from a container. Mounts that it moved use the pod's own volumes
/// again.
fn strip_container(container: &mut Value, originals: &BTreeMap<String, String>) -> Result<(), InjectionRefusal> {
    let name = container["name"].as_str().unwrap_or_default().to_owned();
    for at in our_variables(container).into_iter().rev() {
        if let Some(variables) = items_mut(container, "env") {
            variables.remove(at);
        }
    }
    if let Some(mounts) = items_mut(container, "volumeMounts") {
        mounts.retain(|mount| !is_our_mount(mount));
        for mount in mounts.iter_mut() {
            if let Some(original) = mount["name"].as_str().and_then(|name| originals.get(name)) {
                mount["name"] = Value::String(original.clone());
            }
        }
        if let Some(volume) = mounts.iter().filter_map(|mount| mount["name"].as_str()).find(|name| is_reserved(name)) {
            let (container, volume) = (shorten(&name), shorten(volume));
            return Err(InjectionRefusal(format!(
                "container {container} mounts volume {volume}, whose name is reserved for Nudge; remove the mount"
            )));
        }
    }
    Ok(())
}

/// Returns whether the container is an agent by its form: a copy of an injected pod may have lost its label (`kubectl
/// debug --copy-to`).
fn has_agent_form(container: &Value) -> bool {
    let has_configs = items(container, "env").any(|(_, variable)| variable["name"] == names::env::CONFIGS);
    has_configs
        && container["command"] == serde_json::json!(["/nudge-agent"])
        && container["args"] == serde_json::json!(["run"])
}

fn has_our_form(volume: &Value) -> bool {
    match volume["name"].as_str().unwrap_or_default() {
        STATE_VOLUME | SHARE_VOLUME | FILES_VOLUME | VARIABLES_VOLUME => volume["emptyDir"]["medium"] == "Memory",
        name if name.starts_with(KEPT_VOLUME_PREFIX) => volume["emptyDir"]["medium"] == "Memory",
        HUB_VOLUME => items(&volume["projected"], "sources")
            .any(|(_, source)| source["serviceAccountToken"]["audience"] == names::TOKEN_AUDIENCE),
        _ => volume["configMap"]["optional"] == true || volume["secret"]["optional"] == true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused(spec: &Value) -> String {
        UserPod::of(&json!({"metadata": {"name": "web"}, "spec": spec})).unwrap_err().to_string()
    }

    #[test]
    fn nudges_names_are_reserved() {
        let own = json!({"containers": [{"name": "nudge-agent", "image": "mine"}]});
        assert!(refused(&own).contains("container name nudge-agent is reserved"));
        let own = json!({"containers": [{"name": "app"}], "volumes": [{"name": "nudge-state", "emptyDir": {"medium": "Memory"}}]});
        assert!(refused(&own).contains("volume name nudge-state is reserved"));
        let mount =
            json!({"containers": [{"name": "app", "volumeMounts": [{"name": "nudge-hub", "mountPath": "/x"}]}]});
        assert!(refused(&mount).contains("container app mounts volume nudge-hub"));
    }

    #[test]
    fn anything_but_a_pod_is_refused() {
        assert!(UserPod::of(&json!({"metadata": {}})).unwrap_err().to_string().contains("no spec"));
        assert!(refused(&json!({"containers": "app"})).contains("this is not a pod"));
    }
}
