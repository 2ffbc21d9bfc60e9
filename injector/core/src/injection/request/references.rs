//! The ConfigMaps and Secrets that the containers of a pod reference.

use nudge_api::PartKind;
use nudge_protocol::ConfigName;

use super::annotations::CONFIGS;
use crate::baseline::{BUNDLES, RESERVED};
use crate::injection::named_objects::{NamedObject, container_objects};
use crate::injection::refusal::InjectionRefusal;
use crate::injection::user_pod::{UserContainer, UserPod};

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
        let objects =
            container_objects(&pod.spec, &member.container).filter(|object| object.kind == PartKind::ConfigMap);
        for NamedObject { name, optional, .. } in objects {
            if name == RESERVED || ConfigName::new(name).is_err() {
                continue;
            }
            let required = optional != Some(true) && !is_bundle(name);
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
    let objects =
        referencing_members(pod, named, foreign).flat_map(|member| container_objects(&pod.spec, &member.container));
    for NamedObject { name, .. } in objects.filter(|object| object.kind == PartKind::Secret) {
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

/// Refuses a pod that references too many objects to look up.
pub(super) fn check_count(count: usize) -> Result<(), InjectionRefusal> {
    if count <= MAX_REFERENCES {
        return Ok(());
    }
    Err(InjectionRefusal(format!(
        "this pod's containers use {count} ConfigMaps, and at most {MAX_REFERENCES} are looked up; name its configs with \
         annotation {CONFIGS}"
    )))
}
