//! Warnings for a user who chooses a version that no pods move to yet.

use k8s_openapi::jiff::Timestamp;
use nudge_api::{VersionedConfig, VersionedConfigStatus};
use nudge_core::config::config_faults;
use nudge_core::governance::{EffectiveRules, Policies};

/// Returns the warning about a version in `spec.version` that the status does not list as complete.
pub(crate) fn incomplete_version(config: &VersionedConfig, status: Option<&VersionedConfigStatus>) -> Option<String> {
    let version = config.spec.version.as_deref()?;
    let is_complete = status?.version(version).is_some();
    let name = config.metadata.name.as_deref().unwrap_or_default();
    (!is_complete).then(|| format!("version {version} of config {name} is not complete yet; nothing moves until it is"))
}

/// Returns the warning about a version that has to wait for a time: the user learns at once until when.
pub(crate) fn waiting_version(
    config: &VersionedConfig,
    status: Option<&VersionedConfigStatus>,
    policies: &Policies,
    now: Timestamp,
) -> Option<String> {
    let (version, status) = (config.spec.version.as_deref()?, status?);
    let is_overridden =
        config.spec.rollout.overridden.as_ref().is_some_and(|overridden| overridden.assigns(version, now));
    // The first version, the current version, and a return wait for no guard.
    let current = status.current_version.as_deref()?;
    if is_overridden || current == version || status.previous_version.as_deref() == Some(version) {
        return None;
    }
    let name = config.metadata.name.as_deref().unwrap_or_default();
    let fault = config_faults(name, &config.spec, now).into_iter().next();
    let explanation = fault.or_else(|| Some(EffectiveRules::of(&config.spec.rollout, policies).block(now)?.why))?;
    Some(format!("version {version} of config {name} waits: {}", explanation.message))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::fixtures::{sealed, shop};

    fn config(spec: &Value, status: &Value) -> VersionedConfig {
        let object = json!({
            "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": "shop"},
            "spec": spec, "status": status,
        });
        serde_json::from_value(object).unwrap()
    }

    fn windows_in(zones: &[&str]) -> Value {
        let window = |(number, zone): (usize, &&str)| json!({"name": format!("w{number}"), "days": ["Fri"], "from": "09:00", "to": "17:00", "timeZone": zone});
        json!(zones.iter().enumerate().map(window).collect::<Vec<_>>())
    }

    #[test]
    fn a_version_that_has_to_wait_is_a_warning() {
        let waits = |spec: &Value, status: &Value, policies: &Policies| {
            let mut config = config(spec, status);
            config.spec.rollout.windows = serde_json::from_value(windows_in(&["UTC"])).unwrap();
            waiting_version(&config, config.status.as_ref(), policies, "2026-11-25T12:00:00Z".parse().unwrap())
        };
        let known = Policies::default();
        let (spec, status) = (json!({"version": "3"}), json!({"currentVersion": "2", "previousVersion": "1"}));
        assert_eq!(
            waits(&spec, &status, &known).as_deref(),
            Some(
                "version 3 of config shop waits: no version continues outside of the windows of spec.rollout; the next window opens at 2026-11-27 09:00 UTC"
            )
        );
        let unknown = Policies::Unknown("nobody knows".to_owned());
        assert!(waits(&spec, &status, &unknown).unwrap().ends_with("because nobody knows"));
        for version in ["1", "2"] {
            assert_eq!(waits(&json!({"version": version}), &status, &known), None, "{version}");
        }
        let now = |until: &str| {
            let at_once = json!({"version": "3", "reason": "r", "untilTime": until});
            json!({"version": "3", "rollout": {"override": at_once}})
        };
        assert_eq!(waits(&now("2026-11-25T12:00:01Z"), &status, &known), None);
        assert!(waits(&now("2026-11-25T12:00:00Z"), &status, &known).is_some(), "it is over");
        assert_eq!(waits(&spec, &json!({}), &known), None, "the first version");
        let stored =
            json!({"version": "3", "rollout": {"steps": [{"name": "a", "pods": 1}, {"name": "a", "pods": 2}]}});
        assert!(waits(&stored, &status, &known).unwrap().ends_with("two of them have the name a; rename one"));
    }

    #[test]
    fn an_incomplete_version_is_a_warning() {
        let status = VersionedConfigStatus { versions: vec![sealed("1", &["a"])], ..Default::default() };
        let mut config = shop(status);
        config.spec.version = Some("1".into());
        assert_eq!(incomplete_version(&config, config.status.as_ref()), None);
        config.spec.version = Some("2".into());
        let warning = incomplete_version(&config, config.status.as_ref()).unwrap();
        assert_eq!(warning, "version 2 of config shop is not complete yet; nothing moves until it is");
        assert_eq!(incomplete_version(&config, None), None, "a new config has no record");
    }
}
