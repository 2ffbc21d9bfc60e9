//! Changes of `spec.rollout.analysis`: whose credentials it may send.

use std::collections::BTreeSet;

use nudge_api::{Analysis, VersionedConfigSpec};

use crate::verdict::Denial;

/// The analyses, where they are others than before.
pub(crate) fn new_analyses<'a>(
    old: Option<&VersionedConfigSpec>,
    new: &'a VersionedConfigSpec,
) -> Option<&'a [Analysis]> {
    let new = &new.rollout.analysis;
    let same = old.map_or(new.is_empty(), |old| old.rollout.analysis == *new);
    (!same).then_some(new)
}

/// The Secrets that are sent for them.
pub(crate) fn secrets(analyses: &[Analysis]) -> BTreeSet<&str> {
    let sent = analyses.iter().filter_map(|one| one.prometheus.secret_ref.as_ref());
    sent.map(|secret| secret.name.as_str()).collect()
}

/// The denial for a user who may not get a Secret that would be sent.
pub(crate) fn may_not_send(user: &str, namespace: &str, name: &str, secret: &str) -> Denial {
    Denial::forbidden(format!(
        "VersionedConfig {name}: user {user:?} may not change its spec.rollout.analysis, because it sends what Secret {secret} holds; this \
         needs the right to get Secret {secret} in namespace {namespace}"
    ))
}
