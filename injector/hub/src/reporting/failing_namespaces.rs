//! Namespaces whose writes fail although the API server answers, for example because a webhook for pods is down. Only
//! the writes to these namespaces are slowed down. Times are arguments.

use std::collections::HashMap;
use std::time::Duration;

use nudge_protocol::backoff::Backoff;
use tokio::time::Instant;

/// The delays between the writes of one namespace.
const NAMESPACE_BACKOFF: Backoff = Backoff { first: Duration::from_millis(250), longest: Duration::from_secs(30) };
/// The maximum time between two failures of a namespace that belong to the same outage.
const MAX_OUTAGE_AGE: Duration = Duration::from_mins(2);

/// Failures in a row of one namespace.
#[derive(Debug)]
struct Outage {
    first_failure: Instant,
    last_failure: Instant,
    failures: u32,
    /// The time until which no write begins.
    paused_until: Instant,
}

/// A pause of the writes of one namespace.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NamespacePause {
    /// The time since which writes fail.
    pub(super) failing_since: Instant,
    /// The time when the next write may begin.
    pub(super) next_check: Instant,
}

/// The namespaces whose last write has failed.
#[derive(Debug, Default)]
pub(super) struct FailingNamespaces(HashMap<String, Outage>);

impl FailingNamespaces {
    /// Returns the pause of a namespace, if its writes are paused.
    pub(super) fn pause(&self, namespace: &str, now: Instant) -> Option<NamespacePause> {
        let outage = self.0.get(namespace).filter(|outage| now < outage.paused_until)?;
        let next_check = outage.paused_until.min(now + NAMESPACE_BACKOFF.wait(outage.failures));
        Some(NamespacePause { failing_since: outage.first_failure, next_check })
    }

    /// Records the beginning of a write that ends by `pause_end`. After failures no other write of its namespace begins
    /// until then.
    pub(super) fn record_start(&mut self, namespace: &str, pause_end: Instant) {
        if let Some(outage) = self.0.get_mut(namespace) {
            outage.paused_until = pause_end;
        }
    }

    /// Records the failure of a write that began at `began`. Returns whether it is the namespace's first failure.
    pub(super) fn record_failure(&mut self, namespace: &str, began: Instant, now: Instant) -> bool {
        self.0.retain(|_, outage| now < outage.last_failure + MAX_OUTAGE_AGE);
        let new = Outage { first_failure: now, last_failure: now, failures: 0, paused_until: now };
        let outage = self.0.entry(namespace.to_owned()).or_insert(new);
        // A write that began before the last failure belongs to that failure.
        if outage.failures == 0 || began > outage.last_failure {
            outage.failures = outage.failures.saturating_add(1);
            (outage.last_failure, outage.paused_until) = (now, now + NAMESPACE_BACKOFF.wait(outage.failures));
        }
        outage.first_failure == now
    }

    /// Records the answer to a write that began at `began`.
    pub(super) fn record_answer(&mut self, namespace: &str, began: Instant) {
        if self.0.get(namespace).is_some_and(|outage| began > outage.last_failure) {
            self.0.remove(namespace);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_tried_ever_less_often_until_something_is_answered_there() {
        let (mut failing, start) = (FailingNamespaces::default(), Instant::now());
        let at = |millis: u64| start + Duration::from_millis(millis);
        let pause = |since, next| Some(NamespacePause { failing_since: at(since), next_check: at(next) });
        assert_eq!(failing.pause("bad", start), None);
        assert!(failing.record_failure("bad", at(1), at(100)));
        for number in 0..50 {
            failing.record_failure("bad", at(number), at(101));
        }
        assert_eq!(failing.pause("bad", at(349)), pause(100, 350), "all that ran then count once");
        assert_eq!((failing.pause("good", at(349)), failing.pause("bad", at(350))), (None, None));
        failing.record_start("bad", at(9000));
        assert_eq!(failing.pause("bad", at(351)), pause(100, 601), "one at a time");
        assert!(!failing.record_failure("bad", at(350), at(360)));
        assert_eq!(failing.pause("bad", at(600)), pause(100, 860));
        failing.record_answer("bad", at(99));
        assert!(failing.pause("bad", at(600)).is_some());
        failing.record_answer("bad", at(860));
        assert_eq!(failing.pause("bad", at(600)), None);
        let tries = (1..=600).map(|second| at(1000 + second * 1000)).filter(|second| {
            let tried = failing.pause("bad", *second).is_none();
            if tried {
                failing.record_failure("bad", *second, *second);
            }
            tried
        });
        let tries = tries.count();
        assert!((20..35).contains(&tries), "{tries}");
        failing.record_failure("other", at(900_000), at(900_000));
        assert_eq!(failing.0.len(), 1, "what is long ago is forgotten");
    }
}
