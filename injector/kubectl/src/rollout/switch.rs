//! Sets `spec.current`, and waits for the rollout if asked to.

use std::time::Duration;

use kube::api::Patch;
use nudge_api::{Consent, Phase, RolloutFailure, VersionedConfig};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::dry_run::DryRun;
use crate::failure::{Failure, doing};
use crate::rollout::field_managers;
use crate::rollout::wait::{Wait, wait_for};
use crate::session::{Session, patching};

/// How long the control plane may take to seal a version whose objects exist, or to see a change of spec.
pub(crate) const CONTROL_PLANE_LIMIT: Duration = Duration::from_secs(10);

/// Moves the config to a version; with a reason, all pods at once.
pub(crate) async fn switch(
    session: &Session,
    config: &VersionedConfig,
    version: &str,
    now: Option<&str>,
    wait: Wait,
    dry: DryRun,
) -> Result<(), Failure> {
    let name = config.metadata.name.as_deref().unwrap_or_default();
    let status = config.status.clone().unwrap_or_default();
    if let Some(warning) = field_managers::warning(name, config.metadata.managed_fields.as_deref().unwrap_or_default())
    {
        session.out.warn(&warning);
    }
    let is_current = status.current.as_deref() == Some(version) && status.phase == Phase::Current;
    let named = config.spec.current.as_deref() == Some(version);
    // A plain switch also removes what an earlier one left.
    if is_current && named && (now.is_some() || config.spec.rollout.overridden.is_none()) {
        return session.out.line(&format!("config {name}: version {version} is already current"));
    }
    let mut generation = config.metadata.generation.unwrap_or_default();
    if dry != DryRun::Client {
        let consent = status.version(version).and_then(|sealed| sealed.consent);
        let failure = status.rollout.failure.filter(|failure| failure.version == version);
        let failure = failure.filter(|_| status.phase == Phase::Failed);
        let failed = failure.is_some();
        if failed_for(failure.as_ref(), now) {
            return Err(Failure::new(format!(
                "config {name}: version {version} failed when it was assigned to all pods at once for this reason; fix it, give another \
                 --reason, or leave out --now"
            )));
        }
        let anew = named && consent == Some(Consent::NeededAnew) && dry == DryRun::None;
        // A version that failed is tried again only after a change of spec.
        let before = status.current.as_deref().filter(|_| named && failed && dry == DryRun::None);
        if anew {
            set(session, name, status.current.as_deref(), None, dry).await?;
            wait_until_unnamed(session, name, version).await?;
        } else if before.is_some() {
            set(session, name, before, None, dry).await?;
        }
        generation = set(session, name, Some(version), now, dry).await?.metadata.generation.unwrap_or(generation);
    }
    let at_once = if now.is_some() { ", for all pods at once" } else { "" };
    session.out.line(&format!("config {name}: spec.current is {version}{at_once}{}", dry.suffix()))?;
    if wait.wait && dry == DryRun::None {
        Box::pin(wait_for(session, name, version, generation, wait.timeout)).await?;
        session.out.line(&format!("config {name}: version {version} is current"))?;
    }
    Ok(())
}

/// Whether the version failed when it was assigned to all pods at once for this reason: it is not tried for that again.
fn failed_for(failure: Option<&RolloutFailure>, now: Option<&str>) -> bool {
    now.is_some() && failure.and_then(|failure| failure.overridden.as_deref()) == now
}

/// Waits until the control plane has seen that `spec.current` does not name the version: only then is naming it consent.
async fn wait_until_unnamed(session: &Session, name: &str, version: &str) -> Result<(), Failure> {
    let deadline = Instant::now() + CONTROL_PLANE_LIMIT;
    loop {
        let config = session.config(name).await?;
        let consent = config.status.as_ref().and_then(|status| status.version(version)?.consent);
        if consent != Some(Consent::NeededAnew) {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(Failure::new(format!(
                "config {name}: the control plane has not seen the change of spec.current that consent to version {version} needs; check \
                 that Nudge runs, and try again"
            )));
        }
        sleep(Duration::from_millis(200)).await;
    }
}

/// Both fields in one write: `spec.rollout.override` never stands beside a version that it was not meant for.
fn patch(version: Option<&str>, now: Option<&str>) -> Value {
    let now = now.map(|reason| json!({"version": version, "reason": reason}));
    json!({"spec": {"current": version, "rollout": {"override": now}}})
}

async fn set(
    session: &Session,
    name: &str,
    version: Option<&str>,
    now: Option<&str>,
    dry: DryRun,
) -> Result<VersionedConfig, Failure> {
    let patch = patch(version, now);
    let patched = session.api::<VersionedConfig>().patch(name, &patching(dry), &Patch::Merge(&patch)).await;
    patched.map_err(doing(format!("setting spec.current of config {name}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_write_sets_the_version_and_whether_it_goes_to_all_pods_at_once() {
        let it = json!({"version": "2", "reason": "the old password is revoked"});
        let now = json!({"spec": {"current": "2", "rollout": {"override": it}}});
        assert_eq!(patch(Some("2"), Some("the old password is revoked")), now);
        assert_eq!(patch(Some("2"), None), json!({"spec": {"current": "2", "rollout": {"override": null}}}));
        assert_eq!(patch(None, None), json!({"spec": {"current": null, "rollout": {"override": null}}}));
    }

    #[test]
    fn a_version_that_failed_at_once_needs_another_reason_or_none() {
        let failure = |now: Option<&str>| {
            let known =
                json!({"version": "2", "generation": 1, "reason": "PodNotReady", "message": "m", "override": now});
            serde_json::from_value::<RolloutFailure>(known).unwrap()
        };
        let at_once = failure(Some("a key leaked"));
        assert!(failed_for(Some(&at_once), Some("a key leaked")));
        assert!(!failed_for(Some(&at_once), Some("no, really")));
        assert!(!failed_for(Some(&at_once), None));
        assert!(!failed_for(Some(&failure(None)), None), "it failed in steps");
        assert!(!failed_for(None, Some("a key leaked")));
    }
}
