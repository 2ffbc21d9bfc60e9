//! Roles: the parts of the control plane that a process runs, each with the rights that only it needs.

use std::collections::BTreeSet;
use std::fmt;

use clap::ValueEnum;
use clap::builder::PossibleValue;
use nudge_cluster::index::WatchedKind;

/// One part of the control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Roles(BTreeSet<Role>);

impl Roles {
    pub(super) fn new(roles: &[Role]) -> Self {
        Self(roles.iter().copied().collect())
    }

    pub(super) fn has(&self, role: Role) -> bool {
        self.0.contains(&role)
    }

    /// Returns the kinds of objects that are watched in enabled namespaces.
    pub(super) fn watches(&self) -> &'static [WatchedKind] {
        match (self.has(Role::Control), self.has(Role::Hub)) {
            (true, true) => &WatchedKind::ALL,
            (true, false) => &WatchedKind::OF_CONTROL,
            (false, true) => &WatchedKind::OF_HUB,
            (false, false) => &[],
        }
    }

    /// Returns whether the process needs the enabled namespaces and the content key.
    pub(super) fn works_in_namespaces(&self) -> bool {
        self.serve() || self.has(Role::Sources)
    }

    /// Returns whether the process needs the content key, or makes it.
    pub(super) fn needs_content_key(&self) -> bool {
        self.works_in_namespaces() || self.has(Role::Certs)
    }

    /// Returns whether the process serves agents or the API server, with a certificate and an index of the cluster.
    pub(super) fn serve(&self) -> bool {
        self.has(Role::Control) || self.has(Role::Hub)
    }
}

impl fmt::Display for Roles {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values: Vec<_> = self.0.iter().filter_map(Role::to_possible_value).collect();
        let names: Vec<_> = values.iter().map(PossibleValue::get_name).collect();
        formatter.write_str(&names.join(","))
    }
}
