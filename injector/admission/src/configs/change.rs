//! Names in a config: its own, and that in `spec.version`; and the end of `spec.rollout.override`.

use k8s_openapi::jiff::Timestamp;
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
        .map_err(|error| Denial::invalid(format!("VersionedConfig {name} can't have that spec.version: {error}")))?;
    Ok(())
}

/// What a request sets `spec.version` to, where it changes it.
pub fn chosen_version<'a>(old: Option<&VersionedConfigSpec>, new: &'a VersionedConfigSpec) -> Option<Option<&'a str>> {
    let before = old.and_then(|old| old.version.as_deref());
    let after = new.version.as_deref();
    (before != after).then_some(after)
}

/// What a request asks for all pods at once, where it sets or changes that.
pub fn at_once<'a>(old: Option<&VersionedConfigSpec>, new: &'a VersionedConfigSpec) -> Option<&'a Override> {
    let before = old.and_then(|old| old.rollout.overridden.as_ref());
    new.rollout.overridden.as_ref().filter(|it| before != Some(*it))
}

/// Checks the end of what a request asks for all pods at once. One that is over already means nothing, and may stay.
pub fn at_once_ends(
    name: &str,
    old: Option<&VersionedConfigSpec>,
    new: &VersionedConfigSpec,
    now: Timestamp,
) -> Result<(), Denial> {
    match at_once(old, new) {
        Some(it) if it.until_time.0.duration_since(now) > Override::LONGEST => Err(Denial::invalid(format!(
            "VersionedConfig {name} can't have that spec.rollout.override: its untilTime is {}, and it may be {} hours ahead; set an \
             earlier one",
            it.until_time.0,
            Override::LONGEST.as_hours()
        ))),
        _ => Ok(()),
    }
}

/// The warning about a version in `spec.version` that the status does not list as complete.
pub fn not_complete(config: &VersionedConfig, status: Option<&VersionedConfigStatus>) -> Option<String> {
    let version = config.spec.version.as_deref()?;
    let status = status?;
    let name = config.metadata.name.as_deref().unwrap_or_default();
    let known = status.version(version).is_some();
    (!known).then(|| format!("version {version} of config {name} is not complete yet; nothing moves until it is"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixtures::{message, sealed, shop};

    fn spec(version: Option<&str>) -> VersionedConfigSpec {
        VersionedConfigSpec { version: version.map(str::to_owned), ..VersionedConfigSpec::default() }
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
            "VersionedConfig shop can't have that spec.version: version \"current\" is not allowed: 'current' stands for \
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
    fn an_override_ends_within_a_day_of_when_it_is_set() {
        let spec = |until: &str| -> VersionedConfigSpec {
            let it = json!({"version": "1", "reason": "a key leaked", "untilTime": until});
            serde_json::from_value(json!({"rollout": {"override": it}})).unwrap()
        };
        let ends = |old: Option<&VersionedConfigSpec>, new: &VersionedConfigSpec| {
            at_once_ends("shop", old, new, "2026-01-01T00:00:00Z".parse().unwrap())
        };
        for until in ["2025-12-31T00:00:00Z", "2026-01-01T03:00:00Z", "2026-01-02T00:00:00Z"] {
            assert_eq!(ends(None, &spec(until)), Ok(()), "{until}");
        }
        let late = spec("2026-01-02T00:00:01Z");
        let refused = "VersionedConfig shop can't have that spec.rollout.override: its untilTime is 2026-01-02T00:00:01Z, and it may be 24 \
                       hours ahead; set an earlier one";
        assert_eq!(message(ends(None, &late)), refused);
        assert_eq!(message(ends(Some(&spec("2026-01-01T03:00:00Z")), &late)), refused);
        assert_eq!(ends(Some(&late), &late), Ok(()), "what is there may stay");
        assert_eq!(ends(Some(&late), &VersionedConfigSpec::default()), Ok(()));
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
