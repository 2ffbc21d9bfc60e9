//! What a request asks for by `spec.version` and `spec.rollout.override`.

use nudge_api::{Override, VersionedConfig, VersionedConfigSpec, VersionedConfigStatus};

/// What a request sets `spec.version` to, where it changes it.
pub(crate) fn chosen_version<'a>(
    old: Option<&VersionedConfigSpec>,
    new: &'a VersionedConfigSpec,
) -> Option<Option<&'a str>> {
    let before = old.and_then(|old| old.version.as_deref());
    let after = new.version.as_deref();
    (before != after).then_some(after)
}

/// What a request asks for all pods at once, where it sets or changes that.
pub(crate) fn at_once<'a>(old: Option<&VersionedConfigSpec>, new: &'a VersionedConfigSpec) -> Option<&'a Override> {
    let before = old.and_then(|old| old.rollout.overridden.as_ref());
    new.rollout.overridden.as_ref().filter(|it| before != Some(*it))
}

/// The warning about a version in `spec.version` that the status does not list as complete.
pub(crate) fn not_complete(config: &VersionedConfig, status: Option<&VersionedConfigStatus>) -> Option<String> {
    let version = config.spec.version.as_deref()?;
    let status = status?;
    let name = config.metadata.name.as_deref().unwrap_or_default();
    let known = status.version(version).is_some();
    (!known).then(|| format!("version {version} of config {name} is not complete yet; nothing moves until it is"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{sealed, shop};

    fn spec(version: Option<&str>) -> VersionedConfigSpec {
        VersionedConfigSpec { version: version.map(str::to_owned), ..VersionedConfigSpec::default() }
    }

    #[test]
    fn only_a_change_of_the_version_counts() {
        let [none, one, two] = [spec(None), spec(Some("1")), spec(Some("2"))];
        assert_eq!(chosen_version(None, &none), None);
        assert_eq!(chosen_version(None, &one), Some(Some("1")));
        assert_eq!(chosen_version(Some(&one), &one), None);
        assert_eq!(chosen_version(Some(&one), &two), Some(Some("2")));
        assert_eq!(chosen_version(Some(&one), &none), Some(None));
    }

    #[test]
    fn an_incomplete_version_is_a_warning() {
        let status = VersionedConfigStatus { versions: vec![sealed("1", &["a"])], ..Default::default() };
        let mut config = shop(status);
        config.spec.version = Some("1".into());
        assert_eq!(not_complete(&config, config.status.as_ref()), None);
        config.spec.version = Some("2".into());
        let warning = not_complete(&config, config.status.as_ref()).unwrap();
        assert_eq!(warning, "version 2 of config shop is not complete yet; nothing moves until it is");
        assert_eq!(not_complete(&config, None), None, "a new config has no record");
    }
}
