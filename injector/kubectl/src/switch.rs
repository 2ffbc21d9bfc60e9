//! `kubectl nudge use`: sets `spec.current`, and waits for what comes of it.

use std::pin::pin;
use std::time::Duration;

use futures::{StreamExt as _, future, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::api::Patch;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch};
use nudge_api::{Consent, Phase, VersionedConfig};
use nudge_protocol::labels;
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use super::arguments::{DryRun, Use, Wait};
use super::failure::{Failure, doing};
use super::moved::Pods;
use super::outcome::{Outcome, View, outcome};
use super::owners;
use super::progress::Progress;
use super::session::{Session, patching};
use super::stored::{objects, sealed};

/// How long a version whose objects are there may take until it is sealed.
const SEALING: Duration = Duration::from_secs(10);
/// After this long without a change, what should have been over in a moment is told, too.
const LONG: Duration = Duration::from_secs(5);

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
        let consent = status.version(version).and_then(|sealed| sealed.consent);
        let failed =
            status.phase == Phase::Failed && status.rollout.failure.is_some_and(|failure| failure.version == version);
        let anew = named && consent == Some(Consent::NeededAnew) && dry == DryRun::None;
        // What failed is tried again only after the spec has changed.
        let before = status.current.as_deref().filter(|_| named && failed && dry == DryRun::None);
        if anew {
            set(session, name, status.current.as_deref(), dry).await?;
            seen_unnamed(session, name, version).await?;
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

/// Waits until the control plane has seen that spec.current does not name the version: only then naming it is consent.
async fn seen_unnamed(session: &Session, name: &str, version: &str) -> Result<(), Failure> {
    let deadline = Instant::now() + SEALING;
    loop {
        let config = session.config(name).await?;
        let consent = config.status.as_ref().and_then(|status| status.version(version)?.consent);
        if consent != Some(Consent::NeededAnew) {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(Failure::new(format!(
                "config {name}: the control plane has not seen that version {version} is to be named anew; see whether Nudge runs, and \
                 try again"
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

async fn wait_for(
    session: &Session,
    name: &str,
    version: &str,
    generation: i64,
    limit: Duration,
) -> Result<(), Failure> {
    let mut progress = Progress::new(session.out);
    let watched = watched(session, name, version, generation, &mut progress);
    let limited = async { if limit.is_zero() { Ok(watched.await) } else { timeout(limit, watched).await } };
    let ended = tokio::select! {
        ended = limited => Some(ended),
        // Where signals can't be had, the usual thing happens.
        Ok(()) = tokio::signal::ctrl_c() => None,
    };
    if ended.is_some() {
        progress.end();
    } else {
        progress.leave();
    }
    let see = format!("and the rollout goes on; see kubectl nudge status {name}");
    match ended {
        Some(Ok(ended)) => ended,
        Some(Err(_)) => {
            let seconds = limit.as_secs_f32();
            Err(Failure::timed_out(format!("config {name}: version {version} is not current after {seconds} s, {see}")))
        }
        None => Err(Failure::interrupted(format!("config {name}: nobody waits for version {version} any more, {see}"))),
    }
}

/// What one of the two watches says.
enum Seen {
    Config(Box<Result<Event<VersionedConfig>, watcher::Error>>),
    Pod(Box<Result<Event<Pod>, watcher::Error>>),
}

/// The API server's refusal, if it is one that stays.
fn refused<T>(event: &Result<Event<T>, watcher::Error>) -> Option<&kube::Error> {
    match event {
        Err(watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error)) => {
            Some(error).filter(|error| matches!(error, kube::Error::Api(status) if matches!(status.code, 401 | 403)))
        }
        _ => None,
    }
}

async fn watched(
    session: &Session,
    name: &str,
    version: &str,
    generation: i64,
    progress: &mut Progress,
) -> Result<(), Failure> {
    // Short, so that a watch that died without a word is noticed.
    let short = watcher::Config::default().timeout(60);
    let what = short.clone().fields(&format!("metadata.name={name}"));
    let configs =
        watch(session.api::<VersionedConfig>(), what).default_backoff().map(|event| Seen::Config(Box::new(event)));
    let pods = watch(session.api::<Pod>(), short.labels(labels::AGENT)).default_backoff();
    // Whoever may not list pods sees less.
    let may_list = std::cell::Cell::new(true);
    let pods = pods.take_while(|event| {
        may_list.set(refused(event).is_none());
        future::ready(may_list.get())
    });
    let mut events = pin!(stream::select(configs, pods.map(|event| Seen::Pod(Box::new(event)))));
    let (mut last, mut pods) = (None, Pods::default());
    loop {
        match timeout(LONG, events.next()).await {
            Ok(Some(Seen::Config(event))) => match *event {
                Ok(Event::Apply(config) | Event::InitApply(config)) => last = Some(config),
                Ok(Event::Delete(_)) => {
                    return Err(Failure::rollout(format!("config {name} was deleted meanwhile")));
                }
                event => {
                    if let Some(error) = refused(&event) {
                        return Err(Failure::of(&format!("watching config {name}"), error));
                    }
                    // What went wrong otherwise may work later; the watcher tries again.
                    continue;
                }
            },
            Ok(Some(Seen::Pod(event))) => match *event {
                Ok(event) => pods.take(event),
                Err(_) => continue,
            },
            Ok(None) => break,
            Err(_) => {
                progress.lasts();
                continue;
            }
        }
        let Some(config) = &last else { continue };
        let moved = pods.moved(config);
        match outcome(config, version, generation, moved) {
            Outcome::On(view) => {
                // Until the pods are known, the line would be another one.
                let passing = view.passing || moved.is_none() && may_list.get();
                progress.show(&View { passing, ..view });
            }
            Outcome::Current => return Ok(()),
            Outcome::Failed(message) => return Err(Failure::rollout(message)),
        }
    }
    Err(Failure::new(format!("watching config {name} ended; see kubectl nudge status {name}")))
}
