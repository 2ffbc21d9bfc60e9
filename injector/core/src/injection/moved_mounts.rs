//! The mounts of a config's ConfigMaps and Secrets that move to the agent's volumes. The same files are at the same
//! paths, but in the version that is assigned to this pod.
//!
//! The pod's own volumes stay. The kubelet ignores a volume that no container mounts, and another injection finds
//! everything it needs.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{KeyToPath, Volume};
use nudge_api::PartKind;
use nudge_protocol::volumes::{self, KeptVolume, KeyFile, MAX_VOLUMES, ObjectFiles, ObjectKind, is_relative};
use nudge_protocol::{ConfigName, Key};

use super::facts::{InjectionFacts, ResolvedConfig};
use super::mount_paths::{is_within, real};
use super::mounted_part::is_part;
use super::named_objects::{NamedObject, volume_objects};
use super::quantity::Quantity;
use super::refusal::shorten;
use super::resources::{MIN_FILES_ROOM, room_of};
use super::targets::reader_of;
use super::user_pod::{KEPT_VOLUME_PREFIX, UserContainer, UserPod};
use crate::baseline::BaselineVerdict;

/// The agent's folder with the volumes that it keeps.
const VOLUMES_DIR: &str = "/run/nudge/volumes";
/// The permission bits of files if a volume does not set them.
const DEFAULT_MODE: u32 = 0o644;
/// The bits that a file has for its group if the pod has an `fsGroup`, as the kubelet sets them.
const GROUP_READ_BITS: u32 = 0o440;
/// The permission bits of a file's owner.
const OWNER_BITS: u32 = 0o700;
/// The mode bit that lets the owner read a file. The agent needs it to compare the file.
const OWNER_READ_BIT: u32 = 0o400;
/// The mode bit that lets everybody read a file.
const PUBLIC_READ_BIT: u32 = 0o004;
/// The maximum size of the agent's setting, in bytes: Linux takes 128 KiB for one variable.
const MAX_SETTING_BYTES: usize = 96 * 1024;
/// The minimum size of a volume.
const MIN_VOLUME_ROOM: Quantity = Quantity::mebi(4);

/// A volume that the agent keeps in place of a volume of the pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MovedVolume {
    /// The name of the agent's volume.
    pub(super) name: String,
    /// The agent's setting for it.
    pub(super) kept: KeptVolume,
    /// The size limit of the volume.
    pub(super) room: Quantity,
}

/// The volumes of a pod whose mounts move, and those whose mounts stay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct MovedMounts {
    pub(super) volumes: Vec<MovedVolume>,
    /// The volumes with objects of the pod's configs whose mounts stay, by name.
    pub(super) unmoved: Vec<(String, Unmovable)>,
    /// The pod's volumes with files that not everybody may read, and that belong to another user than their readers.
    group_read: Vec<String>,
    /// The user that the agent must run as, for signals or for files that not everybody may read; `None` if any user
    /// will do.
    pub(super) agent_user: Option<i64>,
}

/// The reason why mounts of a volume stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unmovable {
    /// Containers may start before the agent.
    #[error("this cluster has no native sidecars (Kubernetes 1.29)")]
    NoNativeSidecars,
    /// The pod has no owner that makes it again.
    #[error("no workload owns this pod")]
    BarePod,
    /// The volume also has other content.
    #[error("the volume has more than objects of the pod's configs")]
    Mixed,
    /// The hub may not serve Secrets in the namespace.
    #[error("Nudge may not read Secrets in this namespace")]
    SecretsNotServed,
    /// The agent can't have a file of this key or path.
    #[error("one of its items has a key or path that Nudge does not take")]
    BadItem,
    /// The containers that mount the volume could not read files that the agent writes.
    #[error("not every container that mounts it could read the agent's files; set one runAsUser for them, or fsGroup")]
    Unreadable,
    /// There are more such volumes, or items in them, than the agent keeps.
    #[error("the pod has more such volumes, or items in them, than the agent keeps")]
    TooMany,
    /// A LimitRange leaves too little memory for the agent's files.
    #[error("a LimitRange of this namespace leaves the agent too little memory for its files")]
    NoMemory,
}

impl MovedMounts {
    /// Decides which mounts of `members`, the containers that use the agent, move. `signalling_user` is the user that
    /// signals need. `added_paths` are the mount paths of the volumes that injection adds to each of these containers.
    pub(super) fn of(
        pod: &UserPod,
        members: &[&UserContainer],
        configs: &[ConfigName],
        facts: &InjectionFacts,
        signalling_user: Option<i64>,
        added_paths: &[&str],
    ) -> Self {
        let mut moved = Self { agent_user: signalling_user, ..Self::default() };
        for volume in pod.spec.volumes.iter().flatten() {
            let readers: Vec<&UserContainer> =
                members.iter().copied().filter(|member| has_mount(member, &volume.name)).collect();
            if readers.is_empty() {
                continue;
            }
            let Some(sources) = objects_of(volume, configs, facts) else { continue };
            let readable = sources
                .and_then(|sources| moved.check(pod, facts).map(|()| sources))
                .and_then(|sources| with_readable_modes(sources, pod, &readers, moved.agent_user));
            match readable {
                Ok(ReadableFiles { sources, agent_user, is_group_read }) => {
                    let number = moved.volumes.len() + 1;
                    let names: BTreeSet<&ConfigName> = sources.iter().map(|source| &source.config).collect();
                    let resolved: Vec<&ResolvedConfig> = names
                        .iter()
                        .filter_map(|name| facts.configs.get(*name))
                        .filter(|config| config.version.is_some())
                        .collect();
                    // A config without a version may get a large version.
                    let min_room = if resolved.len() < names.len() { MIN_FILES_ROOM } else { MIN_VOLUME_ROOM };
                    let room = room_of(resolved.into_iter(), 2).max(min_room);
                    let kept = KeptVolume {
                        volume: volume.name.clone(),
                        folder: format!("{VOLUMES_DIR}/{number}"),
                        sources,
                        mountpoints: mountpoints(&readers, &volume.name, added_paths),
                    };
                    moved.volumes.push(MovedVolume { name: format!("{KEPT_VOLUME_PREFIX}{number}"), kept, room });
                    if moved.setting().len() > MAX_SETTING_BYTES {
                        moved.volumes.pop();
                        moved.unmoved.push((volume.name.clone(), Unmovable::TooMany));
                    } else {
                        moved.agent_user = agent_user;
                        moved.group_read.extend(is_group_read.then(|| volume.name.clone()));
                    }
                }
                Err(cause) => moved.unmoved.push((volume.name.clone(), cause)),
            }
        }
        moved
    }

    /// Returns a warning for each volume with files that belong to another user than their readers. The kubelet's files
    /// are root's, which such programs take.
    pub(super) fn warnings(&self) -> impl Iterator<Item = String> {
        self.group_read.iter().map(|volume| {
            format!(
                "the files of volume {} belong to the agent's user: a program that refuses another user's key (PostgreSQL) \
                 needs one runAsUser for all containers that mount the volume",
                shorten(volume)
            )
        })
    }

    /// Returns the same mounts, all of which stay. `signalling_user` is the user that signals need.
    pub(super) fn without_memory(self, signalling_user: Option<i64>) -> Self {
        let stay = self.volumes.into_iter().map(|moved| (moved.kept.volume, Unmovable::NoMemory));
        let unmoved = self.unmoved.into_iter().chain(stay).collect();
        Self { agent_user: signalling_user, unmoved, ..Self::default() }
    }

    /// Returns the name of the agent's volume that takes over the mounts of this volume of the pod.
    pub(super) fn target(&self, volume: &str) -> Option<&str> {
        self.volumes.iter().find(|moved| moved.kept.volume == volume).map(|moved| moved.name.as_str())
    }

    /// Returns the agent's setting; empty if nothing moves.
    pub(super) fn setting(&self) -> String {
        let kept: Vec<KeptVolume> = self.volumes.iter().map(|moved| moved.kept.clone()).collect();
        if kept.is_empty() { String::new() } else { volumes::write(&kept) }
    }

    /// Returns the memory that the volumes may take together; `None` if there are none.
    pub(super) fn room(&self) -> Option<Quantity> {
        self.volumes.iter().map(|moved| moved.room).reduce(Quantity::plus)
    }

    /// Checks whether mounts of this pod can move, and whether there is a place for another volume.
    fn check(&self, pod: &UserPod, facts: &InjectionFacts) -> Result<(), Unmovable> {
        if !facts.features.native_sidecars {
            return Err(Unmovable::NoNativeSidecars);
        }
        if pod.owners.is_empty() {
            return Err(Unmovable::BarePod);
        }
        if self.volumes.len() == MAX_VOLUMES { Err(Unmovable::TooMany) } else { Ok(()) }
    }
}

fn has_mount(member: &UserContainer, volume: &str) -> bool {
    member.container.volume_mounts.iter().flatten().any(|mount| mount.name == volume)
}

/// Returns the objects of the pod's configs that a volume has, or why they can't move; `None` if it has none of them.
fn objects_of(
    volume: &Volume,
    configs: &[ConfigName],
    facts: &InjectionFacts,
) -> Option<Result<Vec<ObjectFiles>, Unmovable>> {
    let source = |object: NamedObject<'_>| {
        let is_object = |config: &&ConfigName| config.as_str() == object.name && owns(config, object.kind, facts);
        let config = configs.iter().find(is_object)?;
        let is_served = facts.configs.get(config).is_none_or(|resolved| resolved.serves(object.kind));
        Some(if is_served { object_files(config, object) } else { Err(Unmovable::SecretsNotServed) })
    };
    let projections = volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten());
    let others = projections.filter(|source| source.config_map.is_none() && source.secret.is_none());
    let sources: Vec<_> = volume_objects(volume).map(source).chain(others.map(|_| None)).collect();
    if sources.iter().all(Option::is_none) {
        return None;
    }
    Some(sources.into_iter().map(|source| source.unwrap_or(Err(Unmovable::Mixed))).collect())
}

/// Returns whether the object of the config's name and of this kind belongs to the config.
pub(super) fn owns(config: &ConfigName, kind: PartKind, facts: &InjectionFacts) -> bool {
    match facts.configs.get(config) {
        Some(resolved) => resolved.objects.contains(&kind),
        None => facts.verdict(kind, config.as_str()).is_some_and(BaselineVerdict::becomes_config),
    }
}

/// Returns the files of one object of a volume.
fn object_files(config: &ConfigName, object: NamedObject<'_>) -> Result<ObjectFiles, Unmovable> {
    let bits = |mode: i32| u32::try_from(mode).unwrap_or(DEFAULT_MODE) & 0o777;
    let item = |item: &KeyToPath| {
        let key = Key::new(&item.key).ok().filter(|_| is_relative(&item.path))?;
        Some(KeyFile { key, path: item.path.clone(), mode: item.mode.map(bits) })
    };
    let items: Option<Vec<KeyFile>> = object.items.iter().map(item).collect();
    Ok(ObjectFiles {
        config: config.clone(),
        kind: object.kind.into(),
        optional: object.optional == Some(true),
        mode: object.mode.map_or(DEFAULT_MODE, bits),
        items: items.ok_or(Unmovable::BadItem)?,
    })
}

/// The objects of a volume with modes that let every reader read the files.
struct ReadableFiles {
    sources: Vec<ObjectFiles>,
    /// The user that signals and files need; `None` if any user will do.
    agent_user: Option<i64>,
    /// Whether the readers read files by the pod's `fsGroup` that not everybody may read.
    is_group_read: bool,
}

/// Sets modes that let every reader read the files. Files that not everybody may read stay closed to others: the agent
/// must run as their one reader, or the pod must have an `fsGroup`. `agent_user` is the user that signals need.
fn with_readable_modes(
    mut sources: Vec<ObjectFiles>,
    pod: &UserPod,
    readers: &[&UserContainer],
    mut agent_user: Option<i64>,
) -> Result<ReadableFiles, Unmovable> {
    let group = pod.spec.security_context.as_ref().and_then(|context| context.fs_group);
    let is_public = |kind: ObjectKind, mode: u32| kind == ObjectKind::ConfigMap && mode & PUBLIC_READ_BIT != 0;
    let modes = |source: &ObjectFiles| {
        source.items.iter().filter_map(|item| item.mode).chain([source.mode]).collect::<Vec<_>>()
    };
    let is_all_public = |source: &ObjectFiles| modes(source).into_iter().all(|mode| is_public(source.kind, mode));
    let is_strict = sources.iter().flat_map(modes).any(|mode| mode & PUBLIC_READ_BIT == 0);
    let mut is_group_read = false;
    // Processes that begin as root, or get the group only from the pod, may continue as another user.
    let with_group: fn(u32) -> u32 = |mode| mode | OWNER_READ_BIT | GROUP_READ_BITS;
    let unchanged: fn(u32) -> u32 = |mode| mode | OWNER_READ_BIT;
    let public = if group.is_some() { with_group } else { unchanged };
    let private = if sources.iter().all(is_all_public) {
        public
    } else {
        // Root reads every file.
        let users: BTreeSet<Option<i64>> = readers
            .iter()
            .map(|reader| reader_of(pod, reader))
            .filter(|reader| !reader.reads_all)
            .map(|reader| reader.uid)
            .collect();
        match Vec::from_iter(users)[..] {
            [] => unchanged,
            [Some(uid)] if uid != 0 && agent_user.is_none_or(|agent| agent == uid) => {
                agent_user = Some(uid);
                |mode| (mode & OWNER_BITS) | OWNER_READ_BIT
            }
            _ if group.is_some() => {
                is_group_read = is_strict;
                with_group
            }
            _ => return Err(Unmovable::Unreadable),
        }
    };
    for source in &mut sources {
        let adapt = |mode: u32| if is_public(source.kind, mode) { public(mode) } else { private(mode) };
        source.mode = adapt(source.mode);
        for mode in source.items.iter_mut().filter_map(|item| item.mode.as_mut()) {
            *mode = adapt(*mode);
        }
    }
    Ok(ReadableFiles { sources, agent_user, is_group_read })
}

/// Returns the folders of a volume that are mount points of other volumes in the readers. The kubelet creates such
/// folders in its volumes, and the agent in its own.
fn mountpoints(readers: &[&UserContainer], volume: &str, added_paths: &[&str]) -> Vec<String> {
    let mut folders = BTreeSet::new();
    for reader in readers {
        let mounts = || reader.container.volume_mounts.iter().flatten();
        for mount in mounts().filter(|mount| mount.name == volume && !is_part(mount)) {
            let mount_path = real(&mount.mount_path);
            let paths = mounts().map(|other| other.mount_path.as_str()).chain(added_paths.iter().copied());
            let paths_below = paths.map(real).filter(|path| *path != mount_path && is_within(path, &mount_path));
            folders.extend(
                paths_below.filter_map(|path| Some(path.strip_prefix(&mount_path)?.trim_start_matches('/').to_owned())),
            );
        }
    }
    folders.into_iter().filter(|path| is_relative(path)).collect()
}
