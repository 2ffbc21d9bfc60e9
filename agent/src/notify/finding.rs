//! What readings of a container say about a version.

/// What two readings say about a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    /// The container has taken the version.
    Taken,
    /// The container can show nothing about the version, so its notification alone counts: the cause.
    NothingToShow(String),
    /// The container says that it could not take the version: the message.
    Refused(String),
    /// The container has not shown that it took the version: the cause.
    NotYet(String),
}
