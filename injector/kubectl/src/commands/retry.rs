//! `kubectl nudge retry`: another attempt with the version that failed.

use clap::Args;
use jiff::Timestamp;
use nudge_api::{ConditionType, Reason, VersionedConfig, find_condition};
use nudge_protocol::ConfigName;
use nudge_protocol::labels::RETRY;
use serde_json::{Value, json};

use crate::dry_run::Dry;
use crate::failure::Failure;
use crate::rollout::switch::{switch, wait_if_asked};
use crate::rollout::wait::Wait;
use crate::session::Session;

#[derive(Clone, Debug, Args)]
#[command(after_help = "Example:
  kubectl nudge retry game --wait

A version that failed is not tried again by itself, whatever else changes. Fix the cause first: a new attempt begins with the first step. \
If the config follows the text of its objects, it still does so afterwards; a text that must stay unchanged for a while (Unsettled) need not any \
longer.")]
pub(crate) struct Retry {
    /// The config
    pub(crate) config: ConfigName,
    #[command(flatten)]
    pub(crate) wait: Wait,
    #[command(flatten)]
    pub(crate) dry: Dry,
}

/// What another attempt is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attempt<'a> {
    /// The version has failed.
    Failed(&'a str),
    /// The version of the text waits, because texts have changed often.
    Unsettled(&'a str),
}

/// Returns what another attempt would be for.
fn attempt(config: &VersionedConfig) -> Result<Attempt<'_>, Failure> {
    let status = config.status.as_ref();
    let failure = status.and_then(|status| status.rollout.failure.as_ref());
    let ready = status.and_then(|status| find_condition(&status.conditions, ConditionType::Ready));
    match config.requested_version() {
        Some(version) if failure.is_some_and(|failure| failure.version == version) => Ok(Attempt::Failed(version)),
        Some(version) if ready.is_some_and(|ready| ready.reason == Reason::Unsettled.as_str()) => {
            Ok(Attempt::Unsettled(version))
        }
        _ => Err(Failure::new(format!(
            "config {}: the requested version has not failed, so there is nothing to try again",
            config.metadata.name.as_deref().unwrap_or_default()
        ))),
    }
}

/// Returns the patch that requests another attempt, and changes nothing of the spec.
fn patch(now: Timestamp) -> Value {
    json!({"metadata": {"annotations": {RETRY: now.to_string()}}})
}

pub(crate) async fn run(session: &Session, command: &Retry) -> Result<(), Failure> {
    let (name, dry) = (command.config.as_str(), command.dry.dry_run);
    let config = session.config(name).await?;
    let (version, effect) = match attempt(&config)? {
        // The attempt goes in steps, even if the version failed in all pods at once.
        Attempt::Failed(version) if !config.spec.follows_text() => {
            return switch(session, &config, version, None, command.wait, dry).await;
        }
        Attempt::Failed(version) => (version, "is tried again"),
        Attempt::Unsettled(version) => {
            (version, "need not stay unchanged any longer; it begins a minute after the last move began")
        }
    };
    let context = format!("setting the annotation {RETRY} of config {name}");
    session.merge::<VersionedConfig>(name, &patch(Timestamp::now()), dry, context).await?;
    session.out.line(&format!("config {name}: version {version} {effect}{}", dry.suffix()))?;
    let generation = config.metadata.generation.unwrap_or_default();
    wait_if_asked(session, name, version, generation, command.wait, dry).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_failed_or_waits_is_tried_again() {
        let config = |spec: Value, failed: &str, ready: &str| -> VersionedConfig {
            let failure = json!({"version": failed, "digest": "sha256:0", "reason": "PodNotReady", "message": "m"});
            let condition = json!({"type": "Ready", "status": "False", "reason": ready, "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z"});
            let text = json!({"version": "txt-2", "settleTime": "2026-01-01T00:00:00Z"});
            serde_json::from_value(json!({
                "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": "shop"}, "spec": spec,
                "status": {"rollout": {"failure": failure}, "conditions": [condition], "internal": {"text": text}},
            }))
            .unwrap()
        };
        let (named, text) = (json!({"version": "2"}), json!({"objects": ["ConfigMap"]}));
        assert_eq!(attempt(&config(named.clone(), "2", "Failed")), Ok(Attempt::Failed("2")));
        assert_eq!(attempt(&config(text.clone(), "txt-2", "Failed")), Ok(Attempt::Failed("txt-2")));
        assert_eq!(attempt(&config(text.clone(), "1", "Unsettled")), Ok(Attempt::Unsettled("txt-2")));
        for other in [config(named, "1", "Current"), config(text, "1", "Current"), config(json!({}), "1", "Current")] {
            assert!(attempt(&other).unwrap_err().message.contains("nothing to try again"));
        }
    }

    #[test]
    fn another_attempt_leaves_the_spec_alone() {
        assert_eq!(
            patch(Timestamp::UNIX_EPOCH),
            json!({"metadata": {"annotations": {"nudge.dev/retry": "1970-01-01T00:00:00Z"}}})
        );
    }
}
