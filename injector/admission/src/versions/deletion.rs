//! A version is kept while pods run it, move to it, or may move back to it.

use nudge_api::{PartStatus, VersionedConfig};
use nudge_protocol::labels;

use crate::verdict::Denial;
use crate::version_object::VersionObject;

/// Decides about the deletion of an object with the labels of a version. `config` is the stored config; a deleted or
/// terminating config needs no versions. Only sealed objects are kept. They are identified by uid, so a client that
/// can't read the object learns nothing.
pub(crate) fn check_deletion(object: &VersionObject, config: Option<&VersionedConfig>) -> Result<(), Denial> {
    let Some(config) = config.filter(|config| config.metadata.deletion_timestamp.is_none()) else { return Ok(()) };
    let Some(version) = object.label(labels::VERSION) else { return Ok(()) };
    if !is_sealed(object, version, config) {
        return Ok(());
    }
    let Some((role, remedy)) = find_role(version, config) else { return Ok(()) };
    let title = object.part_title();
    Err(Denial::forbidden(format!("{title} can't be deleted, because {role}; {remedy}")))
}

/// Denies the deletion of a sealed object that this workload or pod names.
pub(crate) fn deny_in_use(object: &VersionObject, referrer: &str) -> Denial {
    let title = object.part_title();
    Denial::forbidden(format!(
        "{title} can't be deleted, because {referrer} names it; delete it when nothing names it any more: delete {referrer}, or \
         name another version there"
    ))
}

/// Returns whether the object is part of a version that the config keeps.
pub(crate) fn is_kept(object: &VersionObject, config: Option<&VersionedConfig>) -> bool {
    let config = config.filter(|config| config.metadata.deletion_timestamp.is_none());
    config.zip(object.label(labels::VERSION)).is_some_and(|(config, version)| is_sealed(object, version, config))
}

/// Returns whether this object was sealed as part of the version.
fn is_sealed(object: &VersionObject, version: &str, config: &VersionedConfig) -> bool {
    let sealed = config.status.as_ref().and_then(|status| status.version(version));
    let uid = object.metadata.uid.as_deref().filter(|uid| !uid.is_empty());
    let is_object = |part: &PartStatus| part.kind == object.kind && Some(&*part.uid) == uid;
    sealed.is_some_and(|sealed| sealed.parts.iter().any(is_object))
}

/// Returns why the version is needed, and how the user can end the need.
fn find_role(version: &str, config: &VersionedConfig) -> Option<(&'static str, &'static str)> {
    const FIRST: &str = "make another version current first";
    const LATER: &str = "delete it when another version has become current, or delete its VersionedConfig";
    let is_version = |name: Option<&String>| name.is_some_and(|name| name == version);
    let status = config.status.as_ref();
    if is_version(status.and_then(|status| status.current_version.as_ref())) {
        Some(("the version is current", FIRST))
    } else if is_version(status.and_then(|status| status.target_version.as_ref())) {
        Some(("pods are being moved to the version", FIRST))
    } else if config.requested_version() == Some(version) {
        Some(("the version is requested", FIRST))
    } else if is_version(status.and_then(|status| status.previous_version.as_ref())) {
        Some(("it is the version before the current one, to which pods would return", LATER))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use nudge_api::{PartKind, VersionedConfigStatus};

    use super::*;
    use crate::fixtures::{message, part, sealed, shop};

    const TITLE: &str = "ConfigMap a, part of version 1.0.1 of config shop, can't be deleted, because";

    /// With the uid that [`sealed`] records.
    fn object() -> VersionObject {
        let mut object = part(PartKind::ConfigMap, "a");
        object.metadata.uid = Some("1".to_owned());
        object
    }

    fn decided(mut status: VersionedConfigStatus) -> Result<(), Denial> {
        status.versions = vec![sealed("1.0.1", &["a"])];
        check_deletion(&object(), Some(&shop(status)))
    }

    fn named() -> String {
        "1.0.1".to_owned()
    }

    #[test]
    fn a_version_that_nothing_needs_can_be_deleted() {
        let other = Some("1.0.2".to_owned());
        let status = VersionedConfigStatus {
            current_version: other.clone(),
            target_version: other.clone(),
            previous_version: other,
            ..Default::default()
        };
        assert_eq!(decided(status), Ok(()));
        assert_eq!(check_deletion(&object(), None), Ok(()));
    }

    #[test]
    fn each_role_that_keeps_a_version_has_its_message() {
        let current = VersionedConfigStatus { current_version: Some(named()), ..Default::default() };
        assert_eq!(
            message(decided(current)),
            format!("{TITLE} the version is current; make another version current first")
        );
        let target = VersionedConfigStatus { target_version: Some(named()), ..Default::default() };
        assert!(message(decided(target)).contains("pods are being moved to the version; make another"));
        let previous = VersionedConfigStatus { previous_version: Some(named()), ..Default::default() };
        assert_eq!(
            message(decided(previous)),
            format!(
                "{TITLE} it is the version before the current one, to which pods would return; delete it when another version has \
                     become current, or delete its VersionedConfig"
            )
        );
        let mut named_config =
            shop(VersionedConfigStatus { versions: vec![sealed("1.0.1", &["a"])], ..Default::default() });
        named_config.spec.version = Some(named());
        assert!(message(check_deletion(&object(), Some(&named_config))).contains("the version is requested"));
    }

    #[test]
    fn a_terminating_config_keeps_no_versions() {
        let versions = vec![sealed("1.0.1", &["a"])];
        let mut terminating =
            shop(VersionedConfigStatus { current_version: Some(named()), versions, ..Default::default() });
        assert!(check_deletion(&object(), Some(&terminating)).is_err());
        terminating.metadata.deletion_timestamp = Some(Time(k8s_openapi::jiff::Timestamp::UNIX_EPOCH));
        assert_eq!(check_deletion(&object(), Some(&terminating)), Ok(()));
    }

    #[test]
    fn only_the_object_that_was_sealed_is_kept() {
        let versions = vec![sealed("1.0.1", &["a"])];
        let config = shop(VersionedConfigStatus { current_version: Some(named()), versions, ..Default::default() });
        assert!(check_deletion(&object(), Some(&config)).is_err());
        for uid in [None, Some(""), Some("2")] {
            let mut stranger = object();
            stranger.metadata.uid = uid.map(str::to_owned);
            assert_eq!(check_deletion(&stranger, Some(&config)), Ok(()), "{uid:?}");
        }
        let unsealed = shop(VersionedConfigStatus { current_version: Some(named()), ..Default::default() });
        assert_eq!(check_deletion(&object(), Some(&unsealed)), Ok(()));
    }
}
