//! What each container of a pod reads of each config, and what the pod's annotations say about it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use k8s_openapi::api::core::v1::{Container, PodSpec, VolumeMount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use nudge_api::PartKind;
use nudge_protocol::limits::MAX_CONFIGS;
use nudge_protocol::settings::{SEPARATOR, parse_pair};
use nudge_protocol::volumes::{self, KeptVolume};
use nudge_protocol::{ConfigName, ContainerName, Notify, pod as names};

use crate::injection::mounted_part::is_part;
use crate::injection::named_objects::{container_objects, mounted_volume, variable_objects, volume_objects};
use crate::injection::request::{UpdateWay, is_updated_by_rollout, stated_way};
use crate::injection::user_pod::{FILES_VOLUME, KEPT_VOLUME_PREFIX, SHARE_VOLUME};

/// The maximum number of pairs of a container and a config that are kept apart of one pod. What further containers read
/// counts together, for each config.
pub(in crate::injection) const MAX_PAIRS: usize = 256;

/// A way to read a config.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReadPath {
    /// Files that the agent keeps and swaps: a mount that moved, or `nudge.dev/mount-path`.
    KeptFiles,
    /// A part of a volume that the agent keeps, mounted by `subPath`.
    KeptPart,
    /// A volume that the agent keeps, mounted only by init containers that end.
    KeptAtStart,
    /// Variables from the object.
    Variables(PartKind),
    /// A part of a volume of the object, mounted by `subPath`.
    ObjectPart(PartKind),
    /// A volume of the object whose mounts did not move.
    ObjectFiles(PartKind),
}

impl ReadPath {
    /// Returns whether what is read stays the same while the container runs, or is not what the agent serves.
    pub fn is_fixed(self) -> bool {
        self != Self::KeptFiles
    }

    /// Returns whether the agent keeps what is read.
    pub fn is_kept(self) -> bool {
        self.object().is_none()
    }

    /// Returns the kind of the object that is read, unless the agent keeps what is read.
    pub fn object(self) -> Option<PartKind> {
        match self {
            Self::KeptFiles | Self::KeptPart | Self::KeptAtStart => None,
            Self::Variables(kind) | Self::ObjectPart(kind) | Self::ObjectFiles(kind) => Some(kind),
        }
    }
}

impl fmt::Display for ReadPath {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KeptFiles => out.write_str("files that the agent swaps"),
            Self::KeptPart => out.write_str("a file by subPath"),
            Self::KeptAtStart => out.write_str("files that only init containers mount"),
            Self::Variables(kind) => write!(out, "the {kind} by variables"),
            Self::ObjectPart(kind) => write!(out, "the {kind} by subPath"),
            Self::ObjectFiles(kind) => write!(out, "the {kind} by a mount that did not move"),
        }
    }
}

/// What one container reads of one config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerReads {
    /// The name of the container.
    pub container: Box<str>,
    /// The config whose objects the container reads.
    pub config: ConfigName,
    /// The way that the annotations of the pod say; `None` if they say nothing about the container.
    pub way: Option<UpdateWay>,
    /// Whether the container runs alongside the agent and has its endpoint.
    pub has_endpoint: bool,
    /// The ways to read, each once.
    pub paths: Box<[ReadPath]>,
}

/// What the containers of a pod read of configs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodReads(Box<[ContainerReads]>);

/// The facts about a pod that [`PodReads`] follow from.
pub(in crate::injection) struct PodView<'a> {
    pub(in crate::injection) meta: &'a ObjectMeta,
    pub(in crate::injection) spec: &'a PodSpec,
    pub(in crate::injection) configs: &'a [ConfigName],
    /// The notification of each container that the agent notifies.
    pub(in crate::injection) notified: BTreeMap<&'a str, Notify>,
    /// Returns the agent's volume that a mount of this name uses.
    pub(in crate::injection) kept_volume: &'a dyn Fn(&str) -> Option<&'a KeptVolume>,
    /// Returns whether the container has the agent's endpoint.
    pub(in crate::injection) has_endpoint: &'a dyn Fn(&Container) -> bool,
    /// Returns whether the container has the agent's files (`nudge.dev/mount-path`).
    pub(in crate::injection) has_files: &'a dyn Fn(&Container) -> bool,
    pub(in crate::injection) mounts: UnmovedMounts,
    /// The maximum number of pairs of a container and a config that are kept apart.
    pub(in crate::injection) max_pairs: usize,
}

/// The meaning of mounts that the agent does not keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::injection) enum UnmovedMounts {
    /// The pod is injected, and they stay.
    Stay,
    /// The pod is a template, and they move where they can.
    MayMove,
}

impl PodReads {
    /// Returns what the containers read: of a stored pod that has an agent, or of a template that opts in, as far as it
    /// shows that.
    pub fn of(meta: &ObjectMeta, spec: &PodSpec) -> Self {
        Self::bounded(meta, spec, MAX_PAIRS)
    }

    /// Returns the same with each container apart, however many there are: for a single pod that is soon forgotten.
    pub fn of_each_container(meta: &ObjectMeta, spec: &PodSpec) -> Self {
        Self::bounded(meta, spec, usize::MAX)
    }

    fn bounded(meta: &ObjectMeta, spec: &PodSpec, max_pairs: usize) -> Self {
        let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
        let has_configs = |container: &&Container| {
            container.env.iter().flatten().any(|variable| variable.name == names::env::CONFIGS)
        };
        let mut agents = containers.filter(|container| container.name == names::AGENT_CONTAINER);
        let Some(agent) = agents.find(has_configs) else {
            return Self::of_template(meta, spec, max_pairs);
        };
        let setting = |name: &str| {
            let variable = agent.env.iter().flatten().find(|variable| variable.name == name);
            // Kubernetes reads `$$` as `$`.
            variable.and_then(|variable| variable.value.as_deref()).unwrap_or_default().replace("$$", "$")
        };
        let (configs, notify) = (setting(names::env::CONFIGS), setting(names::env::NOTIFY));
        let configs = configs.split(SEPARATOR).filter_map(|name| ConfigName::new(name.trim()).ok());
        let configs: BTreeSet<ConfigName> = configs.take(MAX_CONFIGS).collect();
        let notified: BTreeMap<ContainerName, Notify> =
            notify.split(SEPARATOR).filter_map(|item| parse_pair(item).ok()).collect();
        let kept = volumes::read(&setting(names::env::VOLUMES)).unwrap_or_default();
        let mounts = |container: &Container, volume: &str| {
            container.volume_mounts.iter().flatten().any(|mount| mount.name == volume)
        };
        Self::read(&PodView {
            meta,
            spec,
            configs: &Vec::from_iter(configs),
            notified: notified.iter().map(|(name, notify)| (name.as_str(), *notify)).collect(),
            kept_volume: &|name| {
                let number: usize = name.strip_prefix(KEPT_VOLUME_PREFIX)?.parse().ok()?;
                kept.get(number.checked_sub(1)?)
            },
            has_endpoint: &|container| mounts(container, SHARE_VOLUME),
            has_files: &|container| mounts(container, FILES_VOLUME),
            mounts: UnmovedMounts::Stay,
            max_pairs,
        })
    }

    /// Returns what the containers of a template read of the objects that they name.
    fn of_template(meta: &ObjectMeta, spec: &PodSpec, max_pairs: usize) -> Self {
        let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
        let configs: BTreeSet<ConfigName> = containers
            .clone()
            .flat_map(|container| container_objects(spec, container))
            .filter_map(|object| ConfigName::new(object.name).ok())
            .collect();
        let notified = containers.clone().filter_map(|container| match stated_way(meta, &container.name)? {
            UpdateWay::Agent(notify) if notify != Notify::None => Some((container.name.as_str(), notify)),
            _ => None,
        });
        Self::read(&PodView {
            meta,
            spec,
            configs: &Vec::from_iter(configs),
            notified: notified.collect(),
            kept_volume: &|_| None,
            has_endpoint: &|_| true,
            has_files: &|_| false,
            mounts: UnmovedMounts::MayMove,
            max_pairs,
        })
    }

    /// Returns what the containers of a pod read.
    pub(in crate::injection) fn read(view: &PodView<'_>) -> Self {
        let init = view.spec.init_containers.iter().flatten();
        let main = view.spec.containers.iter().map(|container| (container, true));
        let members: Vec<(&Container, bool)> = init
            .map(|container| (container, container.restart_policy.as_deref() == Some("Always")))
            .chain(main)
            .filter(|(container, _)| container.name != names::AGENT_CONTAINER)
            .collect();
        let running = members.iter().filter(|(_, runs)| *runs);
        let mounted_while_running: BTreeSet<&str> = running
            .flat_map(|(container, _)| container.volume_mounts.iter().flatten())
            .map(|mount| mount.name.as_str())
            .collect();
        let mut pairs: Vec<ContainerReads> = Vec::new();
        let mut further_pairs: BTreeMap<ConfigName, ContainerReads> = BTreeMap::new();
        for (container, runs) in members {
            let way = view.way(&container.name);
            let has_endpoint = runs && (view.has_endpoint)(container);
            for config in view.configs {
                let mut paths: Vec<ReadPath> = variable_objects(container)
                    .filter(|object| object.name == config.as_str())
                    .map(|object| ReadPath::Variables(object.kind))
                    .collect();
                for mount in container.volume_mounts.iter().flatten() {
                    let at_start = !runs && !mounted_while_running.contains(mount.name.as_str());
                    if runs || at_start {
                        paths.extend(view.mount_paths(mount, config, at_start));
                    }
                }
                if runs && (view.has_files)(container) {
                    paths.push(ReadPath::KeptFiles);
                }
                paths.sort_unstable();
                paths.dedup();
                if !has_endpoint && paths.is_empty() {
                    continue;
                }
                let (container, paths) = (container.name.as_str().into(), paths.into());
                let reads = ContainerReads { container, config: config.clone(), way, has_endpoint, paths };
                if pairs.len() < view.max_pairs {
                    pairs.push(reads);
                    continue;
                }
                match further_pairs.get_mut(config) {
                    Some(others) => others.merge(&reads),
                    None => _ = further_pairs.insert(config.clone(), reads),
                }
            }
        }
        Self(pairs.into_iter().chain(further_pairs.into_values()).collect())
    }

    /// Returns what each container reads of each config.
    pub fn containers(&self) -> &[ContainerReads] {
        &self.0
    }
}

impl ContainerReads {
    /// Adds what another container reads of the config. The first one stands for both. They take a version by the way
    /// that both have.
    fn merge(&mut self, other: &Self) {
        self.way = self.way.filter(|way| other.way == Some(*way));
        self.has_endpoint |= other.has_endpoint;
        let paths: BTreeSet<ReadPath> = self.paths.iter().chain(&other.paths).copied().collect();
        self.paths = paths.into_iter().collect();
    }
}

impl PodView<'_> {
    /// Returns how a container takes versions, as far as annotations and the agent's settings say it. One container
    /// decides for its pod where that is restarted.
    fn way(&self, container: &str) -> Option<UpdateWay> {
        let left_alone = UpdateWay::Agent(Notify::None);
        if stated_way(self.meta, container) == Some(left_alone) {
            return Some(left_alone);
        }
        if is_updated_by_rollout(self.meta) {
            return Some(UpdateWay::Rollout);
        }
        if self.notified.values().any(|notify| *notify == Notify::InPlace) {
            return Some(UpdateWay::Agent(Notify::InPlace));
        }
        self.notified.get(container).copied().map(UpdateWay::Agent)
    }

    /// Returns how a mount reads a config. `at_start`: only init containers that end mount the volume.
    fn mount_paths(&self, mount: &VolumeMount, config: &ConfigName, at_start: bool) -> Vec<ReadPath> {
        let is_part = is_part(mount);
        if let Some(kept) = (self.kept_volume)(&mount.name) {
            let is_of_config = kept.sources.iter().any(|source| source.config == *config);
            let path = match (at_start, is_part) {
                (true, _) => ReadPath::KeptAtStart,
                (false, true) => ReadPath::KeptPart,
                (false, false) => ReadPath::KeptFiles,
            };
            return is_of_config.then_some(path).into_iter().collect();
        }
        let of_config = mounted_volume(self.spec, mount).into_iter().flat_map(volume_objects);
        let of_config = of_config.filter(|object| object.name == config.as_str());
        let path = |kind: PartKind| match (is_part, self.mounts) {
            (true, _) => ReadPath::ObjectPart(kind),
            (false, UnmovedMounts::MayMove) if !at_start => ReadPath::KeptFiles,
            (false, _) => ReadPath::ObjectFiles(kind),
        };
        of_config.map(|object| path(object.kind)).collect()
    }
}
