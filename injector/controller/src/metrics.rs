//! Metrics of rollouts, counted by the leader. No label holds a name that users choose.

use k8s_openapi::jiff::Timestamp;
use nudge_api::{ConfigState, Reason, RolloutStage, VersionedConfigStatus};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

/// The metrics; cheap to clone.
#[derive(Clone, Debug)]
pub struct RolloutMetrics {
    ended: Family<Outcome, Counter>,
    took: Histogram,
    all_assigned: Histogram,
    restarted: Family<Outcome, Counter>,
    measured: Family<Outcome, Counter>,
}

impl Default for RolloutMetrics {
    fn default() -> Self {
        // From a second to nine hours, each twice the last.
        let seconds = || Histogram::new((0..16).map(|step| f64::from(1 << step)));
        Self {
            ended: family(&["current", "failed", "abandoned", "returned"]),
            took: seconds(),
            all_assigned: seconds(),
            restarted: family(&["restarted", "evicted", "failed", "refused"]),
            measured: family(&["number", "error"]),
        }
    }
}

/// All series from the start: a rate must include the first event.
fn family(outcomes: &[&'static str]) -> Family<Outcome, Counter> {
    let family = Family::<Outcome, Counter>::default();
    for outcome in outcomes {
        drop(family.get_or_create(&Outcome { outcome }));
    }
    family
}

/// How a rollout ended, and how long it took; or after which time the target was assigned to all pods.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Reached {
    ToEnd(&'static str, f64),
    ToAll(f64),
}

/// What a change of the status says of its rollout.
fn reached(before: &VersionedConfigStatus, after: &VersionedConfigStatus, now: Timestamp) -> Option<Reached> {
    let began = before.rollout.start_time.as_ref().or(after.rollout.start_time.as_ref())?;
    let seconds = now.duration_since(began.0).as_secs_f64().max(0.0);
    let all = |stage| matches!(stage, Some(RolloutStage::Baking | RolloutStage::Restarting));
    match (before.rollout.stage, after.rollout.stage) {
        (Some(RolloutStage::Returning), None) => Some(Reached::ToEnd("returned", seconds)),
        (Some(RolloutStage::Leaving), None) => Some(Reached::ToEnd("abandoned", seconds)),
        (Some(_), None) if after.state() == ConfigState::Failed => Some(Reached::ToEnd("failed", seconds)),
        (Some(_), None) => Some(Reached::ToEnd("current", seconds)),
        // A workload that is new during the bake is no second rollout.
        (None | Some(RolloutStage::Moving), stage) if all(stage) && after.pods.total > 0 => {
            Some(Reached::ToAll(seconds))
        }
        _ => None,
    }
}

impl RolloutMetrics {
    /// Registers the metrics.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("rollouts", "Rollouts that ended, by outcome", self.ended.clone());
        let help = "Time from the beginning of a rollout to its end";
        registry.register_with_unit("rollout_duration", help, Unit::Seconds, self.took.clone());
        let help = "Time from the beginning of a rollout until every pod runs the target and was watched";
        registry.register_with_unit("rollout_all_assigned", help, Unit::Seconds, self.all_assigned.clone());
        let help = "Restarts of workloads, and evictions of pods, that take a version so, by outcome";
        registry.register("restarted_workloads", help, self.restarted.clone());
        let help = "Answers of spec.rollout.analysis that the leader has read, by outcome: a number, or an error";
        registry.register("analysis_answers", help, self.measured.clone());
    }

    pub(super) fn changed(&self, before: &VersionedConfigStatus, after: &VersionedConfigStatus) {
        let failure = |status: &VersionedConfigStatus| status.rollout.failure.clone();
        if failure(after).is_some_and(|it| it.reason == Reason::RestartFailed) && failure(before) != failure(after) {
            self.restarted("failed");
        }
        match reached(before, after, Timestamp::now()) {
            Some(Reached::ToEnd(outcome, seconds)) => {
                self.ended.get_or_create(&Outcome { outcome }).inc();
                self.took.observe(seconds);
            }
            Some(Reached::ToAll(seconds)) => self.all_assigned.observe(seconds),
            None => {}
        }
    }

    pub(super) fn restarted(&self, outcome: &'static str) {
        self.restarted.get_or_create(&Outcome { outcome }).inc();
    }

    pub(super) fn measured(&self, numbers: u64, errors: u64) {
        for (outcome, count) in [("number", numbers), ("error", errors)] {
            self.measured.get_or_create(&Outcome { outcome }).inc_by(count);
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use nudge_api::{ConditionType, Release, ReleaseOutcome, condition};
    use serde_json::json;

    use super::*;

    #[test]
    fn an_end_is_counted_though_another_rollout_begins_in_the_same_write() {
        let second = |second: i64| Time(Timestamp::from_second(second).unwrap());
        let release = |outcome: Option<ReleaseOutcome>| {
            let release = Release::new("2", Some("1".to_owned()), second(10));
            Release { outcome, end_time: outcome.map(|_| second(15)), ..release }
        };
        for (stage, outcome, counted) in [
            (RolloutStage::Leaving, ReleaseOutcome::Left, "abandoned"),
            (RolloutStage::Returning, ReleaseOutcome::Returned, "returned"),
            (RolloutStage::RollingBack, ReleaseOutcome::RolledBack, "failed"),
            (RolloutStage::Restarting, ReleaseOutcome::Current, "current"),
        ] {
            let mut before =
                VersionedConfigStatus { releases: vec![release(None)], ..VersionedConfigStatus::default() };
            (before.rollout.stage, before.rollout.start_time) = (Some(stage), Some(second(10)));
            let next = Release::new("3", Some("1".to_owned()), second(15));
            let mut after = VersionedConfigStatus { releases: vec![release(Some(outcome)), next], ..before.clone() };
            after.rollout.stage = Some(RolloutStage::Moving);
            let metrics = RolloutMetrics::default();
            metrics.changed(&before, &after);
            metrics.changed(&after, &after);
            assert_eq!(metrics.ended.get_or_create(&Outcome { outcome: counted }).get(), 1, "{counted}");
        }
    }

    #[test]
    fn every_end_is_counted_once_with_its_time() {
        let status = |stage: Option<RolloutStage>, reason: Reason| {
            let (ready, time) = (reason == Reason::Current, Time(Timestamp::UNIX_EPOCH));
            let conditions = vec![condition(ConditionType::Ready, ready, reason, "", None, &time)];
            let mut status = VersionedConfigStatus { conditions, ..VersionedConfigStatus::default() };
            let failure = json!({"version": "2", "reason": "PodNotReady", "message": "m"});
            let failed = matches!(reason, Reason::Failed | Reason::RollingBack);
            status.rollout.failure = failed.then(|| serde_json::from_value(failure).unwrap());
            status.rollout.stage = stage;
            status.rollout.start_time = stage.map(|_| Time(Timestamp::from_second(10).unwrap()));
            status.pods.total = 1;
            status
        };
        let now = Timestamp::from_second(15).unwrap();
        let moving = status(Some(RolloutStage::Moving), Reason::Progressing);
        let baking = status(Some(RolloutStage::Baking), Reason::Baking);
        let back = status(Some(RolloutStage::RollingBack), Reason::RollingBack);
        let leaving = status(Some(RolloutStage::Leaving), Reason::Leaving);
        let returning = status(Some(RolloutStage::Returning), Reason::Leaving);
        let (current, failed) = (status(None, Reason::Current), status(None, Reason::Failed));
        assert_eq!(reached(&current, &moving, now), None);
        assert_eq!(reached(&moving, &baking, now), Some(Reached::ToAll(5.0)));
        assert_eq!(reached(&baking, &current, now), Some(Reached::ToEnd("current", 5.0)));
        assert_eq!(reached(&moving, &back, now), None);
        assert_eq!(reached(&back, &failed, now), Some(Reached::ToEnd("failed", 5.0)));
        assert_eq!(reached(&leaving, &current, now), Some(Reached::ToEnd("abandoned", 5.0)));
        assert_eq!(reached(&returning, &current, now), Some(Reached::ToEnd("returned", 5.0)));
        assert_eq!(reached(&current, &current, now), None);
    }
}
