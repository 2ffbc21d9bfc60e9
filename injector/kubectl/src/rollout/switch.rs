//! Sets `spec.current`, and waits for the rollout if asked to.

use std::time::Duration;

use kube::api::Patch;
use nudge_api::{Consent, Phase, VersionedConfig};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::dry_run::DryRun;
use crate::failure::{Failure, doing};
use crate::rollout::field_managers;
use crate::rollout::wait::{Wait, wait_for};
use crate::session::{Session, patching};

/// How long the control plane may take to seal a version whose objects exist, or to see a change of spec.
pub(crate) const CONTROL_PLANE_LIMIT: Duration = Duration::from_secs(10);

/// Moves the config to a version.
pub(crate) async fn switch(
    session: &Session,
    config: &VersionedConfig,
    version: &str,
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
    if is_current && named {
        return session.out.line(&format!("config {name}: version {version} is already current"));
    }
    let mut generation = config.metadata.generation.unwrap_or_default();
    if dry != DryRun::Client {
        let consent = status.version(version).and_then(|sealed| sealed.consent);
        let failed =
            status.phase == Phase::Failed && status.rollout.failure.is_some_and(|failure| failure.version == version);
        let anew = named && consent == Some(Consent::NeededAnew) && dry == DryRun::None;
        // A version that failed is tried again only after a change of spec.
        let before = status.current.as_deref().filter(|_| named && failed && dry == DryRun::None);
        if anew {
            set(session, name, status.current.as_deref(), dry).await?;
            wait_until_unnamed(session, name, version).await?;
        } else if before.is_some() {
            set(session, name, before, dry).await?;
        }
        generation = set(session, name, Some(version), dry).await?.metadata.generation.unwrap_or(generation);
    }
    session.out.line(&format!("config {name}: spec.current is {version}{}", dry.suffix()))?;
    if wait.wait && dry == DryRun::None {
        Box::pin(wait_for(session, name, version, generation, wait.timeout)).await?;
        session.out.line(&format!("config {name}: version {version} is current"))?;
    }
    Ok(())
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

async fn set(session: &Session, name: &str, version: Option<&str>, dry: DryRun) -> Result<VersionedConfig, Failure> {
    let patch = json!({"spec": {"current": version}});
    let patched = session.api::<VersionedConfig>().patch(name, &patching(dry), &Patch::Merge(&patch)).await;
    patched.map_err(doing(format!("setting spec.current of config {name}")))
}
