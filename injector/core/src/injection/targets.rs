//! Which containers get variables and mounts, and which are told of a change.

use std::collections::BTreeMap;

use nudge_protocol::Notify;

use super::annotations::CONTAINERS;
use super::pod_request::PodRequest;
use super::refusal::Refusal;
use super::user_pod::{Member, Role, UserPod};

/// See the module's text.
pub(super) struct Targets<'a> {
    /// Who gets variables and mounts.
    pub(super) members: Vec<&'a Member>,
    /// Who is told, and how; by name, so that containers of other injectors between them make no difference.
    pub(super) told: BTreeMap<&'a str, Notify>,
}

impl<'a> Targets<'a> {
    /// `sidecar`: the agent starts before the init containers, so they can use it too.
    pub(super) fn of(
        user: &'a UserPod,
        request: &'a PodRequest,
        foreign: &[String],
        sidecar: bool,
    ) -> Result<Self, Refusal> {
        let reached = |member: &Member| sidecar || member.role == Role::Main;
        let members: Vec<&Member> = if let Some(names) = &request.containers {
            let named = user.members.iter().filter(|member| names.iter().any(|name| name == member.name()));
            let named: Vec<&Member> = named.collect();
            if let Some(early) = named.iter().find(|member| !reached(member)) {
                return Err(Refusal::Pod(format!(
                    "annotation {CONTAINERS} names init container {}, which ends before the agent starts: this cluster has no native \
                         sidecars (Kubernetes 1.29); take it out",
                    early.name()
                )));
            }
            named
        } else {
            let own = user.members.iter().filter(|member| !foreign.iter().any(|name| name == member.name()));
            own.filter(|member| reached(member)).collect()
        };
        let running = members.iter().filter(|member| member.role != Role::Init);
        let mut told: BTreeMap<&str, Notify> =
            running.map(|member| (member.name(), request.notify.unwrap_or_default())).collect();
        told.extend(request.notify_of.iter().map(|(name, way)| (name.as_str(), *way)));
        told.retain(|_, way| *way != Notify::None);
        Ok(Self { members, told })
    }

    /// The containers that are told by signal.
    pub(super) fn signalled(&self) -> impl Iterator<Item = &'a str> {
        self.told.iter().filter(|(_, way)| way.signal().is_some()).map(|(name, _)| *name)
    }
}
