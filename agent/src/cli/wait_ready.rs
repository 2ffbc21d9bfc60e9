//! `nudge-agent wait-ready`: holds a pod's containers back until their configuration is served.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use inotify::{Inotify, WatchMask};
use nudge_protocol::settings::parse_duration;
use nudge_protocol::{env, pod};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::client::{Access, request};
use super::output::print_error;
use crate::identity::Share;
use crate::readiness::NotReady;

/// The time between two attempts while the folders to watch do not exist.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// The time between two checks while no change is seen.
const RECHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Wait until the agent of this pod serves the configuration: the postStart hook or the startup probe of the injected
/// container
///
/// Exits with 0 as soon as the endpoint has a dictionary and the files for the other containers are written. Exits with
/// 1 when the time is up; the reason is on standard error and in the termination message.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// How long to wait, such as 30s or 2m
    #[arg(long, env = pod::env::START_TIMEOUT, value_name = "TIME", default_value = "30s", value_parser = parse_duration)]
    timeout: Duration,

    /// The agent's folder for its own state, as given to `nudge-agent run`
    #[arg(long, env = pod::env::STATE_DIR, value_name = "DIR", default_value = "/run/nudge/state")]
    state_dir: PathBuf,

    /// The folder that the agent shares with the containers
    #[arg(long, env = pod::env::SHARE_DIR, value_name = "DIR", default_value = "/run/nudge/share")]
    share_dir: PathBuf,

    /// Also write the reason to this file, if it exists
    #[arg(long, value_name = "FILE", default_value = "/dev/termination-log")]
    termination_log: PathBuf,
}

pub(super) fn run(args: &Args) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let result = runtime.map_err(|error| error.to_string()).and_then(|runtime| runtime.block_on(wait(args)));
    let Err(reason) = result else { return ExitCode::SUCCESS };
    print_error(&reason);
    if let Ok(mut log) = fs::OpenOptions::new().append(true).open(&args.termination_log) {
        // The reason is on standard error, too.
        let _ = io::Write::write_all(&mut log, reason.as_bytes());
    }
    ExitCode::FAILURE
}

async fn wait(args: &Args) -> Result<(), String> {
    let deadline = Instant::now() + args.timeout;
    let (share, not_ready) = (Share::new(&args.share_dir), NotReady::new(&args.state_dir));
    let mut last = "the agent has not started".to_owned();
    let ready = timeout_at(deadline, async {
        loop {
            // Watching begins before the check, so that no change is missed.
            let watcher = watch(args);
            match check(&share).await {
                Ok(()) => return,
                Err(reason) => last = reason,
            }
            wait_for_change(watcher).await;
        }
    });
    let result = ready.await;
    // The agent's own reason comes first, also if another process listens at its port and does not answer.
    let reason = || not_ready.reason().unwrap_or(last);
    result.map_err(|_| format!("no configuration within {} s: {}", args.timeout.as_secs_f64(), reason()))
}

/// Checks the files and the endpoint.
async fn check(share: &Share) -> Result<(), String> {
    let endpoint = share.variable(env::ENDPOINT).ok_or("the agent has not written its files yet")?;
    let access = Access::without_token(&endpoint, &share.certificate_file())?;
    request(&access, "/readyz").await.map(drop)
}

/// Watches the folders that change when the agent becomes ready.
fn watch(args: &Args) -> io::Result<Inotify> {
    let inotify = Inotify::init()?;
    let mask = WatchMask::MOVED_TO | WatchMask::DELETE | WatchMask::ONLYDIR;
    inotify.watches().add(&args.share_dir, mask)?;
    inotify.watches().add(&args.state_dir, mask)?;
    Ok(inotify)
}

/// Waits for a change in the watched folders, or for a moment if they can't be watched.
async fn wait_for_change(watch: io::Result<Inotify>) {
    let mut buffer = [0; 1024];
    if let Ok(stream) = watch.and_then(|inotify| inotify.into_event_stream(&mut buffer)) {
        let mut stream = std::pin::pin!(stream);
        let event = std::future::poll_fn(|context| futures_core::Stream::poll_next(stream.as_mut(), context));
        // Some file systems report no changes.
        let _ = timeout(RECHECK_INTERVAL, event).await;
    } else {
        sleep(RETRY_INTERVAL).await;
    }
}
