//! The table of the page's acts, with a command for each.

use nudge_api::VersionedConfig;

use crate::output::status::needs_approval;
use crate::page::act::{Act, ActSubject, Need};

const PATCH: Need = Need::Config("patch");
/// The defaults of an act.
const DEFAULT: Act = Act {
    name: "",
    command: "",
    flags: &[],
    label: "",
    effect: "",
    needs: &[],
    subject: ActSubject::Config,
    reason: None,
    applies: |_| true,
};
/// The acts of the page, in the order of their buttons.
pub(super) const ACTS: &[Act] = &[
    Act {
        name: "use",
        command: "use",
        label: "Use",
        effect: "Pods are moved to the version, step by step.",
        needs: &[PATCH, Need::Activate],
        subject: ActSubject::Version,
        applies: has_versions,
        ..DEFAULT
    },
    Act {
        name: "use-now",
        command: "use",
        flags: &["--now"],
        label: "Use now",
        effect: "Every pod gets the version at once. Nothing is tried out, so a bad version reaches every pod before it is rolled back.",
        needs: &[PATCH, Need::Activate, Need::Config("override")],
        subject: ActSubject::Version,
        reason: Some("Why the rollout can't wait for its steps"),
        applies: has_versions,
    },
    Act {
        name: "rollback",
        command: "rollback",
        label: "Roll back",
        effect: "All pods return at once: to the current version during a rollout and after a failed one, and else to the version before.",
        needs: &[PATCH, Need::Activate],
        applies: can_roll_back,
        ..DEFAULT
    },
    Act {
        name: "approve",
        command: "approve",
        label: "Approve",
        effect: "The version has your approval. It counts unless you have created a part of the version or requested it.",
        needs: &[Need::Config("approve"), Need::Decide],
        subject: ActSubject::ShownContent,
        reason: Some("Why"),
        applies: awaits_approval,
        ..DEFAULT
    },
    Act {
        name: "deny",
        command: "deny",
        label: "Deny",
        effect: "The version does not continue, however many approve it, until you withdraw the denial.",
        needs: &[Need::Config("approve"), Need::Decide],
        subject: ActSubject::Version,
        reason: Some("Why"),
        applies: awaits_approval,
        ..DEFAULT
    },
    Act {
        name: "retry",
        command: "retry",
        label: "Retry",
        effect: "The version that failed is tried again, from the first step.",
        needs: &[PATCH, Need::Activate],
        applies: has_failed,
        ..DEFAULT
    },
    Act {
        name: "hold",
        command: "hold",
        label: "Hold",
        effect: "No version of the config begins or continues until somebody ends the hold. What pods run is judged, and roll-backs do not wait.",
        needs: &[PATCH],
        reason: Some("Why"),
        applies: |config| config.spec.rollout.hold.is_none(),
        ..DEFAULT
    },
    Act {
        name: "unhold",
        command: "unhold",
        label: "Unhold",
        effect: "Versions of the config continue, unless a policy of the cluster holds them too.",
        needs: &[PATCH],
        applies: |config| config.spec.rollout.hold.as_ref().is_some_and(|hold| !hold.protected),
        ..DEFAULT
    },
    Act {
        name: "unhold-protected",
        command: "unhold",
        label: "Unhold",
        effect: "Versions of the config continue, unless a policy of the cluster holds them too. The hold is protected.",
        needs: &[PATCH, Need::Config("override")],
        applies: |config| config.spec.rollout.hold.as_ref().is_some_and(|hold| hold.protected),
        ..DEFAULT
    },
];

fn has_versions(config: &VersionedConfig) -> bool {
    config.status.as_ref().is_some_and(|status| !status.versions.is_empty())
}

fn awaits_approval(config: &VersionedConfig) -> bool {
    needs_approval(config) && has_versions(config)
}

fn can_roll_back(config: &VersionedConfig) -> bool {
    let Some(status) = &config.status else { return false };
    let (current, desired) = (status.current_version.as_deref(), config.requested_version());
    let is_moving = current.is_some() && desired.is_some() && current != desired;
    is_moving || current.is_some() && status.previous_version.is_some()
}

fn has_failed(config: &VersionedConfig) -> bool {
    let failure = config.status.as_ref().and_then(|status| status.rollout.failure.as_ref());
    failure.is_some_and(|failure| config.requested_version() == Some(&*failure.version))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use nudge_protocol::{ConfigName, VersionName};
    use serde_json::json;

    use super::*;
    use crate::commands::arguments::Arguments;
    use crate::page::act::ActArguments;
    use crate::version::digest;

    #[test]
    fn every_act_is_a_command_with_a_name_of_its_own() {
        let arguments = ActArguments {
            config: ConfigName::new("shop").unwrap(),
            version: VersionName::new("1.0.1").ok(),
            digest: digest::parse("4967c54464734967c54464734967c544").ok(),
            reason: Some("--wait".to_owned()),
        };
        for (at, act) in ACTS.iter().enumerate() {
            let words = [vec!["kubectl-nudge".to_owned()], act.words(&arguments).unwrap()].concat();
            assert!(Arguments::try_parse_from(&words).is_ok(), "{words:?}");
            assert!(!ACTS[..at].iter().any(|other| other.name == act.name));
            // Without the digest, a user could approve content that nobody has read.
            assert_eq!(act.subject == ActSubject::ShownContent, act.command == "approve");
            assert!(!act.needs.is_empty() && act.effect.ends_with('.'));
        }
    }

    #[test]
    fn acts_that_would_do_nothing_are_left_out() {
        let names = |spec: serde_json::Value, status: serde_json::Value| {
            let config = serde_json::from_value(json!({
                "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": "shop"},
                "spec": spec, "status": status,
            }))
            .unwrap();
            ACTS.iter().filter(|act| (act.applies)(&config)).map(|act| act.name).collect::<Vec<_>>()
        };
        assert_eq!(names(json!({}), json!({})), ["hold"]);
        assert_eq!(names(json!({"rollout": {"hold": {"reason": "x"}}}), json!({})), ["unhold"]);
        let versions = json!([{"version": "1", "state": "Current", "parts": [], "keys": 1, "bytes": 1}]);
        let current = json!({"currentVersion": "1", "versions": versions});
        assert_eq!(
            names(json!({"version": "1", "rollout": {"hold": {"reason": "x", "protected": true}}}), current.clone()),
            ["use", "use-now", "unhold-protected"]
        );
        assert_eq!(names(json!({"version": "2"}), current.clone())[2], "rollback");
        let approval = json!({"version": "1", "rollout": {"approval": {}}});
        assert_eq!(names(approval, current.clone()), ["use", "use-now", "approve", "deny", "hold"]);
        let before = json!({"currentVersion": "2", "previousVersion": "1", "versions": versions});
        assert_eq!(names(json!({"version": "2"}), before)[2], "rollback");
    }
}
