//! How often numbers of pods are written into the status of configs: they change with every report, and move nothing.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use nudge_api::{RolloutStatus, VersionedConfigStatus};
use nudge_core::keys::ConfigKey;

/// Time between two writes of one config that bring numbers alone.
const OF_ONE: Duration = Duration::from_secs(2);
/// The same of all configs.
const OF_ALL: Duration = Duration::from_millis(50);

/// Whether the status says more than other numbers: what a write must not wait for others for.
pub(super) fn is_more_than_numbers(before: &VersionedConfigStatus, after: &VersionedConfigStatus) -> bool {
    let rollout = |status: &VersionedConfigStatus| RolloutStatus { evidence: None, ..status.rollout.clone() };
    let conditions = |status: &VersionedConfigStatus| {
        let all = status.conditions.iter();
        all.map(|it| (it.type_.clone(), it.status.clone(), it.reason.clone(), it.observed_generation))
            .collect::<Vec<_>>()
    };
    let VersionedConfigStatus {
        observed_generation,
        desired_version,
        current_version,
        target_version,
        previous_version,
        published_version,
        publish_time,
        published_secret_version,
        secret_publish_time,
        pods: _,
        versions,
        invalid,
        rollout: _,
        releases,
        conditions: _,
        // Also an hour of watching, which the evidence does not have any more.
        internal,
    } = after;
    (observed_generation, desired_version, current_version, target_version, previous_version)
        != (
            &before.observed_generation,
            &before.desired_version,
            &before.current_version,
            &before.target_version,
            &before.previous_version,
        )
        || (published_version, publish_time) != (&before.published_version, &before.publish_time)
        || (published_secret_version, secret_publish_time)
            != (&before.published_secret_version, &before.secret_publish_time)
        || (versions, invalid, releases) != (&before.versions, &before.invalid, &before.releases)
        || internal != &before.internal
        || rollout(before) != rollout(after)
        || conditions(before) != conditions(after)
}

/// The turns of all configs.
#[derive(Default)]
pub(super) struct Counting {
    configs: HashMap<ConfigKey, Turn>,
    /// When the next turn is free.
    free: Option<Instant>,
}

#[derive(Clone, Copy, Default)]
struct Turn {
    written: Option<Instant>,
    /// The turn that it waits for.
    at: Option<Instant>,
}

impl Counting {
    /// Whether numbers of the config may be written now; else, when to ask again. A turn that it was given stays its own.
    pub(super) fn turn(&mut self, key: &ConfigKey, now: Instant) -> Result<(), Duration> {
        let turn = self.configs.entry(key.clone()).or_default();
        let at = if let Some(at) = turn.at {
            at
        } else {
            if let Some(early) = turn.written.map(|at| at + OF_ONE).filter(|at| *at > now) {
                return Err(early - now);
            }
            let at = self.free.map_or(now, |free| free.max(now));
            self.free = Some(at + OF_ALL);
            *turn.at.insert(at)
        };
        if at > now {
            return Err(at - now);
        }
        *turn = Turn { written: Some(now), at: None };
        Ok(())
    }

    /// The status of the config was written for more than numbers, which it brought too.
    pub(super) fn written(&mut self, key: &ConfigKey, now: Instant) {
        self.configs.insert(key.clone(), Turn { written: Some(now), at: None });
    }

    pub(super) fn forget(&mut self, key: &ConfigKey) {
        self.configs.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::Timestamp;
    use nudge_api::{BackgroundStatus, EvidenceStatus, PodCounts, RolloutStage};
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_alone_move_nothing() {
        let condition = |status: &str, message: &str| {
            json!([{"type": "Ready", "status": status, "reason": "Progressing", "message": message,
                    "lastTransitionTime": "2026-01-01T00:00:00Z"}])
        };
        let mut before =
            VersionedConfigStatus { current_version: Some("1".to_owned()), ..VersionedConfigStatus::default() };
        before.conditions = serde_json::from_value(condition("False", "3 of 40 pods")).unwrap();
        let mut numbers = before.clone();
        numbers.pods = PodCounts { total: 40, on_target: 4, ..PodCounts::default() };
        numbers.rollout.evidence = Some(EvidenceStatus { assigned: 4, ..EvidenceStatus::default() });
        numbers.conditions = serde_json::from_value(condition("False", "4 of 40 pods")).unwrap();
        assert!(!is_more_than_numbers(&before, &numbers) && !is_more_than_numbers(&before, &before));
        let more: [fn(&mut VersionedConfigStatus); 7] = [
            |status| status.target_version = Some("2".to_owned()),
            |status| status.internal.revision = 1,
            |status| status.rollout.stage = Some(RolloutStage::RollingBack),
            |status| status.internal.yields = true,
            |status| status.observed_generation = Some(2),
            |status| status.conditions[0].status = "True".to_owned(),
            |status| {
                let start_time = Time(Timestamp::UNIX_EPOCH);
                status.internal.background = Some(BackgroundStatus { start_time, pod_seconds: 3600, harmed: 0 });
            },
        ];
        for change in more {
            let mut changed = numbers.clone();
            change(&mut changed);
            assert!(is_more_than_numbers(&before, &changed), "{changed:?}");
        }
    }

    #[test]
    fn numbers_are_written_every_two_seconds_and_twenty_times_a_second_in_turns() {
        let (mut counting, began) = (Counting::default(), Instant::now());
        let keys: Vec<ConfigKey> =
            (0..200).map(|number| ConfigKey::parse("ns", &format!("c{number}")).unwrap()).collect();
        let mut writes: Vec<Vec<u64>> = vec![Vec::new(); keys.len()];
        let mut all = Vec::new();
        // Each of them changes every 10 ms, for a minute.
        for millis in (0..60_000).step_by(10) {
            for (key, writes) in keys.iter().zip(&mut writes) {
                if counting.turn(key, began + Duration::from_millis(millis)).is_ok() {
                    writes.push(millis);
                    all.push(millis);
                }
            }
        }
        for second in 0..60 {
            let count = all.iter().filter(|at| **at / 1000 == second).count();
            assert!((19..=21).contains(&count), "{count} in second {second}");
        }
        assert!(writes.iter().all(|writes| (5..=7).contains(&writes.len())), "each has its turns");
        // One alone.
        let key = ConfigKey::parse("ns", "alone").unwrap();
        let later = began + Duration::from_mins(2);
        counting.written(&key, later);
        assert_eq!(counting.turn(&key, later), Err(OF_ONE), "what was written a moment ago has them");
        let times = (0..10_000).filter(|at| counting.turn(&key, later + Duration::from_millis(*at)).is_ok()).count();
        assert_eq!(times, 4);
    }
}
