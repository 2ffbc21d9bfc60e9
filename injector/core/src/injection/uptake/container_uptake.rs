//! The way a container takes a version of a config, decided from what it reads.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use nudge_api::PartKind;
use nudge_protocol::{ConfigName, Notify};

use super::pod_reads::{ContainerReads, PodReads, ReadPath};
use crate::injection::request::{UpdateWay, stated_expectation};

/// The way a container takes a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uptake {
    /// The agent notifies the container, after it has swapped the files. For [`Notify::InPlace`], it has all containers
    /// of the pod started again in place.
    Notified(Notify),
    /// The container watches its files, and has taken the version when they are swapped. Nobody says that it has read
    /// them, so this is weak evidence.
    WatchesFiles,
    /// Only a new pod brings the version.
    Restart(RestartCause),
    /// The container asks the agent's endpoint, or does not use the config: the pod shows nothing that it reads.
    Asks,
    /// The container is left alone (`notify: none`): nothing is claimed about it.
    Itself,
}

/// The reason why only a new pod brings a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartCause {
    /// An annotation says so (`notify: rollout`): the agent keeps the version that the pod started with.
    Annotation,
    /// The container reads the config in this way, which never changes while it runs.
    Reads(ReadPath),
}

/// The way one container takes versions of one config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerUptake<'a> {
    /// The name of the container.
    pub container: &'a str,
    /// The config that the container takes versions of.
    pub config: &'a ConfigName,
    /// The way.
    pub uptake: Uptake,
}

impl ContainerUptake<'_> {
    /// Describes how the container takes a version, and what must show that it did, as the annotations of its pod say.
    pub fn describe(&self, meta: &ObjectMeta) -> String {
        let is_verified = matches!(self.uptake, Uptake::Notified(notify) if notify != Notify::InPlace);
        match stated_expectation(meta, self.container).filter(|_| is_verified) {
            Some(expectation) => format!("{}, verified by {}", self.uptake, expectation.sign),
            None => self.uptake.to_string(),
        }
    }
}

impl fmt::Display for RestartCause {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Annotation => out.write_str("its pod has notify: rollout"),
            Self::Reads(path) => write!(out, "it reads {path}"),
        }
    }
}

impl fmt::Display for Uptake {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Notified(Notify::InPlace) => out.write_str("a restart in place"),
            Self::Notified(notify) => write!(out, "{notify}"),
            Self::WatchesFiles => out.write_str("its files, which it watches"),
            Self::Restart(cause) => write!(out, "a restart, because {cause}"),
            Self::Asks => out.write_str("the agent's endpoint"),
            Self::Itself => out.write_str("itself (notify: none)"),
        }
    }
}

impl PodReads {
    /// Returns how each container takes each config: exactly one way for each that reads the config or can ask the
    /// agent for it, in the order of the pod. `owns` says whether the object of this kind, which has the config's name,
    /// belongs to the config (`spec.objects`); another object's content is no version.
    ///
    /// For a pod that is stored, or an answer of a dry run, the result is exact. For a template, mounts count as moved.
    pub fn uptakes(&self, owns: impl Fn(&ConfigName, PartKind) -> bool) -> Vec<ContainerUptake<'_>> {
        let uptake = |reads: &'_ ContainerReads| reads.uptake(|kind| owns(&reads.config, kind));
        let each = self.containers().iter().filter_map(|reads| {
            let uptake = uptake(reads)?;
            Some(ContainerUptake { container: &reads.container, config: &reads.config, uptake })
        });
        each.collect()
    }

    /// Returns how the containers take this config, as [`Self::uptakes`] does.
    pub fn uptakes_of<'a>(
        &'a self,
        config: &str,
        owns: impl Fn(PartKind) -> bool,
    ) -> impl Iterator<Item = ContainerUptake<'a>> {
        let of_config = self.containers().iter().filter(move |reads| reads.config.as_str() == config);
        of_config.filter_map(move |reads| {
            let uptake = reads.uptake(&owns)?;
            Some(ContainerUptake { container: &reads.container, config: &reads.config, uptake })
        })
    }
}

impl PodReads {
    /// Returns what containers read of this config that only a new pod brings.
    pub fn fixed_reads<'a>(
        &'a self,
        config: &str,
        owns: impl Fn(PartKind) -> bool,
    ) -> impl Iterator<Item = (&'a str, ReadPath)> {
        let of_config = self.containers().iter().filter(move |reads| reads.config.as_str() == config);
        of_config.flat_map(move |reads| {
            let is_by_reads = matches!(reads.uptake(&owns), Some(Uptake::Restart(RestartCause::Reads(_))));
            let paths = reads.owned_paths(&owns).filter(|path| reads.needs_new_pod(*path) && is_by_reads);
            paths.map(|path| (&*reads.container, path)).collect::<Vec<_>>()
        })
    }
}

impl ContainerReads {
    /// Returns the ways to read that are about the config: `owns` says whether an object of this kind belongs to it.
    fn owned_paths(&self, owns: impl Fn(PartKind) -> bool) -> impl Iterator<Item = ReadPath> + Clone {
        let is_owned = |path: &ReadPath| path.object().is_none_or(&owns);
        self.paths.iter().copied().filter(is_owned).collect::<Vec<_>>().into_iter()
    }

    /// Returns whether the container is started again in place for each version.
    fn is_in_place(&self) -> bool {
        self.way == Some(UpdateWay::Agent(Notify::InPlace))
    }

    /// Returns whether only a new pod brings what is read in this way. A restart in place brings what the agent keeps.
    fn needs_new_pod(&self, path: ReadPath) -> bool {
        path.is_fixed() && !(self.is_in_place() && path.is_kept())
    }

    /// Returns how the container takes a version; `None` if it does not get the config. `owns` says whether an object
    /// of this kind belongs to the config.
    fn uptake(&self, owns: impl Fn(PartKind) -> bool) -> Option<Uptake> {
        let mut paths = self.owned_paths(owns);
        if !self.has_endpoint && paths.clone().next().is_none() {
            return None;
        }
        match self.way {
            Some(UpdateWay::Agent(Notify::None)) => return Some(Uptake::Itself),
            Some(UpdateWay::Rollout) => return Some(Uptake::Restart(RestartCause::Annotation)),
            _ => {}
        }
        if let Some(path) = paths.clone().find(|path| self.needs_new_pod(*path)) {
            return Some(Uptake::Restart(RestartCause::Reads(path)));
        }
        let is_running = self.has_endpoint || self.is_in_place();
        match self.way {
            // A container that has ended takes nothing: the running container with the same volume does.
            _ if !is_running => None,
            Some(UpdateWay::Agent(notify)) => Some(Uptake::Notified(notify)),
            _ if paths.any(|path| path == ReadPath::KeptFiles) => Some(Uptake::WatchesFiles),
            _ => Some(Uptake::Asks),
        }
    }
}
