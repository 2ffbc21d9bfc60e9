//! Waiting for a condition with a deadline, in place of sleeping and hoping.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// The shortest and the longest pause between two looks.
const PAUSE: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(50));

/// Returns the pause after a wait of this length: short compared with the wait, and long compared with the cost of a
/// check, since checks take processor time from the awaited program.
fn pause_after(waited: Duration) -> Duration {
    (waited / 32).clamp(PAUSE.0, PAUSE.1)
}

/// Asks `condition` again and again until it gives a value; after `within` it is an error that names `what`.
///
/// Something that is only true or false says so with `.then_some(())`.
pub async fn eventually<T>(within: Duration, what: &str, mut condition: impl AsyncFnMut() -> Option<T>) -> Result<T> {
    let began = Instant::now();
    loop {
        if let Some(value) = condition().await {
            return Ok(value);
        }
        if began.elapsed() >= within {
            bail!("not within {within:?}: {what}");
        }
        tokio::time::sleep(pause_after(began.elapsed())).await;
    }
}

/// [`eventually`] for code that does not await, such as a destructor.
pub fn eventually_blocking<T>(within: Duration, what: &str, mut condition: impl FnMut() -> Option<T>) -> Result<T> {
    let began = Instant::now();
    loop {
        if let Some(value) = condition() {
            return Ok(value);
        }
        if began.elapsed() >= within {
            bail!("not within {within:?}: {what}");
        }
        // The one place that sleeps: a step of a wait that has a condition and a deadline.
        #[allow(clippy::disallowed_methods)]
        std::thread::sleep(pause_after(began.elapsed()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_is_asked_until_it_holds() {
        let mut calls = 0;
        let value = eventually_blocking(Duration::from_secs(5), "three", || {
            calls += 1;
            (calls == 3).then_some(calls)
        });
        assert_eq!(value.unwrap(), 3);
    }

    #[test]
    fn looks_become_rare_in_a_long_wait() {
        let pauses = [0, 320, 3200, 60_000].map(|waited| pause_after(Duration::from_millis(waited)).as_millis());
        assert_eq!(pauses, [2, 10, 50, 50]);
    }

    #[tokio::test]
    async fn the_error_names_what_did_not_happen() {
        let error = eventually(Duration::ZERO, "the sky falls", async || None::<()>).await.unwrap_err();
        assert!(error.to_string().contains("the sky falls"), "{error}");
    }
}
