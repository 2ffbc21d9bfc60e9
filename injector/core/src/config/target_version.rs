//! The version that becomes the target of a config, or the reason why pods can't be moved to it yet.

use nudge_api::{
    ConditionType, Consent, Explanation, Reason, VersionState, VersionedConfig, VersionedConfigStatus, find_condition,
};

use crate::versions::{Inventory, SealCheck, wanted_version};

/// Returns the version that becomes the target, if pods can be moved to it.
pub(super) fn target_version(
    config: &VersionedConfig,
    inventory: &Inventory,
    secrets_known: bool,
) -> Result<String, Explanation> {
    let version = desired_version(config, inventory).and_then(|version| check_possible(config, version, inventory));
    let version = version.map_err(|explanation| with_text_remedy(config, explanation));
    version.map_err(|explanation| if secrets_known { explanation } else { with_hint(explanation) })
}

/// Returns whether only a person can make the version possible.
pub(super) fn is_stuck(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::VersionInvalid
            | Reason::Invalid
            | Reason::VersionNotAuthorized
            | Reason::InvalidSpec
            | Reason::UnknownTimeZone
    )
}

/// Adds what to do about a text that can't become a version.
fn with_text_remedy(config: &VersionedConfig, explanation: Explanation) -> Explanation {
    let is_of_text = config.spec.follows_text() && config.requested_version().is_some();
    if is_of_text && matches!(explanation.reason, Reason::VersionInvalid | Reason::Invalid) {
        let message = format!("{}; {}", explanation.message, text_remedy(config));
        return Explanation { message, ..explanation };
    }
    explanation
}

/// Returns what to do about the version of a text.
fn text_remedy(config: &VersionedConfig) -> String {
    let name = config.metadata.name.as_deref().unwrap_or_default();
    format!("correct the text, or make another version current with kubectl nudge use {name} VERSION")
}

/// Adds to the message that the missing object may be a Secret.
fn with_hint(mut explanation: Explanation) -> Explanation {
    if matches!(explanation.reason, Reason::VersionMissing | Reason::VersionIncomplete) {
        explanation.message += " (Secrets of this namespace can't be seen: ClusterRole nudge-secrets is not bound)";
    }
    explanation
}

/// Returns the requested version, whether pods can be moved to it or not; or why there is none.
pub(super) fn desired_version(config: &VersionedConfig, inventory: &Inventory) -> Result<String, Explanation> {
    let status = config.status.as_ref();
    let current = status.and_then(|status| status.current_version.as_deref());
    if config.spec.follows_text() && current.is_none() && status.is_none_or(is_text_unread) {
        let name = config.metadata.name.as_deref().unwrap_or_default();
        return Err(Reason::Unsettled.explained(format!("the text of config {name} is being read")));
    }
    let wanted = wanted_version(config.requested_version(), current, &inventory.sealed);
    wanted.map(str::to_owned).ok_or_else(|| {
        if let Some(sealed) = inventory.sealed.first() {
            return not_authorized(config, &sealed.version);
        }
        let name = config.metadata.name.as_deref().unwrap_or_default();
        match inventory.others.iter().next() {
            Some((version, seal_check)) => not_sealed(version, seal_check),
            None => Reason::VersionMissing.explained(format!(
                "there is no version yet; create a ConfigMap with the labels nudge.dev/config: {name} and nudge.dev/version"
            )),
        }
    })
}

/// Returns whether it is not known yet if there is a text.
fn is_text_unread(status: &VersionedConfigStatus) -> bool {
    find_condition(&status.conditions, ConditionType::Fetched).is_none()
}

/// Returns why the version is not authorized: no user who may decide the content of the published ConfigMap has
/// requested it.
fn not_authorized(config: &VersionedConfig, version: &str) -> Explanation {
    let name = config.metadata.name.as_deref().unwrap_or_default();
    Reason::VersionNotAuthorized.explained(format!(
        "the creator of version {version} may not update ConfigMap {name}, or Nudge could not check that; a user who \
         may update it must run kubectl nudge use {name} {version}"
    ))
}

fn not_sealed(version: &str, seal_check: &SealCheck) -> Explanation {
    match seal_check {
        SealCheck::Incomplete(message) => Reason::VersionIncomplete.explained(message),
        SealCheck::Invalid(message) => Reason::VersionInvalid.explained(message),
        SealCheck::Refused(message) => Reason::Invalid.explained(message),
        SealCheck::Unjudged(Some(cause)) => {
            Reason::Invalid.explained(format!("version {version} can't be judged by spec.validation: {cause}"))
        }
        // A complete version would have been sealed.
        SealCheck::Unjudged(None) => {
            Reason::VersionIncomplete.explained(format!("version {version} is being judged by spec.validation"))
        }
        SealCheck::Unread(_) | SealCheck::Complete { .. } => {
            Reason::VersionIncomplete.explained(format!("version {version} is being read"))
        }
    }
}

/// Returns the version, if pods can be moved to it.
fn check_possible(config: &VersionedConfig, version: String, inventory: &Inventory) -> Result<String, Explanation> {
    if let Some(sealed) = inventory.find(&version) {
        if sealed.consent == Some(Consent::NeededAnew) {
            return Err(not_authorized(config, &version));
        }
        return match sealed.state {
            VersionState::Broken => {
                let remedy = if config.spec.follows_text() {
                    text_remedy(config)
                } else {
                    "create it again as it was".to_owned()
                };
                let message = format!("an object of version {version} is gone or was replaced; {remedy}");
                Err(Reason::VersionIncomplete.explained(message))
            }
            _ => Ok(version),
        };
    }
    if let Some(seal_check) = inventory.others.get(&version) {
        return Err(not_sealed(&version, seal_check));
    }
    let versions = list_versions(inventory.sealed.iter().map(|sealed| sealed.version.as_str()));
    let remedy = if config.spec.follows_text() {
        text_remedy(config)
    } else {
        "create it, or set spec.version to one of".to_owned()
    };
    Err(Reason::VersionMissing.explained(format!("version {version} does not exist; {remedy}: {versions}")))
}

/// Returns at most ten names, newest first, or `(none)`.
fn list_versions<'a>(versions: impl DoubleEndedIterator<Item = &'a str>) -> String {
    let names: Vec<&str> = versions.rev().take(10).collect();
    if names.is_empty() { "(none)".to_owned() } else { names.join(", ") }
}
