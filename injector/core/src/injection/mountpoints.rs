//! The check that the folders for the mounts of Nudge's volumes exist or can be made.
//!
//! The runtime makes a missing folder in the mount above it. In a read-only mount it can't, and the container never
//! starts. For volumes of ConfigMaps, Secrets and the like, which are always read-only, the kubelet makes the folders
//! before (`MakeNestedMountpoints` in kubernetes/pkg/volume/util), in the root of the volume. A volume that comes with
//! content, such as a claim or an image, may have the folder.

use k8s_openapi::api::core::v1::{Volume, VolumeMount};
use nudge_protocol::pod;
use serde_json::Value;

use super::mount_paths::{is_within, real};
use super::mounted_part::is_part;
use super::refusal::{InjectionRefusal, shorten};
use super::request::annotations::{CONTAINERS, MOUNT_PATH};
use super::user_pod::{UserContainer, UserPod};

/// The answer to the question whether a mount has a folder for another mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum FolderIn {
    /// The mount is read-only and the folder is not in it.
    Never,
    /// The volume has the folder only if its content brings it.
    Perhaps,
    /// The runtime creates the folder.
    Always,
}

/// Refuses a pod if a folder for Nudge's mounts can't be made in one of its containers. `members` get these mounts.
/// Returns warnings about folders that must exist already.
pub(super) fn check(
    pod: &UserPod,
    members: &[&UserContainer],
    files: Option<&str>,
) -> Result<Vec<String>, InjectionRefusal> {
    let mut warnings = Vec::new();
    let places = [(pod::CONTAINER_PATH, None)].into_iter().chain(files.map(|path| (path, Some(MOUNT_PATH))));
    for (path, annotation) in places {
        for (at, member) in members.iter().enumerate() {
            let Some(mount) = mount_above(member, path) else { continue };
            // The containers start in this order, and the folder stays in the volume.
            let before = members[..at].iter().filter_map(|member| mount_above(member, path));
            let mounts_of_volume = before.filter(|earlier| is_same(earlier, mount)).chain([mount]);
            let folder = mounts_of_volume.map(|mount| folder_in(pod, mount)).max();
            if folder == Some(FolderIn::Always) {
                continue;
            }
            let remedy = match annotation {
                Some(annotation) => format!("choose another path with annotation {annotation}"),
                None => "mount it elsewhere".to_owned(),
            };
            let mounts = format!(
                "container {} mounts volume {} at {}",
                shorten(member.name()),
                shorten(&mount.name),
                shorten(&mount.mount_path)
            );
            if folder == Some(FolderIn::Perhaps) {
                let path = shorten(path);
                warnings.push(format!(
                    "{mounts} read-only, so it starts only if the volume has the folder {path}; make the folder there, or {remedy}"
                ));
                continue;
            }
            return Err(InjectionRefusal(format!(
                "{mounts}, in which the folder {path} can't be made for Nudge's files (it is read-only, or a part of \
                 a volume); {remedy}, or exclude the container with annotation {CONTAINERS}"
            )));
        }
    }
    Ok(warnings)
}

/// Returns the mount that would hold a new folder at `path`. Of two mounts at the same place, the later one is on top.
fn mount_above<'a>(member: &'a UserContainer, path: &str) -> Option<&'a VolumeMount> {
    let path = real(path);
    let mounts = member.container.volume_mounts.iter().flatten();
    let mounts =
        mounts.map(|mount| (real(&mount.mount_path), mount)).filter(|(at, _)| *at != path && is_within(&path, at));
    mounts.max_by_key(|(at, _)| at.len()).map(|(_, mount)| mount)
}

/// Returns whether both mount the same folder of a volume at the same place.
fn is_same(a: &VolumeMount, b: &VolumeMount) -> bool {
    let place = |mount: &VolumeMount| {
        (mount.name.clone(), real(&mount.mount_path), mount.sub_path.clone(), mount.sub_path_expr.clone())
    };
    place(a) == place(b)
}

/// Returns whether the mount has a folder for another mount.
fn folder_in(pod: &UserPod, mount: &VolumeMount) -> FolderIn {
    let mut volumes = pod.spec.volumes.iter().flatten();
    let Some(volume) = volumes.find(|volume| volume.name == mount.name) else { return FolderIn::Always };
    let by_kubelet = is_written_by_the_kubelet(volume);
    let is_writable = if by_kubelet {
        !is_part(mount)
    } else {
        mount.read_only != Some(true) && volume.image.is_none() && !is_read_only(volume)
    };
    match (is_writable, by_kubelet || volume.empty_dir.is_some()) {
        (true, _) => FolderIn::Always,
        (false, true) => FolderIn::Never,
        (false, false) => FolderIn::Perhaps,
    }
}

fn is_written_by_the_kubelet(volume: &Volume) -> bool {
    volume.config_map.is_some()
        || volume.secret.is_some()
        || volume.projected.is_some()
        || volume.downward_api.is_some()
}

/// Returns whether the volume itself is read-only, regardless of its kind.
fn is_read_only(volume: &Volume) -> bool {
    let kinds = serde_json::to_value(volume).unwrap_or_default();
    kinds.as_object().is_some_and(|kinds| kinds.values().any(|source: &Value| source["readOnly"] == true))
}
