//! Which configs a pod gets: those that it names, else those of the ConfigMaps that its containers reference.

use k8s_openapi::api::core::v1::Container;
use nudge_protocol::limits::MAX_CONFIGS;
use nudge_protocol::{ConfigName, VersionName, pod};

use super::annotations::{CONFIGS, START_TIMEOUT};
use super::pod_request::PodRequest;
use crate::injection::facts::Facts;
use crate::injection::refusal::Refusal;
use crate::injection::user_pod::UserPod;

/// ConfigMaps of the cluster and of service meshes in every namespace: never an application's configuration.
const IGNORED: [&str; 4] = ["kube-root-ca.crt", pod::HUB_CA_MAP, "istio-ca-root-cert", "openshift-service-ca.crt"];
/// Most ConfigMaps that are looked up. A pod that references more must name its configs.
const MAX_REFERENCES: usize = 64;

/// A ConfigMap that containers reference.
pub(super) struct Reference {
    pub(super) name: String,
    /// Without it a container does not start.
    required: bool,
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

/// The pod's configs in the order of merging, and warnings.
pub(in crate::injection) fn resolve(
    user: &UserPod,
    request: &PodRequest,
    facts: &Facts,
    foreign: &[String],
) -> Result<(Vec<ConfigName>, Vec<String>), Refusal> {
    let Some(named) = &request.named else {
        return referenced_configs(user, request, facts, foreign);
    };
    let timeout = request.start_timeout.as_deref().unwrap_or("30s");
    let absent = named.iter().filter(|name| facts.configs.get(*name).is_none_or(|config| config.version.is_none()));
    let warnings = absent.map(|name| {
        format!(
            "config {name} has no current version yet: the start of the pod waits for it, {timeout} for each try ({START_TIMEOUT})"
        )
    });
    Ok((named.clone(), warnings.collect()))
}

/// The configs that the containers reference.
fn referenced_configs(
    user: &UserPod,
    request: &PodRequest,
    facts: &Facts,
    foreign: &[String],
) -> Result<(Vec<ConfigName>, Vec<String>), Refusal> {
    let references = references(user, request.containers.as_deref(), foreign);
    let exists = |reference: &Reference| {
        let name = &reference.name;
        facts.config_maps.contains_key(name) || facts.configs.keys().any(|config| config.as_str() == name)
    };
    // The configs of a pod are fixed when it is created, so one that is created later would never be among them.
    if let Some(missing) = references.iter().find(|reference| reference.required && !exists(reference)) {
        return Err(Refusal::Pod(format!(
            "its containers use ConfigMap {}, which does not exist; create it first, or name the pod's configs with annotation {CONFIGS}",
            missing.name
        )));
    }
    let missing = references.iter().filter(|reference| !exists(reference));
    let warnings = missing.map(|reference| {
        format!(
            "ConfigMap {} does not exist, so this pod never gets it as a config; name it with {CONFIGS} to wait for it",
            reference.name
        )
    });
    let warnings = warnings.collect();
    let is_config = |name: &ConfigName| {
        let config_map = facts.config_maps.get(name.as_str());
        // A config's name must fit into a label.
        let can_be = config_map.is_some_and(|map| map.can_be_config()) && VersionName::new(name.as_str()).is_ok();
        can_be || facts.configs.contains_key(name)
    };
    let configs = references.iter().filter_map(|reference| ConfigName::new(&reference.name).ok());
    let configs: Vec<ConfigName> = configs.filter(is_config).collect();
    if configs.is_empty() {
        return Err(Refusal::Pod(format!(
            "no container of this pod uses a ConfigMap that exists and may change (no owner, not immutable); name its configs with \
             annotation {CONFIGS}, such as {CONFIGS}: shop"
        )));
    }
    if configs.len() > MAX_CONFIGS {
        return Err(Refusal::Pod(format!(
            "this pod's containers use {} ConfigMaps, and a pod can have {MAX_CONFIGS} configs; name its configs with annotation {CONFIGS}",
            configs.len()
        )));
    }
    Ok((configs, warnings))
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
