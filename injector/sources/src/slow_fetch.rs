//! The places of slow fetches. A fetch that takes longer than [`SLOW_FETCH_AGE`] is cancelled unless few others are
//! slow at that moment. Its source then waits for a turn, so that a slow server takes no memory from the sources of
//! other teams.

use std::pin::pin;
use std::time::Duration;

use nudge_api::Explanation;
use nudge_cluster::turns::{Turn, Turns};
use tokio::time::timeout;

use crate::server_polls::fetch_failure;

/// The minimum age of a git fetch that counts as slow.
pub(crate) const SLOW_FETCH_AGE: Duration = Duration::from_secs(30);

/// The places of slow fetches, as one namespace has them.
#[derive(Clone, Copy)]
pub(crate) struct SlowFetches<'a> {
    pub(crate) turns: &'a Turns,
    pub(crate) namespace: &'a str,
}

impl SlowFetches<'_> {
    /// Takes a place if the source was slow the last time. The source has no memory while it waits, so that quick
    /// sources can continue.
    pub(crate) async fn take_place(self, was_slow: bool) -> Option<Turn> {
        if was_slow { Some(self.turns.take(self.namespace).await) } else { None }
    }

    /// Explains that a source has lost its place or its memory.
    pub(crate) fn lost_turn(url: &str, cause: &str) -> Explanation {
        fetch_failure(
            url,
            format!(
                "the fetch was not done within {} s, and {cause}; the source waits for its turn again",
                SLOW_FETCH_AGE.as_secs()
            ),
        )
    }

    /// Runs the fetch, and returns whether it is slow. A slow fetch continues if it has a place. Without one, it gives
    /// its memory to the waiting sources, and its own source waits for a place the next time.
    pub(crate) async fn run<T>(
        self,
        place: Option<Turn>,
        url: &str,
        fetch: impl Future<Output = Result<T, Explanation>>,
    ) -> (bool, Result<T, Explanation>) {
        let mut fetch = pin!(fetch);
        if let Ok(result) = timeout(SLOW_FETCH_AGE, &mut fetch).await {
            return (false, result);
        }
        let Some(_place) = place.or_else(|| self.turns.try_take(self.namespace, 1)) else {
            return (true, Err(Self::lost_turn(url, "other slow servers take all places")));
        };
        (true, fetch.await)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, sleep};

    use super::*;

    /// Fetches for this many seconds. Returns whether the fetch was slow, and whether it ended.
    async fn run_fetch(slow: SlowFetches<'_>, was_slow: bool, seconds: u64) -> (bool, bool) {
        let place = slow.take_place(was_slow).await;
        let fetch = async {
            sleep(Duration::from_secs(seconds)).await;
            Ok(())
        };
        let (is_slow, done) = slow.run(place, "https://a/b", fetch).await;
        (is_slow, done.is_ok())
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_server_gives_its_turn_back_unless_few_are_slow() {
        let turns = Turns::new(1, 1);
        let timed = async |namespace: &str, seconds: u64| {
            let (began, slow) = (Instant::now(), SlowFetches { turns: &turns, namespace });
            (run_fetch(slow, false, seconds).await.1, began.elapsed().as_secs())
        };
        let (slow_a, slow_b, quick) = tokio::join!(timed("a", 100), timed("b", 110), timed("c", 29));
        assert_eq!((quick, [slow_a, slow_b].contains(&(false, 30))), ((true, 29), true), "{slow_a:?} {slow_b:?}");
        assert!([slow_a, slow_b].iter().any(|(done, took)| *done && *took >= 100), "{slow_a:?} {slow_b:?}");
        assert_eq!(timed("a", 50).await, (true, 50), "the place is free again");
    }

    #[tokio::test(start_paused = true)]
    async fn namespaces_that_are_always_slow_keep_no_other_out() {
        let turns = Turns::new(2, 1);
        let always = async |namespace: &str| {
            let mut is_slow = false;
            for _ in 0..20 {
                (is_slow, _) = run_fetch(SlowFetches { turns: &turns, namespace }, is_slow, 100).await;
            }
        };
        let other = async {
            let began = Instant::now();
            let (mut is_slow, mut done, mut tries) = (false, false, 0);
            while !done {
                (is_slow, done) = run_fetch(SlowFetches { turns: &turns, namespace: "c" }, is_slow, 100).await;
                tries += 1;
            }
            (tries, began.elapsed().as_secs())
        };
        tokio::select! {
            biased;
            () = async { tokio::join!(always("a"), always("a"), always("b"), always("b")); } => panic!("they have ended"),
            (tries, took) = other => assert!(tries <= 2 && took <= 300, "{tries} tries took {took} s"),
        }
    }
}
