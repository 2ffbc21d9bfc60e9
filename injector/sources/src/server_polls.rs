//! The polls of a server: their interval, and the waits while the server does not answer.

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::{BoxStream, unfold};
use nudge_api::{Explanation, OriginKind, Reason};
use nudge_cluster::panics::catch_panic;
use nudge_protocol::backoff::Backoff;
use tokio::time::{Instant, sleep};

use crate::metrics::{FetchMetrics, FetchOutcome};
use crate::source_content::SourceContent;

/// The waits after failures in a row. `kubectl nudge source sync` ends a wait.
const SERVER_BACKOFF: Backoff = Backoff { first: Duration::from_secs(5), longest: Duration::from_mins(5) };

/// A server with the content of one source.
pub(crate) trait Remote: Send + 'static {
    const KIND: OriginKind;

    /// Reads the content. Returns `None` if it has not changed since this revision was read.
    fn read(&mut self, last: Option<&str>) -> impl Future<Output = Result<Option<SourceContent>, Explanation>> + Send;
}

/// Reads the content at once, and then every `interval`.
pub(crate) fn poll<R: Remote>(
    remote: R,
    interval: Duration,
    metrics: FetchMetrics,
) -> BoxStream<'static, Result<SourceContent, Explanation>> {
    let poll = Poll { remote, interval, metrics, wait: Duration::ZERO, failures: 0, last: None };
    unfold(poll, |mut poll| async move { Some((poll.next_content().await, poll)) }).boxed()
}

struct Poll<R> {
    remote: R,
    interval: Duration,
    metrics: FetchMetrics,
    /// The time until the next request.
    wait: Duration,
    /// The number of failures in a row.
    failures: u32,
    /// The revision that was read last.
    last: Option<String>,
}

impl<R: Remote> Poll<R> {
    /// Polls until the content has changed or can't be read.
    async fn next_content(&mut self) -> Result<SourceContent, Explanation> {
        loop {
            sleep(self.wait).await;
            let began = Instant::now();
            let result =
                catch_panic(self.remote.read(self.last.as_deref())).await.unwrap_or_else(|| Err(panic_explanation()));
            let outcome = match &result {
                Ok(Some(_)) => FetchOutcome::Changed,
                Ok(None) => FetchOutcome::Unchanged,
                Err(_) => FetchOutcome::Failed,
            };
            self.metrics.count(R::KIND, outcome, began.elapsed());
            match result {
                Ok(content) => {
                    // The random part prevents sources that started together from polling together forever.
                    (self.failures, self.wait) = (0, self.interval.mul_f64(rand::random_range(1.0..1.1)));
                    if let Some(content) = content {
                        self.last = Some(content.origin.revision.to_string());
                        return Ok(content);
                    }
                }
                Err(explanation) => {
                    self.failures = self.failures.saturating_add(1);
                    self.wait = SERVER_BACKOFF.jittered_wait(self.failures, rand::random());
                    // The content must be read again: nobody keeps it while it may not be the newest.
                    self.last = None;
                    return Err(explanation);
                }
            }
        }
    }
}

/// Explains that Nudge itself failed at a source. The panic's message may hold anything, and is not repeated.
pub(crate) fn panic_explanation() -> Explanation {
    Reason::InternalError.explained(
        "Nudge itself failed at this source and tries again, later and later; report it with the log of nudge-sources",
    )
}

/// Explains that a server did not give its content.
pub(crate) fn fetch_failure(what: impl std::fmt::Display, cause: impl std::fmt::Display) -> Explanation {
    Reason::FetchFailed.explained(format!("{what}: {cause}"))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use nudge_api::{Origin, PartKind};
    use nudge_core::versions::Contents;
    use serde_json::json;

    use super::*;

    fn content() -> SourceContent {
        let origin = Origin::read(&json!({"kind": "Git", "url": "https://git.example.com/shop"}).to_string()).unwrap();
        SourceContent { kind: PartKind::ConfigMap, origin, contents: Contents::default() }
    }

    /// A server with scripted answers, which notes when it was requests.
    struct Scripted(Vec<Result<bool, ()>>, Arc<Mutex<Vec<(Duration, bool)>>>, Instant);

    impl Remote for Scripted {
        const KIND: OriginKind = OriginKind::Git;

        async fn read(&mut self, last: Option<&str>) -> Result<Option<SourceContent>, Explanation> {
            self.1.lock().unwrap().push((self.2.elapsed(), last.is_some()));
            match if self.0.is_empty() { Ok(false) } else { self.0.remove(0) } {
                Ok(changed) => Ok(changed.then(content)),
                Err(()) => Err(fetch_failure("git.example.com", "no answer")),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_is_asked_every_interval_and_less_often_while_it_fails() {
        let requests = Arc::default();
        let script = vec![Ok(true), Ok(false), Err(()), Err(()), Err(()), Ok(true)];
        let remote = Scripted(script, Arc::clone(&requests), Instant::now());
        let states: Vec<_> = poll(remote, Duration::from_mins(1), FetchMetrics::default())
            .take(5)
            .map(|content| content.is_ok())
            .collect()
            .await;
        assert_eq!(states, [true, false, false, false, true]);
        let requests = requests.lock().unwrap().clone();
        let waits: Vec<_> = requests.windows(2).map(|two| two[1].0.saturating_sub(two[0].0).as_secs_f64()).collect();
        for (wait, (least, most)) in
            waits.iter().zip([(60.0, 66.1), (60.0, 66.1), (2.5, 5.1), (5.0, 10.1), (10.0, 20.1)])
        {
            assert!((least..most).contains(wait), "{waits:?}");
        }
        // After a failure it does not count on its previous answers.
        assert_eq!(
            requests.iter().map(|(_, known)| *known).collect::<Vec<_>>(),
            [false, true, true, false, false, false]
        );
    }

    /// One that panics, such as at an answer that nobody has thought of.
    struct Planted(u32);

    impl Remote for Planted {
        const KIND: OriginKind = OriginKind::Vault;

        async fn read(&mut self, _: Option<&str>) -> Result<Option<SourceContent>, Explanation> {
            self.0 += 1;
            assert!(self.0 > 3, "planted: hunter2");
            Ok(Some(content()))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_at_which_nudge_fails_is_asked_again_later_and_ends_no_other() {
        let began = Instant::now();
        let planted = poll(Planted(0), Duration::from_mins(1), FetchMetrics::default()).take(4).collect::<Vec<_>>();
        let script = vec![Ok(true), Ok(true)];
        let other = Scripted(script, Arc::default(), Instant::now());
        let other = poll(other, Duration::from_mins(1), FetchMetrics::default()).take(2).collect::<Vec<_>>();
        let (planted, other) = tokio::join!(planted, other);
        assert!(other.iter().all(Result::is_ok), "{other:?}");
        for seen in &planted[..3] {
            let Err(explanation) = seen else { panic!("{seen:?}") };
            assert_eq!(explanation.reason, Reason::InternalError);
            assert!(!explanation.message.contains("hunter2"), "{}", explanation.message);
        }
        assert!(planted[3].is_ok() && began.elapsed() >= Duration::from_secs(17), "{planted:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn it_waits_five_minutes_at_most_and_an_interval_again_after_the_next_success() {
        let requests = Arc::default();
        let script = [vec![Err(()); 50], vec![Ok(true), Ok(true)]].concat();
        let remote = Scripted(script, Arc::clone(&requests), Instant::now());
        poll(remote, Duration::from_mins(1), FetchMetrics::default()).take(52).for_each(|_| async {}).await;
        let requests = requests.lock().unwrap().clone();
        let waits: Vec<_> = requests.windows(2).map(|two| two[1].0.saturating_sub(two[0].0).as_secs_f64()).collect();
        let (failed, last) = waits.split_at(50);
        // The wait is shortened by up to a half.
        assert!(failed.iter().all(|wait| *wait <= 300.1) && failed[6..].iter().all(|wait| *wait >= 150.0), "{waits:?}");
        assert!(last.iter().all(|wait| (60.0..66.1).contains(wait)) && last.len() == 1, "{waits:?}");
    }
}
