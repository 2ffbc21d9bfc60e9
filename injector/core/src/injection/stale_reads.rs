//! The warnings about stale reads: containers that are notified of a version, but read files or variables that still
//! have the version before.

use k8s_openapi::api::core::v1::{Container, Volume, VolumeMount};
use nudge_api::PartKind;
use nudge_protocol::{Ack, ConfigName, env};

use super::moved_mounts::MovedMounts;
use super::refusal::shorten;
use super::request::PodRequest;
use super::request::annotations::MOUNT_PATH;
use super::targets::Targets;
use super::user_pod::UserPod;
use super::volume_objects::objects;

/// Returns a warning for each container that is notified of a config and reads its published object: the object
/// changes when the version is proven, and the container sees the change even later. There is no warning if the
/// container also reads the config in another way.
pub(super) fn warnings(
    pod: &UserPod,
    request: &PodRequest,
    targets: &Targets<'_>,
    configs: &[ConfigName],
    moved: &MovedMounts,
) -> Vec<String> {
    if request.mount_path.is_some() || request.ack == Some(Ack::Fetched) {
        return Vec::new();
    }
    let warning = |container: &Container, config: &ConfigName| {
        let reads = describe_read(pod, container, config.as_str(), moved)?;
        Some(format!(
            "container {} is notified of config {}, but reads its {reads}; let it read {}, or files by {MOUNT_PATH}",
            shorten(&container.name),
            shorten(config.as_str()),
            env::ENDPOINT
        ))
    };
    // Variables that the agent writes are another way.
    let is_warned = |name: &str| targets.notified.contains_key(name) && !request.variables.contains_key(name);
    let notified = targets.members.iter().filter(|member| is_warned(member.name()));
    notified.filter_map(|member| configs.iter().find_map(|config| warning(&member.container, config))).collect()
}

/// Describes how a container reads the published object of this name, and when it sees changes.
fn describe_read(pod: &UserPod, container: &Container, name: &str, moved: &MovedMounts) -> Option<String> {
    if has_variables(container, name) {
        return Some("ConfigMap by variables, which never change while the container runs".to_owned());
    }
    let mut mounts = container.volume_mounts.iter().flatten();
    let find_volume = |name: &str| pod.spec.volumes.iter().flatten().find(|volume| volume.name == name);
    let has_secret = |volume: &str| {
        moved.unmoved.iter().any(|(name, _)| name == volume)
            && find_volume(volume).is_some_and(|volume| holds(volume, PartKind::Secret, name))
    };
    let has_config_map =
        |volume: &str| find_volume(volume).is_some_and(|volume| holds(volume, PartKind::ConfigMap, name));
    let is_part = |mount: &VolumeMount| {
        [&mount.sub_path, &mount.sub_path_expr].into_iter().flatten().any(|part| !part.is_empty())
    };
    let mount = mounts.find(|mount| {
        (has_config_map(&mount.name) || has_secret(&mount.name))
            && (is_part(mount) || moved.target(&mount.name).is_none())
    })?;
    let kind = if has_config_map(&mount.name) { PartKind::ConfigMap } else { PartKind::Secret };
    let path = shorten(&mount.mount_path);
    Some(if is_part(mount) {
        format!("{kind} at {path} by subPath, where the file never changes while the container runs")
    } else {
        let cause = moved.unmoved.iter().find(|(volume, _)| *volume == mount.name);
        let explanation = cause.map(|(_, cause)| format!(" ({cause})")).unwrap_or_default();
        format!("{kind} at {path}, whose files the kubelet changes up to a minute after the rollout{explanation}")
    })
}

fn has_variables(container: &Container, name: &str) -> bool {
    let mut whole = container.env_from.iter().flatten().filter_map(|from| from.config_map_ref.as_ref());
    let mut keys = container.env.iter().flatten();
    whole.any(|map| map.name == name)
        || keys.any(|variable| {
            let key = variable.value_from.as_ref().and_then(|from| from.config_map_key_ref.as_ref());
            key.is_some_and(|key| key.name == name)
        })
}

/// Returns whether a volume has the object of this kind and name.
fn holds(volume: &Volume, kind: PartKind, name: &str) -> bool {
    objects(volume).any(|object| object.kind == kind && object.name == name)
}
