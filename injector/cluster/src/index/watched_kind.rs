use nudge_api::PartKind;

/// A kind of objects that is watched in a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WatchedKind {
    /// `VersionedConfig`s.
    Configs,
    /// ConfigMaps of versions.
    ConfigMaps,
    /// Secrets of versions, which a namespace does not have to allow.
    Secrets,
    /// Published ConfigMaps.
    Published,
    /// Pods with an agent.
    Pods,
    /// Service accounts.
    Accounts,
    /// `VersionApproval`s.
    Approvals,
}

impl WatchedKind {
    /// All kinds.
    pub const ALL: [Self; 7] =
        [Self::Configs, Self::ConfigMaps, Self::Secrets, Self::Published, Self::Pods, Self::Accounts, Self::Approvals];

    /// The kinds that admission and the controllers need.
    pub const OF_CONTROL: [Self; 6] =
        [Self::Configs, Self::ConfigMaps, Self::Secrets, Self::Published, Self::Pods, Self::Approvals];

    /// The kinds that the hub needs. It reads the ConfigMaps of a version when it serves them.
    pub const OF_HUB: [Self; 4] = [Self::Configs, Self::Secrets, Self::Pods, Self::Accounts];

    /// Returns the name in logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Configs => "versionedconfigs",
            Self::ConfigMaps => "configmaps of versions",
            Self::Secrets => "secrets of versions",
            Self::Published => "published configmaps",
            Self::Pods => "pods",
            Self::Accounts => "serviceaccounts",
            Self::Approvals => "versionapprovals",
        }
    }

    /// Returns whether nothing can be done in a namespace without the kind. Without Secrets, only their versions are
    /// missing. Without approvals, only versions that need them wait.
    pub(super) fn is_needed(self) -> bool {
        !matches!(self, Self::Secrets | Self::Approvals)
    }

    /// Returns the maximum number of objects that are kept of a namespace.
    pub fn max_objects(self) -> usize {
        match self {
            // The parts of twenty versions of each config.
            Self::ConfigMaps | Self::Secrets => 20_000,
            Self::Configs | Self::Published => 1_000,
            Self::Accounts => 10_000,
            // Each approval may have 16 KiB of groups.
            Self::Approvals => 2_000,
            Self::Pods => 50_000,
        }
    }

    pub(super) fn of_part(kind: PartKind) -> Self {
        match kind {
            PartKind::ConfigMap => Self::ConfigMaps,
            PartKind::Secret => Self::Secrets,
        }
    }

    pub(super) fn part(self) -> Option<PartKind> {
        match self {
            Self::ConfigMaps => Some(PartKind::ConfigMap),
            Self::Secrets => Some(PartKind::Secret),
            _ => None,
        }
    }
}
