//! The metrics of the leader: of its loop, of repair and of rollouts. No label holds a name that users choose.

use k8s_openapi::jiff::Timestamp;
use nudge_api::{Reason, ReleaseOutcome, RolloutStage, VersionedConfigStatus};
use nudge_core::rollout::newly_ended_releases;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// What the controllers of the leader count and measure.
#[derive(Clone, Debug, Default)]
pub struct ControllerMetrics {
    pub(super) leader: Gauge,
    pub(super) waiting: Gauge,
    pub(super) reconciles: Counter,
    pub(super) failures: Counter,
}

impl ControllerMetrics {
    /// Registers the metrics.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("leader", "1 while this replica leads, else 0", self.leader.clone());
        registry.register("queue", "Configs that wait for a reconcile", self.waiting.clone());
        registry.register("reconciliations", "Reconciles of configs", self.reconciles.clone());
        registry.register("reconciliation_failures", "Reconciles of configs that failed", self.failures.clone());
    }
}

/// The metrics of the repair loop, without labels: the names of namespaces have no bound.
#[derive(Clone, Debug, Default)]
pub struct RepairMetrics {
    pub(super) agentless: Gauge,
    pub(super) scans: Counter,
    pub(super) evicted: Counter,
    pub(super) failures: Counter,
}

impl RepairMetrics {
    /// Registers the metrics.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("pods_without_agent", "Pods that opt in but have no agent", self.agentless.clone());
        registry.register(
            "repair_scans",
            "Scans of all enabled namespaces for pods without an agent",
            self.scans.clone(),
        );
        registry.register("repair_evictions", "Pods evicted because they had no agent", self.evicted.clone());
        registry.register("repair_failures", "Namespaces that could not be scanned", self.failures.clone());
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

/// The metrics of rollouts; cheap to clone.
#[derive(Clone, Debug)]
pub struct RolloutMetrics {
    ended: Family<OutcomeLabel, Counter>,
    durations: Histogram,
    all_assigned: Histogram,
    restarts: Family<OutcomeLabel, Counter>,
    answers: Family<OutcomeLabel, Counter>,
    pub(super) outdated_reconciles: Counter,
}

impl Default for RolloutMetrics {
    fn default() -> Self {
        // From a second to nine hours, each twice the last.
        let seconds = || Histogram::new((0..16).map(|step| f64::from(1 << step)));
        Self {
            ended: family_of(&["current", "failed", "abandoned", "returned"]),
            durations: seconds(),
            all_assigned: seconds(),
            restarts: family_of(&["restarted", "evicted", "failed", "refused"]),
            answers: family_of(&["number", "error"]),
            outdated_reconciles: Counter::default(),
        }
    }
}

/// Returns a family that has all series from the start: a rate must include the first event.
fn family_of(outcomes: &[&'static str]) -> Family<OutcomeLabel, Counter> {
    let family = Family::<OutcomeLabel, Counter>::default();
    for outcome in outcomes {
        drop(family.get_or_create(&OutcomeLabel { outcome }));
    }
    family
}

/// Returns the seconds until the target was assigned to all pods, if this change of the status assigns it.
fn seconds_until_all_assigned(
    before: &VersionedConfigStatus,
    after: &VersionedConfigStatus,
    now: Timestamp,
) -> Option<f64> {
    let began = before.rollout.start_time.as_ref().or(after.rollout.start_time.as_ref())?;
    let assigns_all = |stage| matches!(stage, Some(RolloutStage::Baking | RolloutStage::Restarting));
    // A workload that is new during the bake does not make a second rollout.
    let moves = matches!(before.rollout.stage, None | Some(RolloutStage::Moving));
    (moves && assigns_all(after.rollout.stage) && after.pods.total > 0).then(|| seconds(began.0, now))
}

/// Returns the outcome and the seconds of each rollout that ended in this change of the status. Another one may begin
/// in the same write.
fn ended_rollouts<'a>(
    before: &'a VersionedConfigStatus,
    after: &'a VersionedConfigStatus,
) -> impl Iterator<Item = (&'static str, f64)> + 'a {
    // The first version of a config is not rolled out.
    let moved =
        newly_ended_releases(&before.releases, &after.releases).filter(|release| release.from_version.is_some());
    moved.filter_map(|release| {
        let outcome = match release.outcome? {
            ReleaseOutcome::Current => "current",
            ReleaseOutcome::RolledBack | ReleaseOutcome::Held => "failed",
            ReleaseOutcome::Left => "abandoned",
            ReleaseOutcome::Returned => "returned",
        };
        Some((outcome, seconds(release.start_time.0, release.end_time.as_ref()?.0)))
    })
}

fn seconds(began: Timestamp, now: Timestamp) -> f64 {
    now.duration_since(began).as_secs_f64().max(0.0)
}

impl RolloutMetrics {
    /// Registers the metrics.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("rollouts", "Rollouts that ended, by outcome", self.ended.clone());
        let help = "Time from the beginning of a rollout to its end";
        registry.register_with_unit("rollout_duration", help, Unit::Seconds, self.durations.clone());
        let help = "Time from the beginning of a rollout until every pod runs the target and was watched";
        registry.register_with_unit("rollout_all_assigned", help, Unit::Seconds, self.all_assigned.clone());
        let help = "Restarts of workloads, and evictions of pods, for a version, by outcome";
        registry.register("restarted_workloads", help, self.restarts.clone());
        let help = "Answers of spec.rollout.analysis that the leader has read, by outcome: a number, or an error";
        registry.register("analysis_answers", help, self.answers.clone());
        let help = "Reconciles of configs for which the API server did not have the objects that the watches had shown";
        registry.register("outdated_looks", help, self.outdated_reconciles.clone());
    }

    pub(super) fn count_change(&self, before: &VersionedConfigStatus, after: &VersionedConfigStatus) {
        let failure = |status: &VersionedConfigStatus| status.rollout.failure.clone();
        if failure(after).is_some_and(|failure| failure.reason == Reason::RestartFailed)
            && failure(before) != failure(after)
        {
            self.count_restart("failed");
        }
        for (outcome, seconds) in ended_rollouts(before, after) {
            self.ended.get_or_create(&OutcomeLabel { outcome }).inc();
            self.durations.observe(seconds);
        }
        if let Some(seconds) = seconds_until_all_assigned(before, after, Timestamp::now()) {
            self.all_assigned.observe(seconds);
        }
    }

    pub(super) fn count_restart(&self, outcome: &'static str) {
        self.restarts.get_or_create(&OutcomeLabel { outcome }).inc();
    }

    pub(super) fn count_answers(&self, numbers: u64, errors: u64) {
        for (outcome, count) in [("number", numbers), ("error", errors)] {
            self.answers.get_or_create(&OutcomeLabel { outcome }).inc_by(count);
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use nudge_api::Release;

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
            metrics.count_change(&before, &after);
            metrics.count_change(&after, &after);
            assert_eq!(metrics.ended.get_or_create(&OutcomeLabel { outcome: counted }).get(), 1, "{counted}");
        }
    }

    #[test]
    fn that_all_pods_have_the_target_is_counted_once() {
        let status = |stage: Option<RolloutStage>| {
            let mut status = VersionedConfigStatus::default();
            status.rollout.stage = stage;
            status.rollout.start_time = stage.map(|_| Time(Timestamp::from_second(10).unwrap()));
            status.pods.total = 1;
            status
        };
        let now = Timestamp::from_second(15).unwrap();
        let [current, moving, baking, restarting] =
            [None, Some(RolloutStage::Moving), Some(RolloutStage::Baking), Some(RolloutStage::Restarting)].map(status);
        let all = |before, after| seconds_until_all_assigned(before, after, now);
        assert_eq!((all(&current, &moving), all(&moving, &baking)), (None, Some(5.0)));
        assert_eq!((all(&current, &restarting), all(&baking, &restarting)), (Some(5.0), None));
        assert_eq!((all(&baking, &current), all(&current, &current)), (None, None));
    }
}
