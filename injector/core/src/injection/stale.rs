//! Containers that are notified of a version while what they read of it is still that of the version before.

use k8s_openapi::api::core::v1::{Container, Volume, VolumeMount};
use nudge_api::PartKind;
use nudge_protocol::{Ack, ConfigName, env};

use super::moved_mounts::MovedMounts;
use super::refusal::shown;
use super::request::PodRequest;
use super::request::annotations::MOUNT_PATH;
use super::targets::Targets;
use super::user_pod::UserPod;

/// A warning for each container that is notified of a config and reads its published ConfigMap: that one changes when the version is proven,
/// and what a container sees of it later still. Not where the pod shows that the container reads the config in another way too.
pub(super) fn warnings(
    user: &UserPod,
    request: &PodRequest,
    targets: &Targets<'_>,
    configs: &[ConfigName],
    moved: &MovedMounts,
) -> Vec<String> {
    if request.mount_path.is_some() || request.ack == Some(Ack::Fetched) {
        return Vec::new();
    }
    let warning = |container: &Container, config: &ConfigName| {
        let reads = published(user, container, config.as_str(), moved)?;
        Some(format!(
            "container {} is notified of config {}, but reads its {reads}; let it read {}, or files by {MOUNT_PATH}",
            shown(&container.name),
            shown(config.as_str()),
            env::ENDPOINT
        ))
    };
    // Variables that the agent writes are such a way.
    let is_warned = |name: &str| targets.notified.contains_key(name) && !request.variables.contains_key(name);
    let notified = targets.members.iter().filter(|member| is_warned(member.name()));
    notified.filter_map(|member| configs.iter().find_map(|config| warning(&member.container, config))).collect()
}

/// How a container reads the ConfigMap of this name, and when that changes.
fn published(user: &UserPod, container: &Container, name: &str, moved: &MovedMounts) -> Option<String> {
    if has_variables(container, name) {
        return Some("ConfigMap by variables, which never change while the container runs".to_owned());
    }
    let mut mounts = container.volume_mounts.iter().flatten();
    let has_secret = |volume: &str| {
        moved.unmoved.iter().any(|(name, _)| name == volume)
            && user.spec.volumes.iter().flatten().any(|held| held.name == volume && holds_secret(held, name))
    };
    let has_map =
        |volume: &str| user.spec.volumes.iter().flatten().any(|held| held.name == volume && holds(held, name));
    let is_part = |mount: &VolumeMount| {
        [&mount.sub_path, &mount.sub_path_expr].into_iter().flatten().any(|part| !part.is_empty())
    };
    let mount = mounts.find(|mount| {
        (has_map(&mount.name) || has_secret(&mount.name)) && (is_part(mount) || moved.target(&mount.name).is_none())
    })?;
    let kind = if has_map(&mount.name) { PartKind::ConfigMap } else { PartKind::Secret };
    let path = shown(&mount.mount_path);
    Some(if is_part(mount) {
        format!("{kind} at {path} by subPath, where the file never changes while the container runs")
    } else {
        let cause = moved.unmoved.iter().find(|(volume, _)| *volume == mount.name);
        let why = cause.map(|(_, cause)| format!(" ({cause})")).unwrap_or_default();
        format!("{kind} at {path}, whose files the kubelet changes up to a minute after the rollout{why}")
    })
}

fn has_variables(container: &Container, name: &str) -> bool {
    let mut whole = container.env_from.iter().flatten().filter_map(|from| from.config_map_ref.as_ref());
    let mut keys = container.env.iter().flatten();
    whole.any(|map| map.name == name)
        || keys.any(|one| {
            let key = one.value_from.as_ref().and_then(|from| from.config_map_key_ref.as_ref());
            key.is_some_and(|key| key.name == name)
        })
}

/// Returns whether a volume has the Secret of this name.
fn holds_secret(volume: &Volume, name: &str) -> bool {
    let projected = volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten());
    volume.secret.as_ref().is_some_and(|secret| secret.secret_name.as_deref() == Some(name))
        || projected.into_iter().any(|source| source.secret.as_ref().is_some_and(|secret| secret.name == name))
}

/// Returns whether a volume has the ConfigMap of this name.
fn holds(volume: &Volume, name: &str) -> bool {
    let projected = volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten());
    volume.config_map.as_ref().is_some_and(|map| map.name == name)
        || projected.into_iter().any(|source| source.config_map.as_ref().is_some_and(|map| map.name == name))
}
