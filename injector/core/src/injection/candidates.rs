//! Which configs a pod gets: those that it names, else those of the ConfigMaps that its containers use.

use k8s_openapi::api::core::v1::Container;
use nudge_protocol::limits::MAX_CONFIGS;
use nudge_protocol::{ConfigName, VersionName, pod};

use super::annotations::{CONFIGS, START_TIMEOUT};
use super::facts::Facts;
use super::pod_request::PodRequest;
use super::refusal::Refusal;
use super::user_pod::UserPod;

/// ConfigMaps of the cluster and of service meshes, in every namespace: never an application's configuration.
const NEVER: [&str; 4] = ["kube-root-ca.crt", pod::HUB_CA_MAP, "istio-ca-root-cert", "openshift-service-ca.crt"];
/// Most ConfigMaps that are looked at. A pod that names more must say which it means.
const MAX_MAPS: usize = 64;

/// The ConfigMaps that the user's containers reference by variable, `envFrom` or a volume that they mount, each once, in order. `targets`
/// are the containers that the user has named, `foreign` those of other injectors, which don't count otherwise.
pub(super) fn referenced_maps(user: &UserPod, targets: Option<&[String]>, foreign: &[String]) -> Vec<Referenced> {
    let counts = |name: &str| match targets {
        Some(targets) => targets.iter().any(|one| one == name),
        None => !foreign.iter().any(|one| one == name),
    };
    let mut maps: Vec<Referenced> = Vec::new();
    for member in user.members.iter().filter(|member| counts(member.name())) {
        for (name, needed) in of_container(user, &member.container) {
            if NEVER.contains(&name) || ConfigName::new(name).is_err() {
                continue;
            }
            match maps.iter_mut().find(|known| known.name == name) {
                Some(known) => known.needed |= needed,
                None => maps.push(Referenced { name: name.to_owned(), needed }),
            }
        }
    }
    maps
}

/// A ConfigMap that containers name.
pub(super) struct Referenced {
    pub(super) name: String,
    /// Without it a container does not start.
    needed: bool,
}

/// Names, and whether the container needs them.
fn of_container<'a>(user: &'a UserPod, container: &'a Container) -> impl Iterator<Item = (&'a str, bool)> {
    let needed = |optional: Option<bool>| optional != Some(true);
    let whole = container.env_from.iter().flatten().filter_map(move |from| {
        let map = from.config_map_ref.as_ref()?;
        Some((map.name.as_str(), needed(map.optional)))
    });
    let single = container.env.iter().flatten().filter_map(move |one| {
        let key = one.value_from.as_ref()?.config_map_key_ref.as_ref()?;
        Some((key.name.as_str(), needed(key.optional)))
    });
    let mounts = container.volume_mounts.iter().flatten().filter_map(move |mount| {
        let volume = user.spec.volumes.iter().flatten().find(|volume| volume.name == mount.name)?;
        let map = volume.config_map.as_ref()?;
        Some((map.name.as_str(), needed(map.optional)))
    });
    whole.chain(single).chain(mounts)
}

/// The pod's configs in the order of merging, and warnings.
pub(super) fn resolve(
    user: &UserPod,
    request: &PodRequest,
    facts: &Facts,
    foreign: &[String],
) -> Result<(Vec<ConfigName>, Vec<String>), Refusal> {
    let Some(named) = &request.named else {
        return found(user, request, facts, foreign);
    };
    let waits = request.start_timeout.as_deref().unwrap_or("30s");
    let absent = named.iter().filter(|name| facts.configs.get(*name).is_none_or(|config| config.version.is_none()));
    let warnings = absent.map(|name| {
        format!(
            "config {name} has no current version yet: the pod's start waits for it, {waits} a try ({START_TIMEOUT})"
        )
    });
    Ok((named.clone(), warnings.collect()))
}

fn found(
    user: &UserPod,
    request: &PodRequest,
    facts: &Facts,
    foreign: &[String],
) -> Result<(Vec<ConfigName>, Vec<String>), Refusal> {
    let maps = referenced_maps(user, request.containers.as_deref(), foreign);
    let is_there = |map: &Referenced| {
        facts.maps.contains_key(&map.name) || facts.configs.keys().any(|config| config.as_str() == map.name)
    };
    // What a pod may read is settled when it is made, so one that comes later would never be among it.
    if let Some(absent) = maps.iter().find(|map| map.needed && !is_there(map)) {
        return Err(Refusal::Pod(format!(
            "its containers use ConfigMap {}, which is not there; create it first, or say with annotation {CONFIGS} which configs the pod gets",
            absent.name
        )));
    }
    let absent = maps.iter().filter(|map| !is_there(map));
    let warnings = absent.map(|map| {
        format!(
            "ConfigMap {} is not there, so this pod never gets it as a config; name it with {CONFIGS} to wait for it",
            map.name
        )
    });
    let warnings = warnings.collect();
    let means = |name: &ConfigName| {
        let plain = facts.maps.get(name.as_str()).is_some_and(|map| {
            // What becomes a config needs a name that can be a label.
            !map.owned && !map.immutable && !map.version && VersionName::new(name.as_str()).is_ok()
        });
        plain || facts.configs.contains_key(name)
    };
    let configs = maps.iter().filter_map(|map| ConfigName::new(&map.name).ok());
    let configs: Vec<ConfigName> = configs.filter(means).collect();
    if configs.is_empty() {
        return Err(Refusal::Pod(format!(
            "no container of this pod uses a ConfigMap that is there and may change (without owner, not immutable); say with annotation \
             {CONFIGS} which configs it gets, such as {CONFIGS}: shop"
        )));
    }
    if configs.len() > MAX_CONFIGS {
        return Err(Refusal::Pod(format!(
            "this pod's containers use {} ConfigMaps, and a pod can have {MAX_CONFIGS} configs; say with annotation {CONFIGS} which it gets",
            configs.len()
        )));
    }
    Ok((configs, warnings))
}

/// Refuses a pod that names so many ConfigMaps that looking at all of them would cost too much.
pub(super) fn bounded(maps: &[Referenced]) -> Result<(), Refusal> {
    if maps.len() <= MAX_MAPS {
        return Ok(());
    }
    Err(Refusal::Pod(format!(
        "this pod's containers use {} ConfigMaps, of which {MAX_MAPS} are looked at; say with annotation {CONFIGS} which configs it gets",
        maps.len()
    )))
}
