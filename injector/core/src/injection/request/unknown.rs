//! The labels and annotations of a pod that have Nudge's prefix but are unknown to this version.
//!
//! A mistyped annotation would have no effect, and an annotation of another version would not have the effect that its
//! author expects. So a pod with an agent is refused because of them, unless the installation lets it pass with a
//! warning.

use nudge_protocol::labels::PREFIX;

use super::annotations::{
    LABELS, OF_CONTAINERS, ONLY_OF_CONTAINERS, RESTART, WITH_AGENT, WRITTEN_BY_NUDGE, of_container,
};
use super::suggestion::suggestion;
use crate::injection::refusal::{InjectionRefusal, shorten};
use crate::injection::settings::UnknownKeys;
use crate::injection::user_pod::UserPod;

/// The version of Nudge, for messages.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The maximum number of annotations that a refusal names.
const MAX_NAMED_ANNOTATIONS: usize = 5;

/// Returns a message about each label and annotation that is not known.
pub(super) fn unknown_keys(pod: &UserPod) -> Vec<String> {
    let is_ours = |key: &&String| key.starts_with(PREFIX);
    let annotations = pod.annotations.keys().filter(is_ours).filter(|key| !is_annotation(key));
    let labels = pod.labels.keys().filter(is_ours).filter(|key| !LABELS.contains(&key.as_str()));
    annotations.map(|key| annotation_message(key)).chain(labels.map(|key| label_message(key))).collect()
}

/// Returns whether a pod may have this annotation.
fn is_annotation(key: &str) -> bool {
    let is_alone = WITH_AGENT.contains(&key) && !ONLY_OF_CONTAINERS.contains(&key);
    let is_of_container = OF_CONTAINERS.iter().any(|base| of_container(key, base).is_some());
    is_alone || is_of_container || key == RESTART || WRITTEN_BY_NUDGE.contains(&key)
}

fn annotation_message(key: &str) -> String {
    let remedy = match suggestion(key) {
        Some(known) => format!("did you mean {}?", shorten(&known)),
        None => "remove it, or see the README for the known ones".to_owned(),
    };
    format!("annotation {} is not known to Nudge {VERSION}; {remedy}", shorten(key))
}

fn label_message(key: &str) -> String {
    let remedy = if is_annotation(key) {
        "set it as an annotation".to_owned()
    } else if let Some(known) = suggestion(key) {
        format!("did you mean the annotation {}?", shorten(&known))
    } else {
        "remove it".to_owned()
    };
    format!("label {} is not known to Nudge {VERSION}; {remedy}", shorten(key))
}

/// Refuses the pod for these messages, or returns them as warnings.
pub(in crate::injection) fn check_unknown_keys(
    unknown: &[String],
    treatment: UnknownKeys,
) -> Result<Vec<String>, InjectionRefusal> {
    if treatment == UnknownKeys::Warn || unknown.is_empty() {
        return Ok(unknown.to_vec());
    }
    let mut lines: Vec<String> = unknown.iter().take(MAX_NAMED_ANNOTATIONS).cloned().collect();
    if unknown.len() > MAX_NAMED_ANNOTATIONS {
        lines.push(format!("and {} more", unknown.len() - MAX_NAMED_ANNOTATIONS));
    }
    Err(InjectionRefusal(lines.join("; ")))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn unknown(labels: &Value, annotations: &Value) -> Vec<String> {
        let metadata = json!({"name": "web", "labels": labels, "annotations": annotations});
        let pod = json!({"metadata": metadata, "spec": {"containers": [{"name": "app"}]}});
        unknown_keys(&UserPod::of(&pod).unwrap())
    }

    #[test]
    fn what_users_and_nudge_write_is_known() {
        let whole = WITH_AGENT.into_iter().filter(|name| !ONLY_OF_CONTAINERS.contains(name));
        for name in whole.chain([RESTART]).chain(WRITTEN_BY_NUDGE) {
            assert_eq!(unknown(&json!({}), &json!({name: "x"})), Vec::<String>::new(), "{name}");
        }
        for base in OF_CONTAINERS {
            let single = format!("{base}.app");
            assert_eq!(unknown(&json!({}), &json!({single: "x"})), Vec::<String>::new(), "{base}");
        }
        let labels = json!({"nudge.dev/inject": "true", "nudge.dev/agent": "0.1.0", "app": "web"});
        assert_eq!(unknown(&labels, &json!({"example.com/notfy": "x", "nudge.devs/x": "x"})), Vec::<String>::new());
    }

    #[test]
    fn others_are_named_with_this_version_and_what_was_meant() {
        let version = env!("CARGO_PKG_VERSION");
        for (annotation, remedy) in [
            ("notfy", "did you mean nudge.dev/notify?"),
            ("cpu", "did you mean nudge.dev/agent-cpu?"),
            ("webhook", "did you mean nudge.dev/webhook.CONTAINER?"),
            ("notify.nudge-agent", "did you mean nudge.dev/notify?"),
            ("something-else", "remove it, or see the README for the known ones"),
        ] {
            let key = format!("nudge.dev/{annotation}");
            let expected = format!("annotation {key} is not known to Nudge {version}; {remedy}");
            assert_eq!(unknown(&json!({}), &json!({key: "x"})), [expected]);
        }
        for (label, remedy) in [
            ("notify", "set it as an annotation"),
            ("configs", "set it as an annotation"),
            ("port", "did you mean the annotation nudge.dev/agent-port?"),
            ("something-else", "remove it"),
        ] {
            let key = format!("nudge.dev/{label}");
            let expected = format!("label {key} is not known to Nudge {version}; {remedy}");
            assert_eq!(unknown(&json!({key: "x"}), &json!({})), [expected]);
        }
    }

    #[test]
    fn a_refusal_names_some_and_counts_the_others() {
        let messages: Vec<String> = (1..8).map(|number| number.to_string()).collect();
        assert_eq!(check_unknown_keys(&messages, UnknownKeys::Warn), Ok(messages.clone()));
        assert_eq!(check_unknown_keys(&[], UnknownKeys::Refuse), Ok(Vec::new()));
        let refused =
            |count: usize| check_unknown_keys(&messages[..count], UnknownKeys::Refuse).unwrap_err().to_string();
        assert_eq!(refused(1), "1");
        assert_eq!(refused(5), "1; 2; 3; 4; 5");
        assert_eq!(refused(7), "1; 2; 3; 4; 5; and 2 more");
    }
}
