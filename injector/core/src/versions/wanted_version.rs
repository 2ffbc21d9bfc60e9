//! The version that a config should have.

use nudge_api::VersionStatus;

/// Returns the version that the config should have: the version in `spec.version`, or else the current version, or else
/// the first version that needs no consent.
pub(crate) fn wanted_version<'a>(
    named: Option<&'a str>,
    current: Option<&'a str>,
    sealed: &'a [VersionStatus],
) -> Option<&'a str> {
    let first = || sealed.iter().find(|sealed| sealed.consent.is_none()).map(|sealed| sealed.version.as_str());
    named.or(current).or_else(first)
}
