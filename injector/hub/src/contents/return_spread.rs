//! Spreads the return of many pods to an earlier version over time: healthy pods are notified later. Does no I/O.

use std::time::Duration;

use nudge_api::VersionedConfig;
use nudge_core::identity::Identity;
use nudge_core::pods::PodState;
use nudge_core::rollout::pod_number;

/// The default period of a return, for each pod that restarts in place.
const DEFAULT_PERIOD_PER_POD: Duration = Duration::from_secs(2);
/// The maximum default period of a return.
const MAX_DEFAULT_PERIOD: Duration = Duration::from_secs(30);

/// Returns how much longer the pod waits (`spec.rollout.rollbackSpreadSeconds`) when `elapsed` has passed since this
/// replica first saw the return, so that no clock is compared with another.
pub(super) fn remaining_delay(config: &VersionedConfig, pod: &PodState, elapsed: Duration) -> Option<Duration> {
    let status = config.status.as_ref()?;
    let period = match config.spec.rollout.rollback_spread_seconds {
        Some(seconds) => Duration::from_secs(seconds.into()),
        None if pod.is_in_place() => (DEFAULT_PERIOD_PER_POD * status.pods.total).min(MAX_DEFAULT_PERIOD),
        None => Duration::ZERO,
    };
    if !status.rollout.is_return() || period.is_zero() || !pod.is_ready() || !pod.containers_ready {
        return None;
    }
    let share = f64::from(pod_number(Identity::of(config), &pod.uid)) / f64::from(u32::MAX);
    period.mul_f64(share).checked_sub(elapsed).filter(|delay| !delay.is_zero())
}

#[cfg(test)]
mod tests {
    use nudge_api::{RolloutStage, VersionedConfigSpec, VersionedConfigStatus};
    use nudge_core::keys::PodUid;
    use nudge_core::pods::{Readiness, UpdateMode};

    use super::*;

    #[test]
    fn pods_that_were_not_harmed_are_notified_of_a_return_one_after_the_other() {
        let after = Duration::from_secs;
        let mut config = VersionedConfig::new("shop", VersionedConfigSpec::default());
        let mut status = VersionedConfigStatus::default();
        status.rollout.stage = Some(RolloutStage::RollingBack);
        config.status = Some(status);
        config.spec.rollout.rollback_spread_seconds = Some(10);
        let pod = |number: u32| PodState {
            uid: PodUid::new(&format!("pod-{number}")).unwrap(),
            readiness: Readiness::Ready,
            containers_ready: true,
            ..PodState::default()
        };
        let delays = |config: &VersionedConfig, seconds| -> Vec<Option<Duration>> {
            (0..100).map(|number| remaining_delay(config, &pod(number), after(seconds))).collect()
        };
        let waits: Vec<Duration> = delays(&config, 0).into_iter().flatten().collect();
        assert!(waits.len() == 100 && waits.iter().all(|delay| *delay < Duration::from_secs(10)));
        let early = waits.iter().filter(|delay| **delay < Duration::from_secs(5)).count();
        assert!((30..70).contains(&early), "{early}");
        assert_eq!(delays(&config, 5).iter().flatten().count(), 100 - early);
        assert_eq!(delays(&config, 10).iter().flatten().count(), 0);
        let harmed = PodState { containers_ready: false, ..pod(1) };
        assert_eq!(remaining_delay(&config, &harmed, after(0)), None, "it is notified at once");
        config.status.as_mut().unwrap().rollout.stage = Some(RolloutStage::Moving);
        assert_eq!(remaining_delay(&config, &pod(1), after(0)), None);
    }

    #[test]
    fn without_a_word_only_pods_that_restart_in_place_return_one_after_the_other() {
        let mut config = VersionedConfig::new("shop", VersionedConfigSpec::default());
        let mut status = VersionedConfigStatus::default();
        status.rollout.stage = Some(RolloutStage::RollingBack);
        config.status = Some(status);
        let longest = |config: &VersionedConfig, in_place| {
            let pod = |number: u32| PodState {
                uid: PodUid::new(&format!("pod-{number}")).unwrap(),
                readiness: Readiness::Ready,
                containers_ready: true,
                update_mode: if in_place { UpdateMode::InPlace } else { UpdateMode::Live },
                ..PodState::default()
            };
            (0..100).filter_map(|number| remaining_delay(config, &pod(number), Duration::ZERO)).max()
        };
        for (total, within) in [(1, 2), (5, 10), (10_000, 30)] {
            config.status.as_mut().unwrap().pods.total = total;
            assert_eq!(longest(&config, false), None);
            let longest = longest(&config, true).unwrap();
            let within = Duration::from_secs(within);
            assert!(longest < within && longest > within.mul_f64(0.8), "{total}: {longest:?}");
        }
        config.spec.rollout.rollback_spread_seconds = Some(0);
        assert_eq!(longest(&config, true), None);
    }
}
