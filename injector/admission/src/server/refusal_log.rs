//! The refusals that are written to the log. A user reads why a Deployment makes no pods, whatever happens in other
//! namespaces, and a client that posts reviews can't fill the disk.

use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use nudge_server::rates::{Rate, Rates};
use nudge_server::slots::Peer;

/// The rate of lines about one kind in one namespace: a rollout of a faulty template is seen whole.
const SUBJECT_RATE: Rate = Rate { per_second: 1, burst: 50 };
/// The maximum number of kinds in namespaces that are counted at a time. All others share one rate.
const MAX_SUBJECTS: usize = 1024;
/// The rate of lines about all that one address posts. Those of all namespaces come from the few addresses of the API
/// servers.
const ADDRESS_RATE: Rate = Rate { per_second: 20, burst: 400 };
/// The maximum number of addresses that are counted. All others share one rate.
const MAX_ADDRESSES: usize = 1024;

/// The bounds of the lines `request refused`.
pub(super) struct RefusalLog {
    /// The rates by the hash of a subject, which is short whatever a client names.
    by_subject: Rates<(Peer, u64)>,
    by_address: Rates<Peer>,
    hasher: RandomState,
    left_out: AtomicU64,
}

/// The objects concerned by a refusal.
#[derive(Clone, Copy, Debug, Hash)]
pub(super) struct RefusedObject<'a> {
    pub(super) kind: &'a str,
    /// The namespace; `None` for cluster-scoped objects.
    pub(super) namespace: Option<&'a str>,
}

impl RefusalLog {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            by_subject: Rates::new(SUBJECT_RATE, MAX_SUBJECTS, now),
            by_address: Rates::new(ADDRESS_RATE, MAX_ADDRESSES, now),
            hasher: RandomState::new(),
            left_out: AtomicU64::default(),
        }
    }

    /// Takes a line for a refusal. Returns the number of lines left out since the last written one; `None` if this line
    /// is left out, too.
    pub(super) fn take_line(&self, address: IpAddr, subject: RefusedObject<'_>, now: Instant) -> Option<u64> {
        let peer = Peer::from(address);
        // An address without lines left uses up no line of a subject, and such a subject no line of its address.
        let has_line = self.by_address.is_allowed(&peer, now)
            && self.by_subject.take((peer, self.hasher.hash_one(subject)), now)
            && self.by_address.take(peer, now);
        if has_line {
            return Some(self.left_out.swap(0, Ordering::Relaxed));
        }
        self.left_out.fetch_add(1, Ordering::Relaxed);
        None
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn address(number: u32) -> IpAddr {
        IpAddr::V4((0x0a00_0000 + number).into())
    }

    fn pods_in(namespace: &str) -> RefusedObject<'_> {
        RefusedObject { kind: "Pod", namespace: Some(namespace) }
    }

    #[test]
    fn a_namespace_with_many_refusals_has_a_line_a_second_and_takes_none_of_others() {
        let now = Instant::now();
        let log = RefusalLog::new(now);
        let written =
            |subject, at| -> Vec<_> { (0..1000).filter_map(|_| log.take_line(address(1), subject, at)).collect() };
        assert_eq!(written(pods_in("noisy"), now), [0; 50]);
        assert_eq!(log.take_line(address(1), pods_in("quiet"), now), Some(950), "another namespace of the same server");
        let config = RefusedObject { kind: "VersionedConfig", namespace: Some("noisy") };
        assert_eq!(log.take_line(address(1), config, now), Some(0), "another kind of the same namespace");
        let policy = RefusedObject { kind: "RolloutPolicy", namespace: None };
        assert_eq!(log.take_line(address(1), policy, now), Some(0), "an object of the cluster");
        assert_eq!(log.take_line(address(2), pods_in("noisy"), now), Some(0), "another server");
        assert_eq!(written(pods_in("noisy"), now + Duration::from_secs(1)), [0]);
        assert_eq!(written(pods_in("noisy"), now + Duration::from_secs(4)), [999, 0, 0]);
    }

    #[test]
    fn an_address_that_names_very_many_namespaces_has_a_bounded_number_of_lines() {
        let now = Instant::now();
        let log = RefusalLog::new(now);
        let names: Vec<_> = (0..20_000).map(|number| format!("forged-{number}")).collect();
        let written = |at| names.iter().filter(|name| log.take_line(address(1), pods_in(name), at).is_some()).count();
        assert_eq!(written(now), 400);
        for second in 1..=100 {
            assert_eq!(written(now + Duration::from_secs(second)), 20);
        }
        let quiet = log.take_line(address(2), pods_in("quiet"), now + Duration::from_secs(100));
        assert!(quiet.is_some(), "another address is heard");
    }

    #[test]
    fn very_many_addresses_have_a_bounded_number_of_lines() {
        let now = Instant::now();
        let log = RefusalLog::new(now);
        let written =
            (0..100_000).filter(|number| log.take_line(address(*number), pods_in("a"), now).is_some()).count();
        assert_eq!(written, MAX_SUBJECTS + 50);
    }
}
