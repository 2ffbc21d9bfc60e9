//! `kubectl nudge use`: sets `spec.current`, and waits for what comes of it.

use std::pin::pin;
use std::time::Duration;

use futures::StreamExt as _;
use kube::api::Patch;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch};
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use super::arguments::{DryRun, Use, Wait};
use super::failure::{Failure, doing};
use super::outcome::{Outcome, outcome};
use super::owners;
use super::progress::Progress;
use super::session::{Session, patching};
use super::stored::{objects, sealed};
use crate::api::{Phase, VersionedConfig};

/// How long a version whose objects are there may take until it is sealed.
const SEALING: Duration = Duration::from_secs(10);

pub(super) async fn run(session: &Session, command: &Use) -> Result<(), Failure> {
    let config = there(session, command.config.as_str(), command.version.as_str()).await?;
    switch(session, &config, command.version.as_str(), command.wait, command.dry.dry_run).await
}

/// The config, once the version is complete; refused at once if nothing of it is there.
async fn there(session: &Session, name: &str, version: &str) -> Result<VersionedConfig, Failure> {
    let deadline = Instant::now() + SEALING;
    loop {
        let config = session.config(name).await?;
        let Err(refusal) = sealed(&config, version) else { return Ok(config) };
        let (found, _) = objects(session, name, Some(version)).await?;
        if found.is_empty() {
            return Err(refusal);
        }
        if Instant::now() >= deadline {
            let (count, namespace) = (found.len(), &session.namespace);
            return Err(Failure::new(format!(
                "version {version} of config {name} has {count} objects and is not complete; see kubectl nudge versions {name}, and \
                 whether namespace {namespace} is enabled and Nudge runs"
            )));
        }
        sleep(Duration::from_millis(200)).await;
    }
}

/// Moves the config to a version.
pub(super) async fn switch(
    session: &Session,
    config: &VersionedConfig,
    version: &str,
    wait: Wait,
    dry: DryRun,
) -> Result<(), Failure> {
    let name = config.metadata.name.as_deref().unwrap_or_default();
    let status = config.status.clone().unwrap_or_default();
    if let Some(warning) = owners::warning(name, config.metadata.managed_fields.as_deref().unwrap_or_default()) {
        session.out.warn(&warning);
    }
    let is_current = status.current.as_deref() == Some(version) && status.phase == Phase::Current;
    let named = config.spec.current.as_deref() == Some(version);
    if is_current && named {
        return session.out.line(&format!("config {name}: version {version} is current already"));
    }
    let mut generation = config.metadata.generation.unwrap_or_default();
    if dry != DryRun::Client {
        let failed =
            status.phase == Phase::Failed && status.rollout.failure.is_some_and(|failure| failure.version == version);
        // What failed is tried again only after the spec has changed.
        let before = status.current.as_deref().filter(|_| named && failed && dry == DryRun::None);
        for version in before.into_iter().chain([version]) {
            generation = set(session, name, version, dry).await?.metadata.generation.unwrap_or(generation);
        }
    }
    session.out.line(&format!("config {name}: spec.current is {version}{}", dry.suffix()))?;
    if wait.wait && dry == DryRun::None {
        wait_for(session, name, version, generation, wait.timeout).await?;
        session.out.line(&format!("config {name}: version {version} is current"))?;
    }
    Ok(())
}

async fn set(session: &Session, name: &str, version: &str, dry: DryRun) -> Result<VersionedConfig, Failure> {
    let patch = json!({"spec": {"current": version}});
    let patched = session.api::<VersionedConfig>().patch(name, &patching(dry), &Patch::Merge(&patch)).await;
    patched.map_err(doing(format!("setting spec.current of config {name}")))
}

async fn wait_for(
    session: &Session,
    name: &str,
    version: &str,
    generation: i64,
    limit: Duration,
) -> Result<(), Failure> {
    let mut progress = Progress::new(session.out);
    let watched = watched(session, name, version, generation, &mut progress);
    let ended = if limit.is_zero() { Ok(watched.await) } else { timeout(limit, watched).await };
    progress.end();
    ended.unwrap_or_else(|_| {
        Err(Failure::timed_out(format!(
            "config {name}: version {version} is not current after {} s, and the rollout goes on; see kubectl nudge status {name}",
            limit.as_secs()
        )))
    })
}

async fn watched(
    session: &Session,
    name: &str,
    version: &str,
    generation: i64,
    progress: &mut Progress,
) -> Result<(), Failure> {
    // Short, so that a watch that died without a word is noticed.
    let what = watcher::Config::default().fields(&format!("metadata.name={name}")).timeout(60);
    let mut events = pin!(watch(session.api::<VersionedConfig>(), what).default_backoff());
    while let Some(event) = events.next().await {
        let config = match event {
            Ok(Event::Apply(config) | Event::InitApply(config)) => config,
            Ok(Event::Delete(_)) => return Err(Failure::rollout(format!("config {name} was deleted meanwhile"))),
            Err(watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error)) if matches!(&error, kube::Error::Api(status) if matches!(status.code, 401 | 403)) =>
            {
                return Err(Failure::of(&format!("watching config {name}"), &error));
            }
            // What went wrong otherwise may work later; the watcher tries again.
            Ok(Event::Init | Event::InitDone) | Err(_) => continue,
        };
        match outcome(&config, version, generation) {
            Outcome::On(view) => progress.show(&view),
            Outcome::Current => return Ok(()),
            Outcome::Failed(sentence) => return Err(Failure::rollout(sentence)),
        }
    }
    Err(Failure::new(format!("watching config {name} ended; see kubectl nudge status {name}")))
}
