//! The ConfigMaps and Secrets that the containers of a pod reference.

use k8s_openapi::api::core::v1::{Container, Volume, VolumeProjection};
use nudge_protocol::ConfigName;

use super::annotations::CONFIGS;
use crate::injection::refusal::Refusal;
use crate::injection::user_pod::{Member, UserPod};

/// ConfigMaps of the cluster and of service meshes in every namespace: never an application's configuration.
const IGNORED: [&str; 3] = ["kube-root-ca.crt", "istio-ca-root-cert", "openshift-service-ca.crt"];
/// The maximum of ConfigMaps that are looked up. A pod that references more must name its configs.
const MAX_REFERENCES: usize = 64;

/// A ConfigMap that containers reference.
pub(super) struct Reference {
    pub(super) name: String,
    /// Without it a container does not start.
    pub(super) required: bool,
}

/// The ConfigMaps that the user's containers reference by variable, `envFrom` or a volume that they mount, each once, in order. `named`
/// are the containers that the user has named; otherwise all count but `foreign`, those of other injectors.
pub(super) fn references(user: &UserPod, named: Option<&[String]>, foreign: &[String]) -> Vec<Reference> {
    let mut references: Vec<Reference> = Vec::new();
    for member in counted(user, named, foreign) {
        for (name, required) in of_container(user, &member.container) {
            if IGNORED.contains(&name) || ConfigName::new(name).is_err() {
                continue;
            }
            match references.iter_mut().find(|known| known.name == name) {
                Some(known) => known.required |= required,
                None => references.push(Reference { name: name.to_owned(), required }),
            }
        }
    }
    references
}

/// The Secrets of volumes that the same containers mount, each once, in order.
pub(super) fn mounted_secrets(user: &UserPod, named: Option<&[String]>, foreign: &[String]) -> Vec<String> {
    let mut names = Vec::new();
    for volume in counted(user, named, foreign).flat_map(|member| volumes(user, &member.container)) {
        let projected = projections(volume).filter_map(|source| Some(source.secret.as_ref()?.name.clone()));
        let secret = volume.secret.as_ref().and_then(|secret| secret.secret_name.clone());
        for name in secret.into_iter().chain(projected) {
            if ConfigName::new(&name).is_ok() && !names.contains(&name) {
                names.push(name);
            }
        }
    }
    names.truncate(MAX_REFERENCES);
    names
}

/// The containers whose references count.
fn counted<'a>(
    user: &'a UserPod,
    named: Option<&'a [String]>,
    foreign: &'a [String],
) -> impl Iterator<Item = &'a Member> {
    user.members.iter().filter(move |member| match named {
        Some(named) => named.iter().any(|name| name == member.name()),
        None => !foreign.iter().any(|name| name == member.name()),
    })
}

/// The volumes that a container mounts.
fn volumes<'a>(user: &'a UserPod, container: &'a Container) -> impl Iterator<Item = &'a Volume> {
    let mounts = container.volume_mounts.iter().flatten();
    mounts.filter_map(|mount| user.spec.volumes.iter().flatten().find(|volume| volume.name == mount.name))
}

fn projections(volume: &Volume) -> impl Iterator<Item = &VolumeProjection> {
    volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten())
}

/// The names that one container references, and whether it requires them.
fn of_container<'a>(user: &'a UserPod, container: &'a Container) -> impl Iterator<Item = (&'a str, bool)> {
    let required = |optional: Option<bool>| optional != Some(true);
    let whole = container.env_from.iter().flatten().filter_map(move |from| {
        let map = from.config_map_ref.as_ref()?;
        Some((map.name.as_str(), required(map.optional)))
    });
    let single = container.env.iter().flatten().filter_map(move |one| {
        let key = one.value_from.as_ref()?.config_map_key_ref.as_ref()?;
        Some((key.name.as_str(), required(key.optional)))
    });
    let mounted = volumes(user, container).flat_map(move |volume| {
        let alone = volume.config_map.iter().map(|map| (&map.name, map.optional));
        let projected = projections(volume).filter_map(|source| source.config_map.as_ref());
        let all = alone.chain(projected.map(|map| (&map.name, map.optional)));
        all.map(move |(name, optional)| (name.as_str(), required(optional)))
    });
    whole.chain(single).chain(mounted)
}

/// Refuses a pod that references too many objects to look up.
pub(super) fn check_count(count: usize) -> Result<(), Refusal> {
    if count <= MAX_REFERENCES {
        return Ok(());
    }
    Err(Refusal::Pod(format!(
        "this pod's containers use {count} ConfigMaps, and at most {MAX_REFERENCES} are looked up; name its configs with \
         annotation {CONFIGS}"
    )))
}
