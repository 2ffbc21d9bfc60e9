//! Which configs a pod gets: those that it names, else those of the ConfigMaps that its containers use.

use k8s_openapi::api::core::v1::Container;
use nudge_protocol::limits::MAX_CONFIGS;
use nudge_protocol::{ConfigName, VersionName, pod};

use super::annotations::{CONFIGS, START_TIMEOUT};
use super::facts::Facts;
use super::refusal::Refusal;
use super::user_pod::UserPod;
use super::wanted::Wanted;

/// ConfigMaps of the cluster and of service meshes, in every namespace: never an application's configuration.
const NEVER: [&str; 4] = ["kube-root-ca.crt", pod::HUB_CA_MAP, "istio-ca-root-cert", "openshift-service-ca.crt"];
/// Most ConfigMaps that are looked at. A pod that names more must say which it means.
const MAX_MAPS: usize = 256;

/// The ConfigMaps that the user's containers reference by variable, `envFrom` or a volume that they mount, each once, in order. `chosen`
/// are the containers that the user has named, `foreign` those of other injectors, which don't count otherwise.
pub(super) fn referenced_maps(user: &UserPod, chosen: Option<&[String]>, foreign: &[String]) -> Vec<String> {
    let counts = |name: &str| match chosen {
        Some(chosen) => chosen.iter().any(|one| one == name),
        None => !foreign.iter().any(|one| one == name),
    };
    let mut maps: Vec<String> = Vec::new();
    for member in user.members.iter().filter(|member| counts(member.name())) {
        for name in of_container(user, &member.container) {
            let fits = !NEVER.contains(&name) && ConfigName::new(name).is_ok() && maps.len() < MAX_MAPS;
            if fits && !maps.iter().any(|known| known == name) {
                maps.push(name.to_owned());
            }
        }
    }
    maps
}

fn of_container<'a>(user: &'a UserPod, container: &'a Container) -> impl Iterator<Item = &'a str> {
    let whole =
        container.env_from.iter().flatten().filter_map(|from| Some(from.config_map_ref.as_ref()?.name.as_str()));
    let single = container.env.iter().flatten();
    let single = single.filter_map(|one| Some(one.value_from.as_ref()?.config_map_key_ref.as_ref()?.name.as_str()));
    let mounts = container.volume_mounts.iter().flatten().filter_map(|mount| {
        let volume = user.spec.volumes.iter().flatten().find(|volume| volume.name == mount.name)?;
        Some(volume.config_map.as_ref()?.name.as_str())
    });
    whole.chain(single).chain(mounts)
}

/// The pod's configs in the order of merging, and warnings.
pub(super) fn resolve(
    user: &UserPod,
    wanted: &Wanted,
    facts: &Facts,
    foreign: &[String],
) -> Result<(Vec<ConfigName>, Vec<String>), Refusal> {
    let Some(named) = &wanted.named else {
        return found(user, wanted, facts, foreign).map(|found| (found, Vec::new()));
    };
    let waits = wanted.start_timeout.as_deref().unwrap_or("30s");
    let absent = named.iter().filter(|name| facts.configs.get(*name).is_none_or(|config| config.version.is_none()));
    let warnings = absent.map(|name| {
        format!(
            "config {name} has no current version yet: the pod's start waits for it, {waits} a try ({START_TIMEOUT})"
        )
    });
    Ok((named.clone(), warnings.collect()))
}

fn found(user: &UserPod, wanted: &Wanted, facts: &Facts, foreign: &[String]) -> Result<Vec<ConfigName>, Refusal> {
    let maps = referenced_maps(user, wanted.containers.as_deref(), foreign);
    let means = |name: &ConfigName| {
        let plain = facts.maps.get(name.as_str()).is_some_and(|map| {
            // What becomes a config needs a name that can be a label.
            !map.owned && !map.immutable && !map.version && VersionName::new(name.as_str()).is_ok()
        });
        plain || facts.configs.contains_key(name)
    };
    let configs: Vec<ConfigName> = maps.iter().filter_map(|name| ConfigName::new(name).ok()).filter(means).collect();
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
    Ok(configs)
}
