//! When a published Secret is looked at again, which nothing watches.

use std::time::{Duration, Instant};

/// When a Secret is looked at again that holds what it should, or was changed by others.
const AGAIN: Duration = Duration::from_mins(5);
/// The same of one that can't be written, for the first time; then twice as long each time.
const REFUSED: Duration = Duration::from_secs(5);

/// What was last seen of a published Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SecretLook {
    /// The version to publish then.
    pub(super) version: String,
    /// The generation of the spec then.
    generation: Option<i64>,
    /// How often in a row it could not be written.
    refusals: u32,
    /// When to look again.
    pub(super) next: Instant,
}

impl SecretLook {
    /// After a look at `now`. A refusal is tried again soon, and less and less often.
    pub(super) fn after(
        before: Option<&Self>,
        version: &str,
        generation: Option<i64>,
        refused: bool,
        now: Instant,
    ) -> Self {
        let same = before.filter(|look| look.version == version && look.generation == generation);
        let refusals = if refused { same.map_or(0, |look| look.refusals).saturating_add(1) } else { 0 };
        let wait = if refused { REFUSED.saturating_mul(1 << (refusals - 1).min(10)).min(AGAIN) } else { AGAIN };
        Self { version: version.to_owned(), generation, refusals, next: now + wait }
    }

    pub(super) fn is_due(&self, version: &str, generation: Option<i64>, now: Instant) -> bool {
        self.version != version || self.generation != generation || self.next <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_tried_again_less_and_less_often() {
        let now = Instant::now();
        let (mut look, mut waits) = (None, Vec::new());
        for _ in 0..9 {
            let next = SecretLook::after(look.as_ref(), "1", Some(1), true, now);
            waits.push((next.next - now).as_secs());
            look = Some(next);
        }
        assert_eq!(waits, [5, 10, 20, 40, 80, 160, 300, 300, 300]);
        let look = look.unwrap();
        let last = now + Duration::from_secs(299);
        assert!(!look.is_due("1", Some(1), last) && look.is_due("1", Some(1), last + Duration::from_secs(1)));
        assert!(look.is_due("2", Some(1), now) && look.is_due("1", Some(2), now));
        let again = |version, generation, refused| {
            (SecretLook::after(Some(&look), version, generation, refused, now).next - now).as_secs()
        };
        assert_eq!((again("2", Some(1), true), again("1", Some(2), true), again("1", Some(1), false)), (5, 5, 300));
    }
}
