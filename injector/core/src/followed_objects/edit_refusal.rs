//! Whether an edit of an object's text is refused. If workloads read the object themselves, they would have the text at
//! once, so it must not pass the gates of the config.

use k8s_openapi::jiff::Timestamp;
use nudge_api::{Explanation, PartKind, Reason, VersionedConfig, VersionedConfigStatus};

use crate::governance::{EffectiveRules, Policies};
use crate::versions::{Contents, Seals};

/// An edit of the text of a config's object.
pub struct TextEdit<'a> {
    /// The kind of the object.
    pub kind: PartKind,
    /// The new keys and values.
    pub content: &'a Contents,
    /// The seals of the config.
    pub seals: &'a Seals,
}

/// Returns why the edit is refused, with the commands that make a version of it; `None` if it is not refused: nobody
/// reads the object itself, versions may go out, or the edit puts the text of the current version back.
pub fn edit_refusal(
    config: &VersionedConfig,
    policies: &Policies,
    edit: &TextEdit<'_>,
    now: Timestamp,
) -> Option<Explanation> {
    let status = config.status.as_ref().filter(|_| config.spec.follows_text() && config.spec.owns(edit.kind))?;
    let readers = status.internal.readers_of(edit.kind)?;
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
        "{} {name} must not be edited now, because it is read directly by {readers}, and {}; make a version of the \
         change instead (kubectl nudge create {name} VERSION)",
        edit.kind, why.message
    )))
}

/// Returns whether the version has the new content of the object. The digests of several parts say nothing about the
/// whole.
fn has_text(status: &VersionedConfigStatus, version: &str, edit: &TextEdit<'_>) -> bool {
    let Some(version) = status.version(version) else { return false };
    let mut parts = version.parts.iter().zip(1..).filter(|(part, _)| part.kind == edit.kind);
    match (parts.next(), parts.next()) {
        (Some((only, number)), None) => edit.seals.is_sealed(&only.digest, &version.version, number, edit.content),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::versions::{part_digest, seals};

    fn content(value: &str) -> Contents {
        [("pin".to_owned(), value.as_bytes().to_vec().into())].into()
    }

    /// Version 1 and the current version 2 have a ConfigMap and a Secret with their own name as the value.
    fn config(rollout: &Value, change: impl Fn(&mut Value)) -> VersionedConfig {
        let version = |name: &str| {
            let seal = seals().seal(name, 2, &part_digest(&content(name), Some(seals().content_key())));
            json!({"version": name, "state": "Available", "keys": 1, "bytes": 1, "parts": [
                {"kind": "ConfigMap", "name": name, "uid": name, "digest": part_digest(&content(name), None)},
                {"kind": "Secret", "name": name, "uid": name, "digest": seal}]})
        };
        let readers = |kind: &str| json!({"kind": kind, "total": 1, "workloads": [format!("Deployment/{kind}")]});
        let mut config = json!({
            "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": "web"},
            "spec": {"objects": ["ConfigMap", "Secret"], "rollout": rollout},
            "status": {"currentVersion": "2", "previousVersion": "1", "versions": [version("1"), version("2")],
                "internal": {"readers": [readers("ConfigMap"), readers("Secret")]}},
        });
        change(&mut config);
        serde_json::from_value(config).unwrap()
    }

    fn refusal(config: &VersionedConfig, kind: PartKind, value: &str) -> Option<Explanation> {
        let edit = TextEdit { kind, content: &content(value), seals: &seals() };
        edit_refusal(config, &Policies::Known(Vec::new()), &edit, Timestamp::UNIX_EPOCH)
    }

    /// Returns the reason for which edits of both objects are refused.
    fn reason(config: &VersionedConfig, value: &str) -> Option<Reason> {
        let [map, secret] = [PartKind::ConfigMap, PartKind::Secret]
            .map(|kind| refusal(config, kind, value).map(|explanation| explanation.reason));
        assert_eq!(map, secret);
        map
    }

    #[test]
    fn an_edit_that_readers_would_have_at_once_is_refused_behind_a_gate() {
        let (hold, approval) = (json!({"hold": {"reason": "release day"}}), json!({"approval": {"required": 2}}));
        let held = config(&hold, |_| ());
        let message = refusal(&held, PartKind::Secret, "3").unwrap().message;
        for part in
            ["Secret web must not be edited now", "by Deployment/Secret,", "release day", "kubectl nudge create web"]
        {
            assert!(message.contains(part), "{message}");
        }
        let awaits = config(&approval, |_| ());
        assert_eq!(reason(&awaits, "3"), Some(Reason::AwaitingApproval));
        assert_eq!((reason(&held, "2"), reason(&awaits, "2")), (None, None), "it puts the text back");
        assert_eq!(reason(&awaits, "1"), None, "the previous version needs no approval");
        assert_eq!(reason(&held, "1"), Some(Reason::OnHold));
    }

    #[test]
    fn nothing_is_refused_where_no_gate_is_closed_or_nobody_reads() {
        assert_eq!(reason(&config(&json!({}), |_| ()), "3"), None);
        let over = json!({"hold": {"reason": "release day", "untilTime": "1969-01-01T00:00:00Z"}});
        assert_eq!(reason(&config(&over, |_| ()), "3"), None);
        for change in [
            |config: &mut Value| config["status"]["internal"]["readers"] = json!([]),
            |config: &mut Value| config["status"]["currentVersion"] = Value::Null,
            |config: &mut Value| config["spec"]["version"] = json!("2"),
            |config: &mut Value| config["spec"]["objects"] = json!([]),
        ] {
            assert_eq!(reason(&config(&json!({"hold": {"reason": "release day"}}), change), "3"), None);
        }
        let unknown = Policies::Unknown("of a fault".to_owned());
        let edit = TextEdit { kind: PartKind::ConfigMap, content: &content("3"), seals: &seals() };
        assert_eq!(edit_refusal(&config(&json!({}), |_| ()), &unknown, &edit, Timestamp::UNIX_EPOCH), None);
    }

    #[test]
    fn only_an_edit_of_the_object_that_is_read_is_refused() {
        let of_one = |kind: &str| {
            let kind = kind.to_owned();
            config(&json!({"hold": {"reason": "release day"}}), move |config| {
                let readers = config["status"]["internal"]["readers"].as_array_mut().unwrap();
                readers.retain(|readers| readers["kind"] == kind);
            })
        };
        let is_refused = |config: &VersionedConfig, kind| refusal(config, kind, "3").is_some();
        let (map, secret) = (of_one("ConfigMap"), of_one("Secret"));
        assert!(is_refused(&map, PartKind::ConfigMap) && !is_refused(&map, PartKind::Secret));
        assert!(is_refused(&secret, PartKind::Secret) && !is_refused(&secret, PartKind::ConfigMap));
    }

    #[test]
    fn several_secrets_of_a_version_are_not_compared() {
        let held = config(&json!({"hold": {"reason": "release day"}}), |config| {
            let parts = config["status"]["versions"][1]["parts"].as_array_mut().unwrap();
            parts.push(parts[1].clone());
        });
        assert!(refusal(&held, PartKind::Secret, "2").is_some());
        assert_eq!(refusal(&held, PartKind::ConfigMap, "2"), None);
    }
}
