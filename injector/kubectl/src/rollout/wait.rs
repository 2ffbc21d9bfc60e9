//! The wait for the end of a rollout, with its progress.

use std::cell::Cell;
use std::pin::pin;
use std::time::Duration;

use clap::Args;
use futures::{StreamExt as _, future, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use nudge_api::VersionedConfig;
use nudge_protocol::labels;
use tokio::time::timeout;

use crate::failure::{Exit, Failure};
use crate::output::progress::{ProgressOutput, ProgressView};
use crate::period;
use crate::rollout::outcome::{RolloutOutcome, outcome};
use crate::rollout::pods::Pods;
use crate::session::Session;

/// How long a state that usually ends at once may last before it is shown.
const STALL_NOTICE_DELAY: Duration = Duration::from_secs(5);

/// The flags `--wait` and `--timeout`.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Wait {
    /// Wait until the rollout ends, and show its progress
    #[arg(long)]
    pub(crate) wait: bool,
    /// How long to wait; 0 waits without limit
    #[arg(long, value_parser = period::parse, default_value = "0", value_name = "PERIOD", requires = "wait")]
    pub(crate) timeout: Duration,
}

/// Waits until the version is current, the rollout fails, the limit is reached, or the user presses Ctrl-C.
pub(crate) async fn wait_for(
    session: &Session,
    name: &str,
    version: &str,
    generation: i64,
    limit: Duration,
) -> Result<(), Failure> {
    let mut progress = ProgressOutput::new(&session.out);
    let progress_watch = watch(session, name, version, generation, &mut progress);
    let limited_watch =
        async { if limit.is_zero() { Ok(progress_watch.await) } else { timeout(limit, progress_watch).await } };
    let result = tokio::select! {
        result = limited_watch => Some(result),
        // Without signal handling, Ctrl-C ends the process.
        Ok(()) = tokio::signal::ctrl_c() => None,
    };
    if result.is_some() {
        progress.clear();
    } else {
        progress.keep();
    }
    let hint = format!("the rollout continues; see kubectl nudge status {name}");
    match result {
        Some(Ok(result)) => result,
        Some(Err(_)) => {
            let seconds = limit.as_secs_f32();
            Err(Failure::with(
                Exit::TimedOut,
                format!("config {name}: version {version} is not current after {seconds} s; {hint}"),
            ))
        }
        None => Err(Failure::with(
            Exit::Interrupted,
            format!("config {name}: stopped waiting for version {version}; {hint}"),
        )),
    }
}

/// An event of one of the two watches.
enum WatchEvent {
    Config(Box<Result<Event<VersionedConfig>, watcher::Error>>),
    Pod(Box<Result<Event<Pod>, watcher::Error>>),
}

/// Returns the API server's refusal, if a retry can't help.
fn refusal<T>(event: &Result<Event<T>, watcher::Error>) -> Option<&kube::Error> {
    match event {
        Err(watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error)) => {
            Some(error).filter(|error| matches!(error, kube::Error::Api(status) if matches!(status.code, 401 | 403)))
        }
        _ => None,
    }
}

async fn watch(
    session: &Session,
    name: &str,
    version: &str,
    generation: i64,
    progress: &mut ProgressOutput,
) -> Result<(), Failure> {
    // A short timeout detects a connection that died silently.
    let watch_config = watcher::Config::default().timeout(60);
    let config_watch = watch_config.clone().fields(&format!("metadata.name={name}"));
    let configs = watcher(session.api::<VersionedConfig>(), config_watch)
        .default_backoff()
        .map(|event| WatchEvent::Config(Box::new(event)));
    let pods = watcher(session.api::<Pod>(), watch_config.labels(labels::AGENT)).default_backoff();
    // Without the right to list pods, the progress comes from the status of the config alone.
    let may_list = Cell::new(true);
    let pods = pods.take_while(|event| {
        may_list.set(refusal(event).is_none());
        future::ready(may_list.get())
    });
    let mut events = pin!(stream::select(configs, pods.map(|event| WatchEvent::Pod(Box::new(event)))));
    let (mut last_config, mut pods) = (None, Pods::default());
    loop {
        match timeout(STALL_NOTICE_DELAY, events.next()).await {
            Ok(Some(WatchEvent::Config(event))) => match *event {
                Ok(Event::Apply(config) | Event::InitApply(config)) => last_config = Some(config),
                Ok(Event::Delete(_)) => {
                    return Err(Failure::with(Exit::RolloutFailed, format!("config {name} was deleted meanwhile")));
                }
                event => {
                    if let Some(error) = refusal(&event) {
                        return Err(Failure::of(&format!("watching config {name}"), error));
                    }
                    // The watcher retries after other errors.
                    continue;
                }
            },
            Ok(Some(WatchEvent::Pod(event))) => match *event {
                Ok(event) => pods.apply(event),
                Err(_) => continue,
            },
            Ok(None) => break,
            Err(_) => {
                progress.show_pending();
                continue;
            }
        }
        let Some(config) = &last_config else { continue };
        let count = pods.count(config);
        match outcome(config, version, generation, count) {
            RolloutOutcome::Pending(view) => {
                // The line changes once all pods are known.
                let is_passing = view.is_passing || count.is_none() && may_list.get();
                progress.show(&ProgressView { is_passing, ..view });
            }
            RolloutOutcome::Current => return Ok(()),
            RolloutOutcome::Failed(message) => return Err(Failure::with(Exit::RolloutFailed, message)),
        }
    }
    Err(Failure::new(format!("watching config {name} ended; see kubectl nudge status {name}")))
}
