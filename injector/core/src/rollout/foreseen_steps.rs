//! The course of a move, as far as it can be foreseen: the step of each pod, and how long each step takes at least.
//! Pods come and go between steps, so the course can change.

use std::time::Duration;

use nudge_api::{Pods, RolloutSpec, Step, Watch};

use super::judgement::step_watch;
use super::{Subject, Thresholds};
use crate::analysis::answer_period;

/// A step of a move that has not begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedStep {
    /// The number of the step, from 1.
    pub number: usize,
    /// The name of the step in the spec.
    pub name: Option<String>,
    /// The indexes of the pods that the step assigns the target.
    pub pods: Vec<usize>,
    /// The number of parts that go out one after the other, because pods restart in place. 0 if the step changes
    /// nothing.
    pub parts: u32,
    /// The number of healthy pods that have the target after the step. Without any, nobody can judge the target.
    pub healthy: usize,
    /// How long the step is watched, and why.
    pub watch: Watch,
    /// How long the next step waits in addition, in seconds.
    pub pause_seconds: u32,
}

/// The time that a move takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MoveTime {
    /// The time that steps are watched, paused and measured, and the bake: the move takes no less.
    pub least: Duration,
    /// The time that pods have in addition to acknowledge the target in all steps together.
    pub acknowledgement: Duration,
}

/// Returns the steps that assign the target to these pods if the move begins now. `now` is in seconds since 1970.
pub fn planned_steps(spec: &RolloutSpec, pods: &[Subject], now: i64) -> Vec<PlannedStep> {
    let last_step = Step::of(Pods::Share("100%".to_owned()));
    let mut course = Course { pods, now, min_ready_seconds: spec.min_ready_seconds, thresholds: Thresholds::default() };
    let mut planned = Vec::new();
    for (step, number) in spec.steps.iter().chain([&last_step]).zip(1..) {
        planned.push(course.take(step, number));
        if course.thresholds.is_all() {
            break;
        }
    }
    planned
}

/// Returns the step that assigns the target to all pods at once, as an override does.
pub fn planned_at_once(spec: &RolloutSpec, pods: &[Subject], now: i64) -> PlannedStep {
    let thresholds = Thresholds::all();
    let course = Course { pods, now, min_ready_seconds: spec.min_ready_seconds, thresholds };
    let (watch, healthy) = course.watch(1);
    PlannedStep { number: 1, name: None, pods: (0..pods.len()).collect(), parts: 1, healthy, watch, pause_seconds: 0 }
}

/// Returns the time that these steps and the bake take.
pub fn move_time(spec: &RolloutSpec, steps: &[PlannedStep]) -> MoveTime {
    let (mut least, mut pause, mut parts) = (0_u64, 0, 0_u64);
    for (index, step) in steps.iter().enumerate() {
        let is_judged = step.healthy > 0;
        let watch = if is_judged { u64::from(step.watch.seconds).max(measured_seconds(spec, index == 0)) } else { 0 };
        let bake = if is_judged { u64::from(spec.bake_seconds) } else { 0 };
        if step.parts > 0 {
            // A step that changes nothing shares the watch, and the longest pause, of the step before.
            least += std::mem::take(&mut pause) + watch * u64::from(step.parts);
            parts += if step.pods.is_empty() { 0 } else { u64::from(step.parts) };
        }
        if index + 1 == steps.len() {
            least += bake.saturating_sub(watch);
        } else {
            pause = pause.max(u64::from(step.pause_seconds));
        }
    }
    let acknowledgement = Duration::from_secs(parts * u64::from(spec.ack_timeout_seconds));
    MoveTime { least: Duration::from_secs(least), acknowledgement }
}

/// Returns how long the analyses of a step take at least, in seconds.
fn measured_seconds(spec: &RolloutSpec, is_first_step: bool) -> u64 {
    let seconds = spec.analysis.iter().map(|analysis| {
        let answers = if is_first_step { analysis.failures.max(1) } else { 1 };
        answer_period(analysis).as_secs() * u64::from(answers)
    });
    seconds.max().unwrap_or(0)
}

/// The course of a move so far.
struct Course<'a> {
    pods: &'a [Subject],
    now: i64,
    min_ready_seconds: u32,
    thresholds: Thresholds,
}

impl Course<'_> {
    fn take(&mut self, step: &Step, number: usize) -> PlannedStep {
        let before = self.thresholds.clone();
        let mut parts = 0;
        loop {
            let next = self.next_part(step);
            if next == self.thresholds {
                break;
            }
            (self.thresholds, parts) = (next, parts + 1);
        }
        let is_new = |pod: &Subject| self.thresholds.is_assigned(pod) && !before.is_assigned(pod);
        let pods = self.pods.iter().enumerate().filter(|(_, pod)| is_new(pod)).map(|(index, _)| index).collect();
        let (watch, healthy) = self.watch(number);
        let (name, pause_seconds) = (step.name.clone(), step.pause_seconds);
        PlannedStep { number, name, pods, parts, healthy, watch, pause_seconds }
    }

    /// Returns the thresholds after one more part of the step. Without a selector, a step continues to its first
    /// healthy pod.
    fn next_part(&self, step: &Step) -> Thresholds {
        let next = self.thresholds.raise_in_part(self.pods, &step.pods, step.selector.as_ref());
        let healthy = || self.pods.iter().filter(|pod| pod.is_healthy(self.now));
        if step.selector.is_some() || healthy().next().is_none() || healthy().any(|pod| next.is_assigned(pod)) {
            return next;
        }
        next.with_judge(self.pods, None, |pod| pod.is_healthy(self.now))
    }

    /// Returns how long the pods with the target are watched, and how many of them are healthy. Without a healthy one,
    /// the time is that of all pods.
    fn watch(&self, number: usize) -> (Watch, usize) {
        let judges = || self.pods.iter().filter(|pod| self.thresholds.is_assigned(pod) && pod.is_healthy(self.now));
        let is_first_step = number <= 1 && !self.thresholds.is_all();
        let watch = match judges().count() {
            0 => step_watch(self.pods.iter(), is_first_step, self.min_ready_seconds),
            _ => step_watch(judges(), is_first_step, self.min_ready_seconds),
        };
        (watch, judges().count())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::identity::Identity;
    use crate::keys::PodUid;
    use crate::pods::{PodPhase, PodState, Readiness, UpdateMode};

    fn pods(workloads: &[(&str, usize)]) -> Vec<Subject> {
        let of = |workload: &str, number: usize| {
            let pod = PodState {
                uid: PodUid::new(&format!("{workload}-{number}")).unwrap(),
                workload: Some(workload.into()),
                labels: Arc::new([("app".to_owned(), workload.to_owned())].into()),
                ..PodState::default()
            };
            Subject::of(Arc::new(pod), "shop", Identity::of_uid("c"), true).unwrap()
        };
        workloads.iter().flat_map(|&(name, count)| (0..count).map(move |number| of(name, number))).collect()
    }

    fn sizes(steps: &Value, pods: &[Subject]) -> Vec<usize> {
        let spec: RolloutSpec = serde_json::from_value(json!({"steps": steps})).unwrap();
        planned_steps(&spec, pods, 0).iter().map(|step| step.pods.len()).collect()
    }

    #[test]
    fn steps_have_their_share_and_the_last_one_is_all() {
        let pods = pods(&[("web", 30), ("api", 10)]);
        assert_eq!(sizes(&json!([{"pods": 1}, {"pods": "25%"}, {"pods": "50%"}]), &pods), [1, 9, 10, 20]);
        assert_eq!(sizes(&json!([{"pods": "100%"}]), &pods), [40]);
        let canary = json!([{"pods": "100%", "selector": {"matchLabels": {"app": "api"}}}, {"pods": "50%"}]);
        assert_eq!(sizes(&canary, &pods)[0], 10);
        assert_eq!(sizes(&json!([{"pods": 1}]), &[]), [0, 0]);
    }

    /// A pod that is healthy, and whose containers have no probe.
    fn healthy(number: usize, update_mode: UpdateMode) -> Subject {
        let pod = PodState {
            uid: PodUid::new(&format!("web-{number}")).unwrap(),
            name: format!("web-{number}"),
            readiness: Readiness::Ready,
            phase: PodPhase::Running,
            update_mode,
            ..PodState::default()
        };
        let mut subject = Subject::of(Arc::new(pod), "shop", Identity::of_uid("c"), true).unwrap();
        subject.in_contact = true;
        subject
    }

    fn times(spec: &Value, pods: &[Subject]) -> (u64, u64) {
        let spec: RolloutSpec = serde_json::from_value(spec.clone()).unwrap();
        let MoveTime { least, acknowledgement } = move_time(&spec, &planned_steps(&spec, pods, 0));
        (least.as_secs(), acknowledgement.as_secs())
    }

    #[test]
    fn a_move_takes_the_watch_of_each_step_its_pauses_and_the_bake() {
        let four: Vec<Subject> = (0..4).map(|number| healthy(number, UpdateMode::Live)).collect();
        let steps = json!([{"pods": 1, "pauseSeconds": 7}, {"pods": "50%"}]);
        let spec =
            |bake: u32| json!({"steps": steps, "minReadySeconds": 10, "bakeSeconds": bake, "ackTimeoutSeconds": 30});
        assert_eq!(times(&spec(60), &four), (10 + 7 + 10 + 60, 90));
        assert_eq!(times(&spec(5), &four), (10 + 7 + 10 + 10, 90), "the watch is longer than the bake");
        assert_eq!(times(&spec(60), &four[..1]), (10 + 7 + 60, 30), "the second step changes nothing");
        assert_eq!(times(&spec(60), &[]), (7, 0), "nothing is watched");
        let analysis = json!([{"name": "errors", "prometheus": {"address": "http://p", "query": "up"}, "max": "1",
            "periodSeconds": 20, "failures": 3}]);
        let mut measured = spec(60);
        measured["analysis"] = analysis;
        assert_eq!(times(&measured, &four), (60 + 7 + 20 + 60, 90), "the first step needs three answers");
    }

    #[test]
    fn the_first_step_continues_to_a_healthy_pod() {
        let mut four: Vec<Subject> = (0..4).map(|number| healthy(number, UpdateMode::Live)).collect();
        four.sort_by_key(|pod| pod.number);
        for ill in &mut four[..2] {
            ill.in_contact = false;
        }
        let spec: RolloutSpec = serde_json::from_value(json!({"steps": [{"pods": 1}]})).unwrap();
        let sizes: Vec<_> = planned_steps(&spec, &four, 0).iter().map(|step| (step.pods.len(), step.healthy)).collect();
        assert_eq!(sizes, [(3, 1), (1, 2)]);
    }

    #[test]
    fn pods_that_restart_in_place_go_in_parts() {
        let eight: Vec<Subject> = (0..8).map(|number| healthy(number, UpdateMode::InPlace)).collect();
        let spec: RolloutSpec = serde_json::from_value(json!({"steps": [{"pods": 1}]})).unwrap();
        let steps = planned_steps(&spec, &eight, 0);
        let parts: Vec<_> = steps.iter().map(|step| (step.pods.len(), step.parts, step.healthy)).collect();
        assert_eq!(parts, [(1, 1, 1), (7, 4, 8)]);
        let at_once = planned_at_once(&spec, &eight, 0);
        assert_eq!((at_once.pods.len(), at_once.parts, at_once.watch.seconds), (8, 1, 10));
    }

    proptest! {
        #[test]
        fn every_pod_has_a_step(counts in proptest::collection::vec(0..40_usize, 0..4), shares in proptest::collection::vec(1..100_u8, 0..4)) {
            let named: Vec<(String, usize)> = counts.iter().enumerate().map(|(at, &count)| (format!("w{at}"), count)).collect();
            let named: Vec<(&str, usize)> = named.iter().map(|(name, count)| (name.as_str(), *count)).collect();
            let pods = pods(&named);
            let steps = shares.iter().map(|share| Step::of(Pods::Share(format!("{share}%")))).collect::<Vec<_>>();
            let planned = planned_steps(&RolloutSpec { steps, ..RolloutSpec::default() }, &pods, 0);
            let mut indexes: Vec<usize> = planned.iter().flat_map(|step| step.pods.clone()).collect();
            indexes.sort_unstable();
            prop_assert!(indexes.into_iter().eq(0..pods.len()));
        }
    }
}
