//! The change of `spec.version`, and the wait for the rollout if the user wants it.

use std::time::Duration;

use jiff::Timestamp;
use kube::api::Patch;
use nudge_api::{ConfigState, Consent, VersionedConfig};
use nudge_protocol::labels::RETRY;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::dry_run::DryRun;
use crate::failure::{Failure, doing};
use crate::rollout::field_managers;
use crate::rollout::wait::{Wait, wait_for};
use crate::session::{Session, patching};

/// The time that the control plane may take to seal a version whose objects exist, or to see a change of spec.
pub(crate) const CONTROL_PLANE_TIMEOUT: Duration = Duration::from_secs(10);

/// The interval between two reads of the control plane's progress.
pub(crate) const READ_INTERVAL: Duration = Duration::from_millis(200);

/// How long `spec.rollout.override` requests all pods at once. The API server accepts a day at most.
pub(crate) const OVERRIDE_SECONDS: i64 = 3600;

/// Moves the config to a version; with a reason to override, all pods at once.
pub(crate) async fn switch(
    session: &Session,
    config: &VersionedConfig,
    version: &str,
    override_reason: Option<&str>,
    wait: Wait,
    dry: DryRun,
) -> Result<(), Failure> {
    let name = config.metadata.name.as_deref().unwrap_or_default();
    let status = config.status.clone().unwrap_or_default();
    warn_of_other_writers(session, config);
    let is_current = status.current_version.as_deref() == Some(version) && status.state() == ConfigState::Current;
    let is_named = config.spec.version.as_deref() == Some(version);
    // A switch in steps also removes the override that an earlier one left.
    if is_current && is_named && (override_reason.is_some() || config.spec.rollout.overridden.is_none()) {
        return session.out.line(&format!("config {name}: version {version} is already current"));
    }
    let failure = status.rollout.failure.as_ref().filter(|failure| failure.version == version);
    if override_reason.is_some() && failure.is_some_and(|failure| failure.overridden.as_deref() == override_reason) {
        return Err(Failure::new(format!(
            "config {name}: version {version} was assigned to all pods at once with this reason, and failed; give another --reason to \
             try it again, or leave out --now"
        )));
    }
    let mut generation = config.metadata.generation.unwrap_or_default();
    if dry != DryRun::Client {
        let consent = status.version(version).and_then(|sealed| sealed.consent);
        let needs_consent = is_named && consent == Some(Consent::NeededAnew) && dry == DryRun::None;
        if needs_consent {
            set_version(session, name, patch(status.current_version.as_deref(), None), dry).await?;
            wait_until_unnamed(session, name, version).await?;
        }
        let version_request = request(version, override_reason, failure.is_some(), Timestamp::now());
        generation = set_version(session, name, version_request, dry).await?.metadata.generation.unwrap_or(generation);
    }
    let at_once = if override_reason.is_some() { ", for all pods at once" } else { "" };
    session.out.line(&format!("config {name}: spec.version is {version}{at_once}{}", dry.suffix()))?;
    if config.spec.follows_text() {
        session.out.line(&left_text(name, dry))?;
    }
    wait_if_asked(session, name, version, generation, wait, dry).await
}

/// Waits until the version is current, if the user wants it.
pub(crate) async fn wait_if_asked(
    session: &Session,
    name: &str,
    version: &str,
    generation: i64,
    wait: Wait,
    dry: DryRun,
) -> Result<(), Failure> {
    if wait.wait && dry == DryRun::None {
        Box::pin(wait_for(session, name, version, generation, wait.timeout)).await?;
        session.out.line(&format!("config {name}: version {version} is current"))?;
    }
    Ok(())
}

/// Returns the line about a config whose text is not followed any more.
fn left_text(name: &str, dry: DryRun) -> String {
    let suffix = dry.suffix();
    format!("config {name} does not follow its text any more{suffix}; go back to it with kubectl nudge follow {name}")
}

/// Removes `spec.version` and the override, so that the config follows its text, if it has objects.
pub(crate) async fn unset_version(session: &Session, config: &VersionedConfig, dry: DryRun) -> Result<(), Failure> {
    warn_of_other_writers(session, config);
    let name = config.metadata.name.as_deref().unwrap_or_default();
    let context = format!("removing spec.version of config {name}");
    session.merge::<VersionedConfig>(name, &patch(None, None), dry, context).await
}

fn warn_of_other_writers(session: &Session, config: &VersionedConfig) {
    let subject = format!("spec.version of config {}", config.metadata.name.as_deref().unwrap_or_default());
    let entries = config.metadata.managed_fields.as_deref().unwrap_or_default();
    if let Some(warning) = field_managers::warning(&subject, field_managers::VERSION, entries) {
        session.out.warn(&warning);
    }
}

/// Waits until the control plane has seen that `spec.version` does not name the version. Only after that does naming it
/// count as consent.
async fn wait_until_unnamed(session: &Session, name: &str, version: &str) -> Result<(), Failure> {
    let deadline = Instant::now() + CONTROL_PLANE_TIMEOUT;
    loop {
        let config = session.config(name).await?;
        let consent = config.status.as_ref().and_then(|status| status.version(version)?.consent);
        if consent != Some(Consent::NeededAnew) {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(Failure::new(format!(
                "config {name}: the control plane has not seen the change of spec.version that consent to version {version} needs; check \
                 that Nudge runs, and try again"
            )));
        }
        sleep(READ_INTERVAL).await;
    }
}

/// Returns a patch of both fields, so that `spec.rollout.override` never applies to a version that it was not meant
/// for.
fn patch(version: Option<&str>, override_until: Option<(&str, Timestamp)>) -> Value {
    let overridden = override_until
        .map(|(reason, until)| json!({"version": version, "reason": reason, "untilTime": until.to_string()}));
    json!({"spec": {"version": version, "rollout": {"override": overridden}}})
}

/// Returns the patch that requests the version. A failed version is tried again only if the patch requests a retry;
/// with an override, another reason counts as a new request.
fn request(version: &str, override_reason: Option<&str>, has_failed: bool, now: Timestamp) -> Value {
    let mut version_patch = patch(Some(version), override_reason.map(|reason| (reason, override_end(now))));
    if override_reason.is_none() && has_failed {
        version_patch["metadata"]["annotations"] = json!({RETRY: now.to_string()});
    }
    version_patch
}

/// Returns when an override that is set now ends, in whole seconds.
fn override_end(now: Timestamp) -> Timestamp {
    Timestamp::from_second(now.as_second().saturating_add(OVERRIDE_SECONDS)).unwrap_or(now)
}

async fn set_version(session: &Session, name: &str, patch: Value, dry: DryRun) -> Result<VersionedConfig, Failure> {
    let patched = session.api::<VersionedConfig>().patch(name, &patching(dry), &Patch::Merge(&patch)).await;
    patched.map_err(doing(format!("setting spec.version of config {name}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_write_sets_the_version_and_whether_it_goes_to_all_pods_at_once() {
        let overridden =
            json!({"version": "2", "reason": "the old password is revoked", "untilTime": "2026-01-01T13:00:00Z"});
        let now = json!({"spec": {"version": "2", "rollout": {"override": overridden}}});
        let end = override_end("2026-01-01T12:00:00.7Z".parse().unwrap());
        assert_eq!(patch(Some("2"), Some(("the old password is revoked", end))), now);
        assert_eq!(patch(Some("2"), None), json!({"spec": {"version": "2", "rollout": {"override": null}}}));
        assert_eq!(patch(None, None), json!({"spec": {"version": null, "rollout": {"override": null}}}));
    }

    #[test]
    fn a_text_that_is_left_says_how_to_go_back() {
        let expected =
            "config shop does not follow its text any more (dry run); go back to it with kubectl nudge follow shop";
        assert_eq!(left_text("shop", DryRun::Client), expected);
    }

    #[test]
    fn asked_again_for_all_pods_at_once_only_the_end_moves() {
        let at = |time: &str, failed| request("2", Some("revoked"), failed, time.parse().unwrap());
        let (first, mut again) = (at("2026-01-01T12:00:00Z", false), at("2026-01-01T12:30:00Z", true));
        let end = |patch: &Value| patch["spec"]["rollout"]["override"]["untilTime"].clone();
        assert_eq!((end(&first), end(&again)), (json!("2026-01-01T13:00:00Z"), json!("2026-01-01T13:30:00Z")));
        again["spec"]["rollout"]["override"]["untilTime"] = end(&first);
        assert_eq!(again, first, "one override, and no other attempt");
        let retry = |failed| request("2", None, failed, Timestamp::UNIX_EPOCH)["metadata"]["annotations"].clone();
        assert_eq!((retry(true), retry(false)), (json!({RETRY: "1970-01-01T00:00:00Z"}), Value::Null));
    }
}
