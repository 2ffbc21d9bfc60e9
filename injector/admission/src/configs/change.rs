//! Names in a config: its own, and that in `spec.current`.

use nudge_api::{Override, VersionedConfig, VersionedConfigSpec, VersionedConfigStatus};
use nudge_protocol::{ConfigName, VersionName, labels};

use crate::verdict::Denial;

/// Longest value of a label.
const MAX_LABEL_BYTES: usize = 63;

/// Checks the names. A config's name must fit into a label of its versions.
pub fn name_and_version(
    name: &str,
    old: Option<&VersionedConfigSpec>,
    new: &VersionedConfigSpec,
) -> Result<(), Denial> {
    if old.is_none() {
        ConfigName::new(name)
            .map_err(|error| Denial::invalid(format!("VersionedConfig {name} can't be created: {error}; rename it")))?;
        if name.len() > MAX_LABEL_BYTES {
            return Err(Denial::invalid(format!(
                "VersionedConfig {name} can't be created: its versions have its name in the label {}, where {MAX_LABEL_BYTES} \
                 characters are allowed; give it a shorter name",
                labels::CONFIG
            )));
        }
    }
    let Some(version) = chosen_version(old, new).flatten() else { return Ok(()) };
    VersionName::new(version)
        .map_err(|error| Denial::invalid(format!("VersionedConfig {name} can't have that spec.current: {error}")))?;
    Ok(())
}

/// What a request sets `spec.current` to, where it changes it.
pub fn chosen_version<'a>(old: Option<&VersionedConfigSpec>, new: &'a VersionedConfigSpec) -> Option<Option<&'a str>> {
    let before = old.and_then(|old| old.current.as_deref());
    let after = new.current.as_deref();
    (before != after).then_some(after)
}

/// What a request asks for all pods at once, where it sets or changes that.
pub fn at_once<'a>(old: Option<&VersionedConfigSpec>, new: &'a VersionedConfigSpec) -> Option<&'a Override> {
    let before = old.and_then(|old| old.rollout.overridden.as_ref());
    new.rollout.overridden.as_ref().filter(|it| before != Some(*it))
}

/// The warning about a version in `spec.current` that the status does not list as complete.
pub fn not_complete(config: &VersionedConfig, status: Option<&VersionedConfigStatus>) -> Option<String> {
    let version = config.spec.current.as_deref()?;
    let status = status?;
    let name = config.metadata.name.as_deref().unwrap_or_default();
    let known = status.version(version).is_some();
    (!known).then(|| format!("version {version} of config {name} is not complete yet; nothing moves until it is"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{message, sealed, shop};

    fn spec(current: Option<&str>) -> VersionedConfigSpec {
        VersionedConfigSpec { current: current.map(str::to_owned), ..VersionedConfigSpec::default() }
    }

    #[test]
    fn the_name_must_fit_in_a_label() {
        let short = format!("{}.{}", "a".repeat(31), "b".repeat(31));
        assert_eq!(name_and_version(&short, None, &spec(None)), Ok(()));
        let long = format!("{short}c");
        let refusal = message(name_and_version(&long, None, &spec(None)));
        assert!(refusal.contains("where 63 characters are allowed; give it a shorter name"), "{refusal}");
        assert_eq!(name_and_version(&long, Some(&spec(None)), &spec(None)), Ok(()), "one that is there may be changed");
    }

    #[test]
    fn the_version_must_be_a_name() {
        assert_eq!(name_and_version("shop", None, &spec(Some("1.0.1"))), Ok(()));
        assert_eq!(
            message(name_and_version("shop", None, &spec(Some("current")))),
            "VersionedConfig shop can't have that spec.current: version \"current\" is not allowed: 'current' stands for \
             whatever version is current; choose another name"
        );
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
        config.spec.current = Some("1".into());
        assert_eq!(not_complete(&config, config.status.as_ref()), None);
        config.spec.current = Some("2".into());
        let warning = not_complete(&config, config.status.as_ref()).unwrap();
        assert_eq!(warning, "version 2 of config shop is not complete yet; nothing moves until it is");
        assert_eq!(not_complete(&config, None), None, "a new config has no record");
    }
}
