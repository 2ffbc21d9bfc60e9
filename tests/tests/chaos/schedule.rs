//! The schedule of faults: a function of the seed, so that a run can be repeated.

use std::collections::BTreeMap;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::faults::{Fault, Kind, opening_faults};

/// The time between the beginnings of two faults, in milliseconds.
const GAP_MILLIS: std::ops::Range<u64> = 300..3500;
/// The duration of a round of faults, after which the fleet has time to settle.
pub(crate) const ROUND_DURATION: Duration = Duration::from_secs(75);

/// A fault with its times, from the beginning of its round.
pub(crate) struct PlannedFault {
    pub(crate) at: Duration,
    pub(crate) fault: Box<dyn Fault>,
}

/// Plans the faults of a round, which all end within it. Nothing has two faults at once.
pub(crate) fn plan_round(seed: u64, number: u64, kinds: &[Kind]) -> Vec<PlannedFault> {
    let mut random = StdRng::seed_from_u64(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let (mut at, mut planned) = (Duration::ZERO, Vec::new());
    let mut busy: BTreeMap<String, Duration> = BTreeMap::new();
    if number == 0 {
        // Without a rollout of each kind a run would show little.
        for (after, fault) in opening_faults().into_iter().enumerate() {
            at = Duration::from_secs(after as u64);
            busy.extend(fault.affected_parts().into_iter().map(|part| (part, at + fault.duration())));
            planned.push(PlannedFault { at, fault });
        }
    }
    loop {
        at += Duration::from_millis(random.random_range(GAP_MILLIS));
        if at >= ROUND_DURATION || kinds.is_empty() {
            return planned;
        }
        let kind = pick_kind(kinds, &mut random);
        let fault = (kind.make)(&mut random);
        let parts = fault.affected_parts();
        let free = parts.iter().filter_map(|part| busy.get(part)).max();
        let begins = match free {
            // A fault that was requested by name may need so much that it waits until enough is free.
            Some(free) if kind.weight == 0 => at.max(*free + Duration::from_millis(1)),
            Some(free) if *free >= at => continue,
            _ => at,
        };
        let end = begins + fault.duration();
        if end <= ROUND_DURATION {
            at = begins;
            busy.extend(parts.into_iter().map(|part| (part, end)));
            planned.push(PlannedFault { at, fault });
        }
    }
}

/// Picks a kind, by its weight.
fn pick_kind<'a>(kinds: &'a [Kind], random: &mut StdRng) -> &'a Kind {
    let total: u32 = kinds.iter().map(|kind| kind.weight.max(1)).sum();
    let mut left = random.random_range(0..total);
    for kind in kinds {
        match left.checked_sub(kind.weight.max(1)) {
            Some(rest) => left = rest,
            None => return kind,
        }
    }
    &kinds[0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::KINDS;

    fn names(seed: u64) -> Vec<(Duration, String)> {
        plan_round(seed, 1, &KINDS).iter().map(|planned| (planned.at, planned.fault.name())).collect()
    }

    #[test]
    fn a_seed_is_a_schedule() {
        assert_eq!(names(7), names(7));
        assert_ne!(names(7), names(8));
    }

    #[test]
    fn a_kind_that_comes_up_only_by_name_does() {
        let named = ["version", "restore"];
        let kinds: Vec<Kind> = KINDS.into_iter().filter(|kind| named.contains(&kind.name)).collect();
        let restores =
            |seed| plan_round(seed, 1, &kinds).iter().any(|planned| planned.fault.name().starts_with("restore"));
        assert!((0..20).filter(|seed| restores(*seed)).count() > 10);
    }

    #[test]
    fn every_kind_comes_up_and_nothing_has_two_faults_at_once() {
        let mut seen_values: BTreeMap<String, usize> = BTreeMap::new();
        for seed in 0..50 {
            let planned = plan_round(seed, 0, &KINDS);
            for (index, fault) in planned.iter().enumerate() {
                *seen_values.entry(fault.fault.name().split(':').next().unwrap_or_default().to_owned()).or_default() +=
                    1;
                assert!(fault.at + fault.fault.duration() <= ROUND_DURATION);
                for other in &planned[..index] {
                    let same =
                        fault.fault.affected_parts().iter().any(|part| other.fault.affected_parts().contains(part));
                    assert!(!same || other.at + other.fault.duration() < fault.at, "{}", fault.fault.name());
                }
            }
        }
        let missing: Vec<_> =
            KINDS.iter().map(|kind| kind.name).filter(|name| !seen_values.contains_key(*name)).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
