//! Whether the hub is away: no replica of it works, or what pods report does not reach their conditions. Pure.
//!
//! Nothing that pods do or do not say is a version's fault then. No clock is compared with another one: a renewal of the Lease counts from when
//! it was first seen.

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::LeaseSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use nudge_api::{Explanation, Reason};

/// After which time without a renewal, or without a written condition, the hub is away.
const AWAY: Duration = Duration::from_secs(30);
/// Longest duration of a Lease that counts.
const LONGEST: Duration = Duration::from_mins(5);

/// Why the hub is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HubAway {
    /// No replica renews the Lease.
    NotRenewing,
    /// Reports of pods wait, and no condition is written.
    NotWriting,
}

impl HubAway {
    /// Returns the reason and the message, which stays the same for as long as the hub is away.
    pub fn explanation(self) -> Explanation {
        let cause = match self {
            Self::NotRenewing => "no replica of the hub has renewed its Lease for 30 s",
            Self::NotWriting => {
                "the hub has not written the condition of any pod for 30 s, though reports of pods wait"
            }
        };
        Reason::HubAway.explained(format!(
            "{cause}. The rollout goes on where it is when the hub is back: look at the Deployment nudge-hub, and at its log"
        ))
    }
}

/// The Lease of the hubs, as the leader has read it again and again.
#[derive(Debug, Default)]
pub struct Renewals {
    /// The last renewal, and when it was first seen.
    last: Option<(Option<MicroTime>, Instant)>,
}

impl Renewals {
    /// Takes in the Lease as it is now. Returns whether nobody has renewed it for too long.
    pub fn overdue(&mut self, lease: &LeaseSpec, now: Instant) -> bool {
        let LeaseSpec { renew_time, lease_duration_seconds, .. } = lease;
        let same = self.last.as_ref().filter(|(known, _)| known == renew_time);
        let since = same.map_or(now, |(_, since)| *since);
        self.last = Some((renew_time.clone(), since));
        // It is renewed three times in its duration.
        let seconds = lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or_default();
        now.saturating_duration_since(since) >= Duration::from_secs(seconds).clamp(AWAY, LONGEST)
    }
}

/// Decides whether the hub is away: by whether its Lease is `overdue`, for how long the oldest report `waits` in its line, and when a report of
/// any pod was last seen to change.
pub fn hub_away(overdue: bool, waits: Duration, written: Option<Instant>, now: Instant) -> Option<HubAway> {
    if overdue {
        return Some(HubAway::NotRenewing);
    }
    let unwritten = written.is_none_or(|at| now.saturating_duration_since(at) >= AWAY);
    (waits >= AWAY && unwritten).then_some(HubAway::NotWriting)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;

    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn lease(renewed: i64, duration: i32) -> LeaseSpec {
        LeaseSpec {
            renew_time: Some(MicroTime(Timestamp::from_second(renewed).unwrap())),
            lease_duration_seconds: Some(duration),
            ..LeaseSpec::default()
        }
    }

    #[test]
    fn a_lease_that_nobody_renews_is_overdue_after_30_s_or_its_duration() {
        for (duration, first) in [(15, 30), (3, 30), (60, 60), (i32::MAX, 300), (-1, 30)] {
            let (mut renewals, start) = (Renewals::default(), Instant::now());
            let overdue = (0..400).find(|second| renewals.overdue(&lease(7, duration), start + seconds(*second)));
            assert_eq!(overdue, Some(first), "{duration}");
            assert!(!renewals.overdue(&lease(8, duration), start + seconds(400)), "somebody has renewed it");
        }
    }

    #[test]
    fn one_that_was_never_there_is_overdue_too_and_one_that_is_renewed_never() {
        let (mut renewals, start) = (Renewals::default(), Instant::now());
        let mut none = |second| renewals.overdue(&LeaseSpec::default(), start + seconds(second));
        assert!(!none(0) && !none(29) && none(30));
        let mut renewals = Renewals::default();
        let look = |second: u32| renewals.overdue(&lease((second / 5).into(), 15), start + seconds(second.into()));
        assert!(!(0..300).any(look));
    }

    #[test]
    fn a_hub_that_writes_is_not_away_however_long_its_line_is() {
        let start = Instant::now();
        let (now, before) = (start + seconds(100), |wait: u64| Some(start + seconds(100 - wait)));
        for (overdue, waits, written, away) in [
            (true, 0, before(0), Some(HubAway::NotRenewing)),
            (false, 0, None, None),
            (false, 29, before(60), None),
            (false, 600, before(29), None),
            (false, 30, before(30), Some(HubAway::NotWriting)),
            (false, 30, None, Some(HubAway::NotWriting)),
        ] {
            assert_eq!(hub_away(overdue, seconds(waits), written, now), away, "{overdue} {waits} {written:?}");
        }
    }
}
