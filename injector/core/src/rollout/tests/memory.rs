//! Pending decisions stay: over time, pauses, other leaders, and changes of the spec.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use nudge_api::{BackgroundStatus, OnFailure, Pods, Reason, RolloutStage, Step, StepSelector};

use super::{TestRollout, failure, on_hold, pod, reason, steps};
use crate::rollout::{Continuation, Evidence, Subject};

/// All of these pods have the version and are watched, for long.
pub(super) fn baking(count: usize, bake_seconds: u32) -> TestRollout {
    let mut rollout = TestRollout::new(&[("web", count)]);
    rollout.spec.bake_seconds = bake_seconds;
    while rollout.status.rollout.stage != Some(RolloutStage::Baking) {
        rollout.watch("2", 1);
        rollout.take();
    }
    rollout
}

/// So many pods have the version, have taken it, and are watched.
fn first_step(count: usize) -> TestRollout {
    let mut rollout = TestRollout::new(&[("web", count)]);
    rollout.rest("1");
    rollout.rest("2");
    rollout.take();
    rollout.rest("2");
    rollout
}

#[test]
fn harm_is_decided_also_where_the_evidence_begins_anew_meanwhile() {
    let mut rollout = baking(1, 3600);
    // The first 15 minutes end while it is waited whether the pod recovers.
    rollout.watch("2", 900 - 60 - 20);
    rollout.pods[0].fall();
    assert_eq!(reason(&rollout.watch("2", 300)), Some(Reason::Inconclusive));
    rollout.watch("2", 400);
    assert_eq!(failure(&rollout).map(|failure| failure.0), Some(Reason::ProgressDeadlineExceeded));
}

#[test]
fn what_is_unready_when_nobody_looked_is_waited_for() {
    for blind in [Evidence::reset_after_gap, |evidence: &mut Evidence| *evidence = Evidence::default()] {
        let mut rollout = baking(8, 300);
        rollout.watch("2", 30);
        rollout.pods[..6].iter_mut().for_each(Subject::fall);
        rollout.watch("2", 10);
        blind(&mut rollout.evidence);
        let time = rollout.millis / 1000;
        rollout.pods[..6].iter_mut().for_each(|pod| pod.lose_readiness(time - 10));
        rollout.watch("2", 590);
        assert_ne!(rollout.status.current_version.as_deref(), Some("2"));
        rollout.watch("2", 60);
        assert!(rollout.assigned("1") == 8 && failure(&rollout).is_some(), "{:?}", rollout.status);
    }
}

#[test]
fn one_crash_after_a_day_on_hold_is_blamed_while_the_hold_lasts() {
    let mut rollout = first_step(8);
    rollout.closed_gate = Some(on_hold());
    rollout.watch("2", 86_400);
    let millis = rollout.millis;
    rollout.with("2").remove(0).crash(millis);
    rollout.watch("2", 14);
    assert_eq!(failure(&rollout).map(|failure| failure.0), Some(Reason::ContainerRestarted));
}

#[test]
fn a_verdict_that_is_waited_for_lets_no_other_config_pass() {
    let mut rollout = first_step(8);
    rollout.watch("2", 25);
    rollout.with("2").remove(0).fall();
    let held = rollout.watch("2", 5);
    assert!(
        matches!(held.continuation, Continuation::Inconclusive(_))
            && !held.continuation.yields()
            && !rollout.status.internal.yields
    );
}

#[test]
fn a_bad_first_hour_excuses_no_version() {
    let mut rollout = first_step(8);
    let start_time = Time(Timestamp::from_millisecond(rollout.millis - 3_600_000).unwrap());
    rollout.background = Some(BackgroundStatus { start_time, pod_seconds: 880, harmed: 8 });
    rollout.watch("2", 25);
    rollout.with("2").remove(0).fall();
    rollout.watch("2", 14);
    assert_eq!(failure(&rollout).map(|failure| failure.0), Some(Reason::PodNotReady));
}

#[test]
fn pods_that_were_down_before_speak_neither_for_nor_against() {
    let mut rollout = TestRollout::new(&[("web", 40)]);
    rollout.rest("1");
    rollout.pods[..5].iter_mut().for_each(Subject::fall);
    rollout.watch("1", 3600);
    rollout.rest("2");
    rollout.watch("2", 5);
    let known = rollout.status.rollout.evidence.clone().unwrap();
    assert_eq!((known.harmed, known.unassigned_harmed), (0, 0), "{known:?}");
}

#[test]
fn new_pods_that_crash_a_second_after_their_start_fail_without_a_readiness_probe() {
    let mut rollout = TestRollout::new(&[("web", 4)]);
    let unprobed = |pod: &mut Subject| (pod.probes.slowest, pod.probes.notice_time) = (None, Duration::ZERO);
    rollout.pods.iter_mut().for_each(unprobed);
    rollout.spec.bake_seconds = 600;
    while rollout.status.rollout.stage != Some(RolloutStage::Baking) {
        rollout.watch("2", 1);
        rollout.take();
    }
    for number in 4..6 {
        let mut born = pod("web", number);
        unprobed(&mut born);
        born.runs = Some("2".to_owned());
        rollout.pods.push(born);
    }
    for _ in 0..2 {
        rollout.watch("2", 2);
        let millis = rollout.millis;
        rollout.pods[4..].iter_mut().for_each(|pod| pod.crash(millis));
    }
    rollout.watch("2", 2);
    assert_eq!(failure(&rollout).map(|failure| failure.0), Some(Reason::NewPodsFailing));
}

#[test]
fn a_failed_version_that_stands_still_goes_back_when_on_failure_says_so() {
    let mut rollout = first_step(8);
    rollout.spec.on_failure = OnFailure::Hold;
    rollout.watch("2", 2);
    let millis = rollout.millis;
    rollout.with("2").remove(0).crash(millis);
    let held = rollout.watch("2", 3600);
    assert!(held.continuation.is_blocked() && rollout.assigned("2") == 1);
    rollout.spec.on_failure = OnFailure::Rollback;
    rollout.generation += 1;
    rollout.rest("2");
    assert_eq!((rollout.assigned("1"), failure(&rollout).unwrap().0), (8, Reason::ContainerRestarted));
    rollout.take();
    rollout.rest("2");
    assert_eq!((rollout.assigned("1"), reason(&rollout.rest("2"))), (8, Some(Reason::Failed)));
}

#[test]
fn a_new_leader_sees_a_loop_of_crashes_also_between_two_of_them() {
    let mut rollout = first_step(8);
    rollout.watch("2", 20);
    let millis = rollout.millis;
    rollout.with("2").remove(0).crash(millis);
    rollout.evidence = Evidence::default();
    rollout.watch("2", 30);
    let millis = rollout.millis;
    rollout.with("2").remove(0).crash(millis);
    rollout.watch("2", 14);
    let (why, message) = failure(&rollout).unwrap();
    assert_eq!(why, Reason::ContainerRestarted);
    assert!(!message.contains("its notification"), "this leader has not seen it: {message}");
}

/// Returns pods of a Deployment, and pods of another Deployment that a selector matches.
fn with_canaries(count: usize, canary: &Pods) -> TestRollout {
    let mut rollout = TestRollout::new(&[("web", 8), ("canary", count)]);
    let labels = BTreeMap::from([("track".to_owned(), "canary".to_owned())]);
    for pod in rollout.pods.iter_mut().filter(|pod| pod.workload_name() == "canary") {
        pod.labels = Arc::new(labels.clone());
    }
    let selector = Some(StepSelector { match_labels: labels });
    let first = Step { selector, pause_seconds: 3600, ..Step::of(canary.clone()) };
    rollout.spec.steps = [vec![first], steps(&["50%"])].concat();
    rollout
}

#[test]
fn canaries_that_can_not_judge_hold_the_rollout() {
    for count in [0, 2] {
        let mut rollout = with_canaries(count, &Pods::Share("100%".to_owned()));
        let canaries = rollout.pods.iter_mut().filter(|pod| pod.workload_name() == "canary");
        canaries.for_each(Subject::fall);
        let held = rollout.watch("2", 7200);
        assert_eq!(reason(&held), Some(Reason::NobodyToJudge));
        assert!(rollout.with("2").iter().all(|pod| pod.workload_name() == "canary"));
        // One that is created becomes healthy.
        let mut born = pod("canary", 9);
        born.labels = Arc::new(BTreeMap::from([("track".to_owned(), "canary".to_owned())]));
        born.runs = Some("2".to_owned());
        rollout.pods.push(born);
        assert_eq!(rollout.walk("2").last(), Some(&rollout.pods.len()));
    }
}

#[test]
fn pods_that_are_created_in_a_step_with_a_number_do_not_all_get_the_version() {
    for count in [0, 1] {
        let mut rollout = with_canaries(count, &Pods::Count(1));
        rollout.rest("2");
        rollout.take();
        for number in 10..60 {
            let mut born = pod("canary", number);
            born.labels = Arc::new(BTreeMap::from([("track".to_owned(), "canary".to_owned())]));
            rollout.pods.push(born);
        }
        rollout.watch("2", 60);
        assert!((1..=30).contains(&rollout.assigned("2")), "{}", rollout.assigned("2"));
    }
}

#[test]
fn a_blip_after_a_long_watch_is_not_a_lack_of_progress() {
    let mut rollout = first_step(8);
    rollout.spec.steps[0].pause_seconds = 3600;
    rollout.watch("2", 1800);
    rollout.with("2").remove(0).fall();
    rollout.watch("2", 2);
    rollout.pods.iter_mut().for_each(Subject::recover);
    rollout.watch("2", 30);
    assert_eq!((failure(&rollout), rollout.assigned("2")), (None, 1));
}

#[test]
fn what_can_not_wait_does_not_wait_for_a_return() {
    let mut rollout = first_step(8);
    let millis = rollout.millis;
    rollout.with("2").remove(0).crash(millis);
    rollout.rest("2");
    assert_eq!(rollout.status.rollout.stage, Some(RolloutStage::RollingBack));
    rollout.override_reason = Some("a key leaked");
    rollout.generation += 1;
    rollout.rest("2");
    assert_eq!(rollout.assigned("1"), 8, "the version that failed waits");
    rollout.rest("3");
    assert_eq!(rollout.assigned("3"), 8);
}

/// The messages of a rollout whose last pods never take the version, until it is current or 400 s are over.
fn with_silent_pods(count: usize, silent: usize) -> (TestRollout, Vec<String>) {
    let mut rollout = TestRollout::new(&[("web", count)]);
    let mut messages = Vec::new();
    rollout.rest("2");
    for _ in 0..400 {
        if rollout.status.current_version.as_deref() == Some("2") {
            break;
        }
        messages.extend(rollout.watch("2", 1).continuation.explanation().map(|why| why.message.clone()));
        let old: Vec<_> = rollout.pods[count - silent..].iter().map(|pod| pod.runs.clone()).collect();
        rollout.take();
        rollout.pods[count - silent..].iter_mut().zip(old).for_each(|(pod, runs)| pod.runs = runs);
    }
    (rollout, messages)
}

#[test]
fn one_silent_pod_is_named_and_not_waited_for_where_another_has_proven_the_version() {
    for count in [2, 3, 4, 8] {
        let (rollout, messages) = with_silent_pods(count, 1);
        assert_eq!(rollout.status.current_version.as_deref(), Some("2"), "{count} {:?}", messages.last());
        let named = format!(
            "; pod {} has not acknowledged the version in time and is not waited for",
            rollout.pods[count - 1].name
        );
        assert!(messages.iter().any(|message| message.ends_with(&named)), "{count} {messages:?}");
    }
}

#[test]
fn more_than_one_silent_pod_and_more_than_a_quarter_or_all_of_them_are_too_many() {
    for (count, silent) in [(1, 1), (2, 2), (3, 2), (4, 2), (7, 2)] {
        let (rollout, messages) = with_silent_pods(count, silent);
        assert_ne!(rollout.status.current_version.as_deref(), Some("2"), "{count} {silent}");
        assert!(messages.iter().any(|message| message.contains("not acknowledged version 2")), "{messages:?}");
    }
    assert_eq!(with_silent_pods(8, 2).0.status.current_version.as_deref(), Some("2"));
}
