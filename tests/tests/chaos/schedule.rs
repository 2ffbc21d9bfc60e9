//! What is done to the fleet and when: a function of the seed, so that a run can be tried again.

use std::collections::BTreeMap;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::faults::{Fault, Kind, opening};

/// Between two faults.
const GAP: std::ops::Range<u64> = 300..3500;
/// How long faults go on before everything is given time to find its place.
pub(crate) const ROUND: Duration = Duration::from_secs(75);

/// A fault with its times, from the beginning of its round.
pub(crate) struct Planned {
    pub(crate) at: Duration,
    pub(crate) fault: Box<dyn Fault>,
}

/// The faults of a round, which all end within it, but for those that take no time. Nothing has two faults at once.
pub(crate) fn round(seed: u64, number: u64, kinds: &[Kind]) -> Vec<Planned> {
    let mut random = StdRng::seed_from_u64(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let (mut at, mut planned) = (Duration::ZERO, Vec::new());
    let mut busy: BTreeMap<String, Duration> = BTreeMap::new();
    if number == 0 {
        // Without a rollout of each kind a run would show little.
        for (after, fault) in opening().into_iter().enumerate() {
            at = Duration::from_secs(after as u64);
            busy.extend(fault.parts().into_iter().map(|part| (part, at + fault.lasts())));
            planned.push(Planned { at, fault });
        }
    }
    loop {
        at += Duration::from_millis(random.random_range(GAP));
        if at >= ROUND || kinds.is_empty() {
            return planned;
        }
        let kind = pick(kinds, &mut random);
        let fault = (kind.make)(&mut random);
        let parts = fault.parts();
        let free = parts.iter().filter_map(|part| busy.get(part)).max();
        let begins = match free {
            // It was asked for by name, and needs so much that it waits until that is free.
            Some(free) if kind.weight == 0 => at.max(*free + Duration::from_millis(1)),
            Some(free) if *free >= at => continue,
            _ => at,
        };
        let end = begins + fault.lasts();
        if end <= ROUND {
            at = begins;
            busy.extend(parts.into_iter().map(|part| (part, end)));
            planned.push(Planned { at, fault });
        }
    }
}

/// A kind, by its weight.
fn pick<'a>(kinds: &'a [Kind], random: &mut StdRng) -> &'a Kind {
    let all: u32 = kinds.iter().map(|kind| kind.weight.max(1)).sum();
    let mut left = random.random_range(0..all);
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
        round(seed, 1, &KINDS).iter().map(|planned| (planned.at, planned.fault.name())).collect()
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
        let restores = |seed| round(seed, 1, &kinds).iter().any(|planned| planned.fault.name().starts_with("restore"));
        assert!((0..20).filter(|seed| restores(*seed)).count() > 10);
    }

    #[test]
    fn every_kind_comes_up_and_nothing_has_two_faults_at_once() {
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        for seed in 0..50 {
            let planned = round(seed, 0, &KINDS);
            for (index, one) in planned.iter().enumerate() {
                *seen.entry(one.fault.name().split(':').next().unwrap_or_default().to_owned()).or_default() += 1;
                assert!(one.at + one.fault.lasts() <= ROUND);
                for other in &planned[..index] {
                    let same = one.fault.parts().iter().any(|part| other.fault.parts().contains(part));
                    assert!(!same || other.at + other.fault.lasts() < one.at, "{}", one.fault.name());
                }
            }
        }
        let missing: Vec<_> = KINDS.iter().map(|kind| kind.name).filter(|name| !seen.contains_key(*name)).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
