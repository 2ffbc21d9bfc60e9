//! Whether an edit of an object's text is refused. Where workloads read the object themselves, they would have the text
//! at once, so it must not pass the gates of the config.

use k8s_openapi::jiff::Timestamp;
use nudge_api::{Explanation, PartKind, Reason, VersionedConfig, VersionedConfigStatus};

use super::direct_readers::object_title;
use crate::governance::{EffectiveRules, Policies};

/// An edit of the text of a config's object.
pub struct TextEdit<'a> {
    /// The kind of the object.
    pub kind: PartKind,
    /// The digest of the new content of a ConfigMap; `None` for a Secret, whose seals only the controllers know.
    pub digest: Option<&'a str>,
}

/// Returns why the edit is refused, with the commands that make a version of it; `None` if it is not refused: nobody
/// reads the objects themselves, versions may go out, or the edit puts the text of the current version back.
pub fn edit_refusal(
    config: &VersionedConfig,
    policies: &Policies,
    edit: &TextEdit<'_>,
    now: Timestamp,
) -> Option<Explanation> {
    let status = config.status.as_ref().filter(|_| config.spec.follows_text() && config.spec.owns(edit.kind))?;
    let readers = status.internal.readers.as_ref()?;
    let current = status.current_version.as_deref()?;
    let rules = EffectiveRules::of(&config.spec.rollout, policies);
    // Nobody is refused anything because policies can't be read.
    let block = rules.block(now).map(|block| block.why);
    let block = block.filter(|why| matches!(why.reason, Reason::OnHold | Reason::OutsideWindow));
    let is_known = [Some(current), status.previous_version.as_deref().filter(|_| block.is_none())];
    if is_known.into_iter().flatten().any(|version| has_text(status, version, edit)) {
        return None;
    }
    let approval = || {
        rules.approval.as_ref()?;
        let message = format!("{} requires that versions are approved", rules.approval_owner);
        Some(Reason::AwaitingApproval.explained(message))
    };
    let why = block.or_else(approval)?;
    let name = config.metadata.name.as_deref().unwrap_or_default();
    Some(why.reason.explained(format!(
        "{} must not be edited now, because it is read directly by {readers}, and {}; make a version of the change \
         instead (kubectl nudge create {name} VERSION)",
        object_title(config),
        why.message
    )))
}

/// Returns whether the version has the new content of the object, as far as its digest shows it.
fn has_text(status: &VersionedConfigStatus, version: &str, edit: &TextEdit<'_>) -> bool {
    let Some(version) = status.version(version) else { return false };
    let mut parts = version.parts.iter().filter(|part| part.kind == edit.kind);
    match (parts.next(), parts.next()) {
        (Some(only), None) => edit.digest == Some(only.digest.as_str()),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn config(rollout: &Value, change: impl Fn(&mut Value)) -> VersionedConfig {
        let version = |name: &str| {
            json!({"version": name, "state": "Available", "keys": 1, "bytes": 1,
                   "parts": [{"kind": "ConfigMap", "name": name, "uid": name, "digest": format!("sha256:{name}")}]})
        };
        let mut config = json!({
            "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": "web"},
            "spec": {"objects": ["ConfigMap", "Secret"], "rollout": rollout},
            "status": {"currentVersion": "2", "previousVersion": "1", "versions": [version("1"), version("2")],
                "internal": {"readers": {"total": 1, "workloads": ["Deployment/api"]}}},
        });
        change(&mut config);
        serde_json::from_value(config).unwrap()
    }

    fn refusal(config: &VersionedConfig, kind: PartKind, digest: Option<&str>) -> Option<Explanation> {
        edit_refusal(config, &Policies::Known(Vec::new()), &TextEdit { kind, digest }, Timestamp::UNIX_EPOCH)
    }

    fn reason(config: &VersionedConfig, digest: &str) -> Option<Reason> {
        refusal(config, PartKind::ConfigMap, Some(digest)).map(|explanation| explanation.reason)
    }

    #[test]
    fn an_edit_that_readers_would_have_at_once_is_refused_behind_a_gate() {
        let (hold, approval) = (json!({"hold": {"reason": "release day"}}), json!({"approval": {"required": 2}}));
        let held = config(&hold, |_| ());
        let message = refusal(&held, PartKind::ConfigMap, Some("sha256:3")).unwrap().message;
        for part in [
            "ConfigMap and Secret web must not be edited now",
            "Deployment/api",
            "release day",
            "kubectl nudge create web",
        ] {
            assert!(message.contains(part), "{message}");
        }
        assert_eq!(refusal(&held, PartKind::Secret, None).map(|why| why.reason), Some(Reason::OnHold));
        let awaits = config(&approval, |_| ());
        assert_eq!(reason(&awaits, "sha256:3"), Some(Reason::AwaitingApproval));
        assert_eq!((reason(&held, "sha256:2"), reason(&awaits, "sha256:2")), (None, None), "it puts the text back");
        assert_eq!(reason(&awaits, "sha256:1"), None, "the previous version needs no approval");
        assert_eq!(reason(&held, "sha256:1"), Some(Reason::OnHold));
    }

    #[test]
    fn nothing_is_refused_where_no_gate_is_closed_or_nobody_reads() {
        assert_eq!(reason(&config(&json!({}), |_| ()), "sha256:3"), None);
        let over = json!({"hold": {"reason": "release day", "untilTime": "1969-01-01T00:00:00Z"}});
        assert_eq!(reason(&config(&over, |_| ()), "sha256:3"), None);
        for change in [
            |config: &mut Value| config["status"]["internal"]["readers"] = Value::Null,
            |config: &mut Value| config["status"]["currentVersion"] = Value::Null,
            |config: &mut Value| config["spec"]["version"] = json!("2"),
            |config: &mut Value| config["spec"]["objects"] = json!(["Secret"]),
        ] {
            assert_eq!(reason(&config(&json!({"hold": {"reason": "release day"}}), change), "sha256:3"), None);
        }
        let unknown = Policies::Unknown("of a fault".to_owned());
        let edit = TextEdit { kind: PartKind::ConfigMap, digest: None };
        assert_eq!(edit_refusal(&config(&json!({}), |_| ()), &unknown, &edit, Timestamp::UNIX_EPOCH), None);
    }
}
