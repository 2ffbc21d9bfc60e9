//! Clients that work for as long as versions switch: short rounds of a public client, one after the other.

use std::ops::AddAssign;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn_blocking};

/// The shortest time from one round to the next.
const MIN_ROUND_INTERVAL: Duration = Duration::from_millis(100);

/// What clients have seen.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Count {
    /// Requests that were answered.
    pub(crate) done: u64,
    /// Requests without an answer: their connection was refused, reset or closed.
    pub(crate) dropped: u64,
    /// The same over connections that were kept alive: the server may have closed an idle one just before the request
    /// reached it.
    pub(crate) closed: u64,
}

impl AddAssign for Count {
    fn add_assign(&mut self, other: Self) {
        self.done += other.done;
        self.dropped += other.dropped;
        self.closed += other.closed;
    }
}

/// Clients at work; they end after their round when this is dropped.
pub(crate) struct Load {
    stop: watch::Sender<bool>,
    task: JoinHandle<Result<Count>>,
}

impl Load {
    /// Runs `round` again and again.
    pub(crate) fn rounds(round: impl Fn() -> Result<Count> + Send + Sync + 'static) -> Self {
        let (stop, stopped) = watch::channel(false);
        let round = Arc::new(round);
        let task = tokio::spawn(async move {
            let mut total = Count::default();
            let mut tick = tokio::time::interval(MIN_ROUND_INTERVAL);
            while !*stopped.borrow() && stopped.has_changed().is_ok() {
                tick.tick().await;
                let round = round.clone();
                total += spawn_blocking(move || round()).await??;
            }
            Ok(total)
        });
        Self { stop, task }
    }

    /// `wrk`: two connections that are kept alive if the server allows it, and two clients that connect for each
    /// request. They send one request after the other: with pauses, wrk would count each idle connection that is closed
    /// as a fault.
    pub(crate) fn wrk(port: u16, path: &str) -> Self {
        let url = format!("http://127.0.0.1:{port}{path}");
        Self::rounds(move || {
            let mut command = Command::new("wrk");
            command.args(["-t1", "-c2", "-d2s", "--timeout", "5s", &url]).stdout(Stdio::piped());
            let kept = command.spawn()?;
            let fresh = command.args(["-H", "Connection: close"]).output()?;
            let [kept, fresh] = [kept.wait_with_output()?, fresh].map(|output| wrk(&output));
            let (kept, fresh) = kept.zip(fresh).context("can't understand wrk")?;
            Ok(Count { done: kept.done + fresh.done, dropped: fresh.dropped, closed: kept.dropped })
        })
    }

    /// Lets the round end, and gives what all rounds have seen.
    pub(crate) async fn stop(self) -> Result<Count> {
        self.stop.send_replace(true);
        self.task.await?
    }
}

/// Returns what `wrk` reports.
fn wrk(output: &Output) -> Option<Count> {
    let text = String::from_utf8_lossy(&output.stdout);
    let done = text.lines().find_map(|line| line.split_once(" requests in "))?.0.trim().parse().ok()?;
    // Only if there are any: "Socket errors: connect 0, read 3, write 0, timeout 0", and the other answers.
    let faults = text.lines().filter(|line| line.contains("Socket errors:") || line.contains("Non-2xx"));
    Some(Count { done, dropped: faults.map(numbers).sum(), ..Count::default() })
}

/// Returns the sum of the numbers that stand alone in a line.
fn numbers(line: &str) -> u64 {
    line.split([' ', ',']).filter_map(|word| word.parse::<u64>().ok()).sum()
}
