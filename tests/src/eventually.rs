//! Waiting for a condition with a deadline, in place of sleeping and hoping.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// Between two looks: short beside what is waited for, long beside the cost of looking.
const PAUSE: Duration = Duration::from_millis(2);

/// Asks `condition` again and again until it gives a value; after `within` it is an error that names `what`.
///
/// Something that is only true or false says so with `.then_some(())`.
pub async fn eventually<T>(within: Duration, what: &str, mut condition: impl AsyncFnMut() -> Option<T>) -> Result<T> {
    let deadline = Instant::now() + within;
    loop {
        if let Some(value) = condition().await {
            return Ok(value);
        }
        if Instant::now() >= deadline {
            bail!("not within {within:?}: {what}");
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// [`eventually`] for code that does not await, such as a destructor.
pub fn eventually_blocking<T>(within: Duration, what: &str, mut condition: impl FnMut() -> Option<T>) -> Result<T> {
    let deadline = Instant::now() + within;
    loop {
        if let Some(value) = condition() {
            return Ok(value);
        }
        if Instant::now() >= deadline {
            bail!("not within {within:?}: {what}");
        }
        pause();
    }
}

/// The one place that sleeps: a step of a wait that has a condition and a deadline.
#[allow(clippy::disallowed_methods)]
fn pause() {
    std::thread::sleep(PAUSE);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_is_asked_until_it_holds() {
        let mut asked = 0;
        let value = eventually_blocking(Duration::from_secs(5), "three", || {
            asked += 1;
            (asked == 3).then_some(asked)
        });
        assert_eq!(value.unwrap(), 3);
    }

    #[tokio::test]
    async fn the_error_names_what_did_not_happen() {
        let error = eventually(Duration::ZERO, "the sky falls", async || None::<()>).await.unwrap_err();
        assert!(error.to_string().contains("the sky falls"), "{error}");
    }
}
