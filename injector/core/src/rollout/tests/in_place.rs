//! Restarts that agents command, and crashes at the same time.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use nudge_api::{ConfigState, Reason};

use super::{TestRollout, failure};
use crate::pods::{LastCommand, PodPhase, Readiness, RestartSums, UpdateMode};
use crate::rollout::Subject;

impl Subject {
    /// The pod's agent ends, so that all containers restart.
    fn command(&mut self) {
        (self.agent.last_command, self.phase) = (LastCommand::Restarting, PodPhase::Running);
        self.change_restarts(|sums| sums.last_crash = None);
        self.fall();
    }

    /// The agent and the containers were started again, but are not ready yet.
    fn start(&mut self, version: &str) {
        self.agent.last_command = LastCommand::RunningSince(Time(Timestamp::UNIX_EPOCH));
        self.change_restarts(|sums| sums.ordered += 1);
        self.agent.restarts += 1;
        self.runs = Some(version.to_owned());
    }
}

/// All pods are moved step by step by restarts that take this many seconds.
fn walk(rollout: &mut TestRollout, version: &str, seconds: i64) {
    for _ in 0..200 {
        rollout.watch(version, 1);
        let moved = |pod: &&mut Subject| pod.runs.as_deref() != Some(version);
        if rollout.with(version).into_iter().any(|pod| moved(&pod)) {
            rollout.with(version).into_iter().filter(moved).for_each(Subject::command);
            rollout.watch(version, 2);
            rollout.with(version).into_iter().filter(moved).for_each(|pod| pod.start(version));
            rollout.watch(version, seconds);
            rollout.with(version).into_iter().for_each(Subject::recover);
        }
        if rollout.status.current_version.as_deref() == Some(version) {
            return;
        }
    }
}

#[test]
fn a_commanded_restart_harms_nobody_and_makes_nobody_restless() {
    let mut rollout = TestRollout::new(&[("web", 8)]);
    rollout.rest("1");
    // Each version right after the other: a pod that was restarted a moment ago counts as evidence, however long it
    // takes to start.
    for (version, seconds) in [("2", 1), ("3", 30), ("4", 100)] {
        walk(&mut rollout, version, seconds);
        assert_eq!((failure(&rollout), rollout.status.current_version.as_deref()), (None, Some(version)));
    }
}

#[test]
fn a_crash_soon_after_a_commanded_restart_is_harm() {
    for after in [1, 10, 30] {
        let mut rollout = TestRollout::new(&[("web", 8)]);
        rollout.rest("1");
        rollout.watch("2", 1);
        rollout.with("2").into_iter().for_each(Subject::command);
        rollout.watch("2", 2);
        rollout.with("2").into_iter().for_each(|pod| pod.start("2"));
        rollout.watch("2", 1);
        rollout.with("2").into_iter().for_each(Subject::recover);
        rollout.watch("2", after);
        let millis = rollout.millis;
        rollout.with("2").into_iter().for_each(|pod| pod.crash(millis));
        rollout.watch("2", 100);
        assert_eq!(failure(&rollout).map(|failure| failure.0), Some(Reason::ContainerRestarted), "after {after} s");
    }
}

#[test]
fn a_pod_that_does_not_become_ready_after_a_commanded_restart_is_harmed() {
    let mut rollout = TestRollout::new(&[("web", 8)]);
    rollout.rest("1");
    rollout.watch("2", 1);
    rollout.with("2").into_iter().for_each(Subject::command);
    rollout.watch("2", 2);
    rollout.with("2").into_iter().for_each(|pod| pod.start("2"));
    // The pod gets as much time as a new pod.
    rollout.watch("2", 280);
    assert_eq!((failure(&rollout), rollout.assigned("2")), (None, 1));
    rollout.watch("2", 100);
    assert_eq!(failure(&rollout).map(|failure| failure.0), Some(Reason::PodNotReady));
}

#[test]
fn an_agent_that_crashes_after_its_command_is_watched_and_harms_one_pod() {
    let mut rollout = TestRollout::new(&[("web", 8)]);
    rollout.rest("1");
    rollout.watch("2", 1);
    rollout.with("2").into_iter().for_each(Subject::command);
    rollout.watch("2", 2);
    rollout.with("2").into_iter().for_each(|pod| pod.start("1"));
    for _ in 0..20 {
        if rollout.status.state() != ConfigState::Progressing {
            break;
        }
        rollout.watch("2", 20);
        assert!(rollout.assigned("2") <= 1);
        for pod in rollout.with("2") {
            (pod.agent.last_command, pod.agent.restarts) = (LastCommand::None, pod.agent.restarts + 1);
        }
    }
    assert_eq!(failure(&rollout).map(|failure| failure.0), Some(Reason::PodNotReady));
}

#[test]
fn a_new_pod_that_is_restarted_by_command_twice_does_not_fail() {
    let mut rollout = TestRollout::new(&[("web", 8)]);
    rollout.rest("1");
    walk(&mut rollout, "2", 1);
    let mut pod = super::pod("web", 8);
    (pod.readiness, pod.runs) = (Readiness::Never, Some("2".to_owned()));
    pod.fall();
    rollout.pods.push(pod);
    rollout.watch("3", 1);
    for _ in 0..2 {
        let new = rollout.pods.last_mut().unwrap();
        new.command();
        rollout.watch("3", 2);
        rollout.pods.last_mut().unwrap().start("3");
        rollout.watch("3", 1);
    }
    rollout.pods.last_mut().unwrap().recover();
    walk(&mut rollout, "3", 1);
    assert_eq!((failure(&rollout), rollout.status.current_version.as_deref()), (None, Some("3")));
}

/// Pods of a Deployment that are restarted in place.
fn in_place(count: usize) -> TestRollout {
    let mut rollout = TestRollout::new(&[("web", count)]);
    rollout.pods.iter_mut().for_each(|pod| pod.update_mode = UpdateMode::InPlace);
    rollout.rest("1");
    rollout
}

#[test]
fn no_more_than_a_quarter_of_the_pods_is_away_at_the_same_time() {
    assert_eq!(in_place(8).walk("2"), [1, 2, 4, 6, 8]);
    assert_eq!(in_place(3).walk("2"), [1, 2, 3]);
    assert_eq!(in_place(1).walk("2"), [1]);
    // Workloads with many pods have their share each.
    let counts = in_place(100).walk("2");
    assert!(counts.windows(2).all(|two| two[1] - two[0] <= 25) && counts.last() == Some(&100), "{counts:?}");
    // Only those that end together count.
    let mut rollout = in_place(8);
    rollout.pods.iter_mut().skip(4).for_each(|pod| pod.update_mode = UpdateMode::Live);
    let mut before = 0;
    for _ in 0..600 {
        rollout.watch("2", 1);
        let now = rollout.with("2").iter().filter(|pod| pod.is_in_place()).count();
        assert!(now - before <= 1, "{before}, {now}");
        before = now;
        rollout.take();
    }
    assert_eq!(before, 4);
}

#[test]
fn a_step_that_holds_does_so_once_all_its_pods_have_the_version() {
    let mut rollout = in_place(16);
    rollout.spec.steps = super::steps(&["1", "75%", "100%"]);
    rollout.spec.steps[1].pause_seconds = 600;
    let mut stays = Vec::new();
    for _ in 0..1200 {
        rollout.watch("2", 1);
        rollout.take();
        let now = rollout.assigned("2");
        match stays.last_mut() {
            Some((count, seconds)) if *count == now => *seconds += 1,
            _ => stays.push((now, 1)),
        }
    }
    let long: Vec<_> = stays.iter().filter(|(_, seconds)| *seconds >= 600).map(|(count, _)| *count).collect();
    assert!(long.first() == Some(&12) && long.len() <= 2, "{stays:?}");
    assert_eq!(stays.iter().map(|(count, _)| *count).collect::<Vec<_>>(), [1, 5, 9, 12, 16]);
}

#[test]
fn a_pod_that_cannot_go_back_is_counted() {
    let mut rollout = in_place(4);
    assert_eq!(rollout.walk("2").last(), Some(&4));
    rollout.watch("3", 1);
    let asked = rollout.with("3").remove(0);
    (asked.runs, asked.failure) = (Some("3".to_owned()), Some(Reason::Failed.explained("it was not restarted")));
    rollout.watch("3", 2);
    assert_eq!(rollout.assigned("3"), 0, "{:?}", rollout.status);
    let stuck = rollout.pods.iter_mut().find(|pod| pod.runs.as_deref() == Some("3")).unwrap();
    stuck.failure = Some(Reason::CantApply.explained("config shop: container app has no key LIVES"));
    rollout.watch("3", 700);
    assert_eq!(rollout.status.state(), ConfigState::Failed);
    let event = rollout.events.iter().find(|event| event.explanation.reason == Reason::Failed).unwrap();
    assert!(
        event.explanation.message.starts_with("1 pod does not run version 2 again: "),
        "{}",
        event.explanation.message
    );
}

#[test]
fn a_pod_that_is_resized_harms_no_version_and_a_crash_beside_it_does() {
    for crashes in [false, true] {
        let mut rollout = TestRollout::new(&[("web", 8)]);
        rollout.rest("1");
        rollout.watch("2", 1);
        rollout.with("2").into_iter().for_each(|pod| pod.restarts = pod.restarts.clone().resized());
        rollout.watch("2", 1);
        rollout.with("2").into_iter().for_each(Subject::fall);
        rollout.watch("2", 10);
        for pod in rollout.with("2") {
            let crashes = pod.restarts.sums().crashes + i32::from(crashes);
            pod.restarts = RestartSums { crashes, ordered: 1, last_crash: None }.into();
        }
        rollout.watch("2", 20);
        rollout.with("2").into_iter().for_each(Subject::recover);
        walk(&mut rollout, "2", 1);
        assert_eq!(failure(&rollout).map(|failure| failure.0), crashes.then_some(Reason::ContainerRestarted));
    }
}

#[test]
fn a_pod_that_is_restarted_by_its_rule_again_and_again_has_the_time_of_one_start() {
    let mut rollout = TestRollout::new(&[("web", 8)]);
    rollout.rest("1");
    rollout.watch("2", 1);
    rollout.with("2").into_iter().for_each(Subject::fall);
    for _ in 0..40 {
        rollout.with("2").into_iter().for_each(|pod| pod.change_restarts(|sums| sums.ordered += 1));
        rollout.watch("2", 10);
    }
    assert_eq!(failure(&rollout).map(|failure| failure.0), Some(Reason::PodNotReady));
}
