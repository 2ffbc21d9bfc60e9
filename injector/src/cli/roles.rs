//! Roles: the parts of the control plane that a process runs, each with the rights that only it needs.

use std::fmt;

use clap::ValueEnum;
use nudge_cluster::index::WatchedKind;

/// One part of the control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Role {
    /// The webhooks, and the controllers of the replica that leads.
    Control,
    /// The hub, which agents poll.
    Hub,
    /// The certificates and the content key. It listens to nobody.
    Certs,
    /// The sources of configs, in the replica that leads. It serves its metrics alone.
    Sources,
    /// The numbers that versions are judged by, in the replica that leads. It listens to nobody.
    Analysis,
}

/// The roles of this process, at least one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // each is one role
pub(super) struct Roles {
    pub(super) control: bool,
    pub(super) hub: bool,
    pub(super) certs: bool,
    pub(super) sources: bool,
    pub(super) analysis: bool,
}

impl Roles {
    pub(super) fn new(roles: &[Role]) -> Self {
        let has_role = |role| roles.contains(&role);
        Self {
            control: has_role(Role::Control),
            hub: has_role(Role::Hub),
            certs: has_role(Role::Certs),
            sources: has_role(Role::Sources),
            analysis: has_role(Role::Analysis),
        }
    }

    /// Returns the kinds of objects that are watched in enabled namespaces.
    pub(super) fn watches(self) -> &'static [WatchedKind] {
        match (self.control, self.hub) {
            (true, true) => &WatchedKind::ALL,
            (true, false) => &WatchedKind::OF_CONTROL,
            (false, true) => &WatchedKind::OF_HUB,
            (false, false) => &[],
        }
    }

    /// Returns whether the process needs the enabled namespaces and the content key.
    pub(super) fn works_in_namespaces(self) -> bool {
        self.serve() || self.sources
    }

    /// Returns whether the process needs the content key, or makes it.
    pub(super) fn needs_content_key(self) -> bool {
        self.works_in_namespaces() || self.certs
    }

    /// Returns whether the process serves agents or the API server, with a certificate and an index of the cluster.
    pub(super) fn serve(self) -> bool {
        self.control || self.hub
    }
}

impl fmt::Display for Roles {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let roles = [
            (self.control, "control"),
            (self.hub, "hub"),
            (self.certs, "certs"),
            (self.sources, "sources"),
            (self.analysis, "analysis"),
        ];
        let names: Vec<_> = roles.into_iter().filter_map(|(is_set, name)| is_set.then_some(name)).collect();
        formatter.write_str(&names.join(","))
    }
}
