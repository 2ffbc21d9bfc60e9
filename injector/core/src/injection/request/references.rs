//! The ConfigMaps and Secrets that the containers of a pod reference.

use k8s_openapi::api::core::v1::{Container, Volume};
use nudge_api::PartKind;
use nudge_protocol::ConfigName;

use super::annotations::CONFIGS;
use crate::baseline::{BUNDLES, RESERVED};
use crate::injection::refusal::InjectionRefusal;
use crate::injection::user_pod::{UserContainer, UserPod};
use crate::injection::volume_objects::objects;

/// The maximum number of ConfigMaps that are looked up. A pod that references more must name its configs.
const MAX_REFERENCES: usize = 64;

/// A ConfigMap that containers reference.
pub(super) struct ConfigReference {
    pub(super) name: String,
    /// Whether a container does not start without the ConfigMap.
    pub(super) required: bool,
}

/// Returns the ConfigMaps that the user's containers reference by a variable, `envFrom` or a mounted volume, each once,
/// in their order. `named` are the containers that the user has named; otherwise all containers count except the
/// `foreign` ones of other injectors.
pub(super) fn references(pod: &UserPod, named: Option<&[String]>, foreign: &[String]) -> Vec<ConfigReference> {
    let mut references: Vec<ConfigReference> = Vec::new();
    for member in referencing_members(pod, named, foreign) {
        for (name, required) in of_container(pod, &member.container) {
            if name == RESERVED || ConfigName::new(name).is_err() {
                continue;
            }
            let required = required && !is_bundle(name);
            match references.iter_mut().find(|reference| reference.name == name) {
                Some(reference) => reference.required |= required,
                None => references.push(ConfigReference { name: name.to_owned(), required }),
            }
        }
    }
    references
}

/// Returns whether a cluster or a mesh puts the ConfigMap into every namespace. Then no pod waits for it.
pub(super) fn is_bundle(name: &str) -> bool {
    BUNDLES.contains(&name)
}

/// Returns the Secrets that the same containers reference, each once, in their order.
pub(super) fn referenced_secrets(pod: &UserPod, named: Option<&[String]>, foreign: &[String]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for name in referencing_members(pod, named, foreign).flat_map(|member| secrets_of(pod, &member.container)) {
        if ConfigName::new(name).is_ok() && !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    names.truncate(MAX_REFERENCES);
    names
}

/// Returns the containers whose references count.
fn referencing_members<'a>(
    pod: &'a UserPod,
    named: Option<&'a [String]>,
    foreign: &'a [String],
) -> impl Iterator<Item = &'a UserContainer> {
    pod.members.iter().filter(move |member| match named {
        Some(named) => named.iter().any(|name| name == member.name()),
        None => !foreign.iter().any(|name| name == member.name()),
    })
}

fn mounted_volumes<'a>(pod: &'a UserPod, container: &'a Container) -> impl Iterator<Item = &'a Volume> {
    let mounts = container.volume_mounts.iter().flatten();
    mounts.filter_map(|mount| pod.spec.volumes.iter().flatten().find(|volume| volume.name == mount.name))
}

/// Returns the names of the Secrets that one container references.
fn secrets_of<'a>(pod: &'a UserPod, container: &'a Container) -> impl Iterator<Item = &'a str> {
    let whole = container.env_from.iter().flatten().filter_map(|from| Some(from.secret_ref.as_ref()?.name.as_str()));
    let single = container.env.iter().flatten().filter_map(|variable| {
        let key = variable.value_from.as_ref()?.secret_key_ref.as_ref()?;
        Some(key.name.as_str())
    });
    let mounted = mounted_volumes(pod, container).flat_map(objects);
    let mounted = mounted.filter(|object| object.kind == PartKind::Secret).map(|object| object.name);
    whole.chain(single).chain(mounted)
}

/// Returns the names that one container references, and whether it requires them.
fn of_container<'a>(pod: &'a UserPod, container: &'a Container) -> impl Iterator<Item = (&'a str, bool)> {
    let required = |optional: Option<bool>| optional != Some(true);
    let whole = container.env_from.iter().flatten().filter_map(move |from| {
        let map = from.config_map_ref.as_ref()?;
        Some((map.name.as_str(), required(map.optional)))
    });
    let single = container.env.iter().flatten().filter_map(move |variable| {
        let key = variable.value_from.as_ref()?.config_map_key_ref.as_ref()?;
        Some((key.name.as_str(), required(key.optional)))
    });
    let mounted = mounted_volumes(pod, container).flat_map(objects);
    let mounted = mounted.filter(|object| object.kind == PartKind::ConfigMap);
    let mounted = mounted.map(move |object| (object.name, required(object.optional)));
    whole.chain(single).chain(mounted)
}

/// Refuses a pod that references too many objects to look up.
pub(super) fn check_count(count: usize) -> Result<(), InjectionRefusal> {
    if count <= MAX_REFERENCES {
        return Ok(());
    }
    Err(InjectionRefusal::Pod(format!(
        "this pod's containers use {count} ConfigMaps, and at most {MAX_REFERENCES} are looked up; name its configs with \
         annotation {CONFIGS}"
    )))
}
