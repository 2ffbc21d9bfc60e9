//! The ConfigMaps that the containers of a pod reference.

use k8s_openapi::api::core::v1::Container;
use nudge_protocol::ConfigName;

use super::annotations::CONFIGS;
use crate::injection::refusal::Refusal;
use crate::injection::user_pod::UserPod;

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
    let counts = |name: &str| match named {
        Some(named) => named.iter().any(|one| one == name),
        None => !foreign.iter().any(|one| one == name),
    };
    let mut references: Vec<Reference> = Vec::new();
    for member in user.members.iter().filter(|member| counts(member.name())) {
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
    let mounts = container.volume_mounts.iter().flatten().filter_map(move |mount| {
        let volume = user.spec.volumes.iter().flatten().find(|volume| volume.name == mount.name)?;
        let map = volume.config_map.as_ref()?;
        Some((map.name.as_str(), required(map.optional)))
    });
    whole.chain(single).chain(mounts)
}

/// Refuses a pod that references too many ConfigMaps to look up.
pub(super) fn check_count(references: &[Reference]) -> Result<(), Refusal> {
    if references.len() <= MAX_REFERENCES {
        return Ok(());
    }
    Err(Refusal::Pod(format!(
        "this pod's containers use {} ConfigMaps, and at most {MAX_REFERENCES} are looked up; name its configs with annotation {CONFIGS}",
        references.len()
    )))
}
