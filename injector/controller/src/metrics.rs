//! Figures of rollouts, counted by the leader. No label holds anything that users name.

use k8s_openapi::jiff::Timestamp;
use nudge_api::{Phase, RolloutStage, VersionedConfigStatus};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

/// The figures; cheap to clone.
#[derive(Clone, Debug)]
pub struct RolloutMetrics {
    ended: Family<Outcome, Counter>,
    took: Histogram,
    told: Histogram,
    restarted: Family<Outcome, Counter>,
    refreshed: Family<Outcome, Counter>,
}

impl Default for RolloutMetrics {
    fn default() -> Self {
        // From a second in steps of two to nine hours.
        let seconds = || Histogram::new((0..16).map(|step| f64::from(1 << step)));
        Self {
            ended: family(&["current", "failed", "abandoned", "returned"]),
            took: seconds(),
            told: seconds(),
            restarted: family(&["restarted", "evicted", "failed", "refused"]),
            refreshed: family(&["done", "failed"]),
        }
    }
}

/// All series from the start, so that a rate over the first event is not missed.
fn family(outcomes: &[&'static str]) -> Family<Outcome, Counter> {
    let family = Family::<Outcome, Counter>::default();
    for outcome in outcomes {
        drop(family.get_or_create(&Outcome { outcome }));
    }
    family
}

/// How a rollout ended, and how long it took; or after which time all pods were told.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Came {
    ToEnd(&'static str, f64),
    ToAll(f64),
}

/// What a change of the status says of its rollout. Pure.
fn came(before: &VersionedConfigStatus, after: &VersionedConfigStatus, now: Timestamp) -> Option<Came> {
    let began = before.rollout.began_at.as_ref().or(after.rollout.began_at.as_ref())?;
    let seconds = now.duration_since(began.0).as_secs_f64().max(0.0);
    let all = |stage| matches!(stage, Some(RolloutStage::Baking | RolloutStage::Restarting));
    match (before.rollout.stage, after.rollout.stage) {
        (Some(RolloutStage::Leaving), None) if before.phase == Phase::RollingBack => {
            Some(Came::ToEnd("returned", seconds))
        }
        (Some(RolloutStage::Leaving), None) => Some(Came::ToEnd("abandoned", seconds)),
        (Some(_), None) if after.phase == Phase::Failed => Some(Came::ToEnd("failed", seconds)),
        (Some(_), None) => Some(Came::ToEnd("current", seconds)),
        // A workload that is new while the others are watched is no second rollout.
        (None | Some(RolloutStage::Moving), stage) if all(stage) && after.pods.total > 0 => Some(Came::ToAll(seconds)),
        _ => None,
    }
}

impl RolloutMetrics {
    /// Registers the figures.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("rollouts", "Rollouts that ended, by outcome", self.ended.clone());
        let help = "Time from the beginning of a rollout to its end";
        registry.register_with_unit("rollout_duration", help, Unit::Seconds, self.took.clone());
        let help = "Time from the beginning of a rollout until every pod runs the target and was watched";
        registry.register_with_unit("rollout_all_assigned", help, Unit::Seconds, self.told.clone());
        let help = "Restarts of workloads, and evictions of pods, that take a version so, by outcome";
        registry.register("restarted_workloads", help, self.restarted.clone());
        registry.register(
            "refreshed_pods",
            "Pods whose volumes the kubelet was made to read again",
            self.refreshed.clone(),
        );
    }

    pub(super) fn changed(&self, before: &VersionedConfigStatus, after: &VersionedConfigStatus) {
        let failure = |status: &VersionedConfigStatus| status.rollout.failure.clone();
        if failure(after).is_some_and(|it| it.reason == "RestartFailed") && failure(before) != failure(after) {
            self.restarted("failed");
        }
        match came(before, after, Timestamp::now()) {
            Some(Came::ToEnd(outcome, seconds)) => {
                self.ended.get_or_create(&Outcome { outcome }).inc();
                self.took.observe(seconds);
            }
            Some(Came::ToAll(seconds)) => self.told.observe(seconds),
            None => {}
        }
    }

    pub(super) fn restarted(&self, outcome: &'static str) {
        self.restarted.get_or_create(&Outcome { outcome }).inc();
    }

    pub(super) fn refreshed(&self, outcome: &'static str) {
        self.refreshed.get_or_create(&Outcome { outcome }).inc();
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    #[test]
    fn every_end_is_counted_once_with_its_time() {
        let status = |stage: Option<RolloutStage>, phase| {
            let mut status = VersionedConfigStatus { phase, ..VersionedConfigStatus::default() };
            status.rollout.stage = stage;
            status.rollout.began_at = stage.map(|_| Time(Timestamp::from_second(10).unwrap()));
            status.pods.total = 1;
            status
        };
        let now = Timestamp::from_second(15).unwrap();
        let moving = status(Some(RolloutStage::Moving), Phase::Progressing);
        let baking = status(Some(RolloutStage::Baking), Phase::Progressing);
        let back = status(Some(RolloutStage::RollingBack), Phase::RollingBack);
        let leaving = status(Some(RolloutStage::Leaving), Phase::Progressing);
        let returning = status(Some(RolloutStage::Leaving), Phase::RollingBack);
        let (current, failed) = (status(None, Phase::Current), status(None, Phase::Failed));
        assert_eq!(came(&current, &moving, now), None);
        assert_eq!(came(&moving, &baking, now), Some(Came::ToAll(5.0)));
        assert_eq!(came(&baking, &current, now), Some(Came::ToEnd("current", 5.0)));
        assert_eq!(came(&moving, &back, now), None);
        assert_eq!(came(&back, &failed, now), Some(Came::ToEnd("failed", 5.0)));
        assert_eq!(came(&leaving, &current, now), Some(Came::ToEnd("abandoned", 5.0)));
        assert_eq!(came(&returning, &current, now), Some(Came::ToEnd("returned", 5.0)));
        assert_eq!(came(&current, &current, now), None);
    }
}
