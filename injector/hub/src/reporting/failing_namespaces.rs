//! Namespaces in which writes fail though the API server answers, as where a webhook for pods is down: they are slowed by themselves, and what
//! waits there is no longer in line with the others. Pure: times are arguments.

use std::collections::HashMap;
use std::time::Duration;

use nudge_protocol::backoff::Backoff;
use tokio::time::Instant;

/// How long until the next write of a namespace begins.
const NAMESPACE_BACKOFF: Backoff = Backoff { first: Duration::from_millis(250), longest: Duration::from_secs(30) };
/// A namespace that did not fail again in this time is forgotten.
const FAILURE_MEMORY_TIME: Duration = Duration::from_mins(2);

/// Failures in a row of one namespace.
#[derive(Debug)]
struct Outage {
    /// When the first and the last failure were seen.
    first: Instant,
    last: Instant,
    failures: u32,
    /// Nothing begins before.
    rests: Instant,
}

/// Remembers the namespaces whose last write has failed.
#[derive(Debug, Default)]
pub(super) struct FailingNamespaces(HashMap<String, Outage>);

impl FailingNamespaces {
    /// Returns, for a namespace that rests, since when it fails and when to look again.
    pub(super) fn rests(&self, namespace: &str, now: Instant) -> Option<(Instant, Instant)> {
        let outage = self.0.get(namespace).filter(|outage| now < outage.rests)?;
        Some((outage.first, outage.rests.min(now + NAMESPACE_BACKOFF.wait(outage.failures))))
    }

    /// Takes in that a write begins, which is over at `end`. Where others have failed, it is the only one until then.
    pub(super) fn begins(&mut self, namespace: &str, end: Instant) {
        if let Some(outage) = self.0.get_mut(namespace) {
            outage.rests = end;
        }
    }

    /// Takes in that a write has failed that had begun then. Returns whether none had before.
    pub(super) fn failed(&mut self, namespace: &str, began: Instant, now: Instant) -> bool {
        self.0.retain(|_, outage| now < outage.last + FAILURE_MEMORY_TIME);
        let new = Outage { first: now, last: now, failures: 0, rests: now };
        let outage = self.0.entry(namespace.to_owned()).or_insert(new);
        // What had begun before the last failure says nothing more.
        if outage.failures == 0 || began > outage.last {
            outage.failures = outage.failures.saturating_add(1);
            (outage.last, outage.rests) = (now, now + NAMESPACE_BACKOFF.wait(outage.failures));
        }
        outage.first == now
    }

    /// Takes in that a write was answered that had begun then.
    pub(super) fn answered(&mut self, namespace: &str, began: Instant) {
        if self.0.get(namespace).is_some_and(|outage| began > outage.last) {
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
        assert_eq!(failing.rests("bad", start), None);
        assert!(failing.failed("bad", at(1), at(100)));
        for number in 0..50 {
            failing.failed("bad", at(number), at(101));
        }
        assert_eq!(failing.rests("bad", at(349)), Some((at(100), at(350))), "all that ran then count once");
        assert_eq!((failing.rests("good", at(349)), failing.rests("bad", at(350))), (None, None));
        failing.begins("bad", at(9000));
        assert_eq!(failing.rests("bad", at(351)), Some((at(100), at(601))), "one at a time");
        assert!(!failing.failed("bad", at(350), at(360)));
        assert_eq!(failing.rests("bad", at(600)), Some((at(100), at(860))));
        failing.answered("bad", at(99));
        assert!(failing.rests("bad", at(600)).is_some());
        failing.answered("bad", at(860));
        assert_eq!(failing.rests("bad", at(600)), None);
        let tries = (1..=600).map(|second| at(1000 + second * 1000)).filter(|second| {
            let tried = failing.rests("bad", *second).is_none();
            if tried {
                failing.failed("bad", *second, *second);
            }
            tried
        });
        let tries = tries.count();
        assert!((20..35).contains(&tries), "{tries}");
        failing.failed("other", at(900_000), at(900_000));
        assert_eq!(failing.0.len(), 1, "what is long ago is forgotten");
    }
}
