//! The check whether the hub is away: no replica of it works, or the reports of pods do not reach their conditions.
//!
//! Then the silence of pods is not a version's fault. Clocks of machines are not compared: a renewal of the Lease
//! counts from when the leader first saw it.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::LeaseSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use nudge_api::{Explanation, Reason};

use super::waiting_reports::ReplicaNotes;

/// How long the Lease may stay without renewal, or a report without its condition, until the hub counts as away.
const AWAY_TIMEOUT: Duration = Duration::from_secs(30);
/// The remedy for an administrator.
const HUB_HINT: &str = "check the Deployment nudge-hub and its log";
/// The maximum duration of a Lease that counts.
const MAX_LEASE_DURATION: Duration = Duration::from_mins(5);

/// The reason why the hub is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HubAway {
    /// No replica renews the Lease.
    NotRenewing,
    /// Reports of pods wait, and no condition is written.
    NotWriting,
    /// Reports of pods in this namespace wait, and no condition of it is written.
    NotWritingHere,
}

impl HubAway {
    /// Returns the reason and the message, which stays the same for as long as the hub is away.
    pub fn explanation(self) -> Explanation {
        let (cause, remedy) = match self {
            Self::NotRenewing => ("no replica of the hub has renewed its Lease for 30 s", HUB_HINT),
            Self::NotWriting => {
                ("the hub has not written the condition of any pod for 30 s, although reports of pods wait", HUB_HINT)
            }
            Self::NotWritingHere => {
                let cause = "the API server has accepted no pod condition in this namespace for 30 s, although reports of its pods wait";
                (
                    cause,
                    "look for a webhook or a policy that refuses to change pods/status here, and at the log of nudge-hub",
                )
            }
        };
        Reason::HubAway.explained(format!("{cause}. The rollout continues when that has ended: {remedy}"))
    }
}

/// The renewals of the hub's Lease, as the leader has observed them.
#[derive(Debug, Default)]
pub struct LeaseRenewals {
    last: Option<Renewal>,
}

#[derive(Debug)]
struct Renewal {
    time: Option<MicroTime>,
    first_seen: Instant,
}

impl LeaseRenewals {
    /// Takes in the Lease as it is now, and returns whether nobody has renewed it for too long.
    pub fn observe(&mut self, lease: &LeaseSpec, now: Instant) -> bool {
        let LeaseSpec { renew_time, lease_duration_seconds, .. } = lease;
        let unchanged = self.last.as_ref().filter(|last| last.time == *renew_time);
        let first_seen = unchanged.map_or(now, |last| last.first_seen);
        self.last = Some(Renewal { time: renew_time.clone(), first_seen });
        // The holder renews the Lease three times in its duration.
        let seconds = lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or_default();
        now.saturating_duration_since(first_seen)
            >= Duration::from_secs(seconds).clamp(AWAY_TIMEOUT, MAX_LEASE_DURATION)
    }
}

/// The extent of the hub's absence: everywhere, or in some namespaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outage {
    everywhere: Option<HubAway>,
    namespaces: BTreeSet<String>,
}

impl Outage {
    /// Decides whether the hub is away. `overdue` says that its Lease is overdue, and `notes` which reports wait in its
    /// replicas. `last_report` returns when the last change of a report was seen, of any pod or of those in a
    /// namespace.
    pub fn new(
        overdue: bool,
        notes: &ReplicaNotes,
        last_report: impl Fn(Option<&str>) -> Option<Instant>,
        now: Instant,
    ) -> Self {
        if overdue {
            return Self { everywhere: Some(HubAway::NotRenewing), namespaces: BTreeSet::new() };
        }
        let is_silent = |namespace: Option<&str>| {
            last_report(namespace).is_none_or(|reported_at| now.saturating_duration_since(reported_at) >= AWAY_TIMEOUT)
        };
        let (is_everywhere, mut namespaces) = notes.overdue_reports(AWAY_TIMEOUT, now);
        namespaces.retain(|namespace| is_silent(Some(namespace)));
        Self { everywhere: (is_everywhere && is_silent(None)).then_some(HubAway::NotWriting), namespaces }
    }

    /// Returns why the hub is away for the pods of this namespace.
    pub fn cause(&self, namespace: &str) -> Option<HubAway> {
        self.everywhere.or_else(|| self.namespaces.contains(namespace).then_some(HubAway::NotWritingHere))
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;

    use super::super::waiting_reports;
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
            let (mut renewals, start) = (LeaseRenewals::default(), Instant::now());
            let overdue = (0..400).find(|second| renewals.observe(&lease(7, duration), start + seconds(*second)));
            assert_eq!(overdue, Some(first), "{duration}");
            assert!(!renewals.observe(&lease(8, duration), start + seconds(400)), "somebody has renewed it");
        }
    }

    #[test]
    fn one_that_was_never_there_is_overdue_too_and_one_that_is_renewed_never() {
        let (mut renewals, start) = (LeaseRenewals::default(), Instant::now());
        let mut none = |second| renewals.observe(&LeaseSpec::default(), start + seconds(second));
        assert!(!none(0) && !none(29) && none(30));
        let mut renewals = LeaseRenewals::default();
        let look = |second: u32| renewals.observe(&lease((second / 5).into(), 15), start + seconds(second.into()));
        assert!(!(0..300).any(look));
    }

    #[test]
    fn a_hub_that_writes_is_not_away_however_many_reports_wait() {
        let start = Instant::now();
        let (now, before) = (start + seconds(100), |wait: u64| Some(start + seconds(100 - wait)));
        let (writes, here) = (Some(HubAway::NotWriting), Some(HubAway::NotWritingHere));
        for (overdue, note, written, shop, bad) in [
            (true, "", before(0), Some(HubAway::NotRenewing), Some(HubAway::NotRenewing)),
            (false, "", None, None, None),
            (false, "29 s at noon", before(60), None, None),
            (false, "600 s at noon", before(29), None, None),
            (false, "30 s at noon", before(30), writes, writes),
            (false, "30 s at noon", None, writes, writes),
            (false, "0 s at noon, 30 s in bad", before(0), None, here),
            (false, "0 s at noon, 30 s in shop", before(0), None, None),
            (false, "0 s at noon, 29 s in bad", before(30), None, None),
        ] {
            let mut notes = ReplicaNotes::default();
            notes.observe(&[(waiting_reports::annotation_key("hub"), note.to_owned())].into(), now);
            // In namespace bad, nothing is written.
            let last_report = |namespace: Option<&str>| written.filter(|_| namespace != Some("bad"));
            let outage = Outage::new(overdue, &notes, last_report, now);
            assert_eq!((outage.cause("shop"), outage.cause("bad")), (shop, bad), "{overdue} {note} {written:?}");
        }
    }
}
