//! Pods whose containers read no key that changed: they have the version, and prove nothing.

use nudge_api::Reason;

use super::{TestRollout, failure, reason};
use crate::rollout::{Acknowledgement, Subject};

/// The pods take their assigned version. Those of the workload web read no key that changed with version 2.
fn take(rollout: &mut TestRollout) {
    rollout.take();
    for pod in &mut rollout.pods {
        let is_unchanged = pod.workload_name() == "web" && pod.runs.as_deref() == Some("2");
        pod.acknowledgement = if is_unchanged { Acknowledgement::Unchanged } else { Acknowledgement::Taken };
    }
}

fn api(rollout: &mut TestRollout) -> Vec<&mut Subject> {
    rollout.with("2").into_iter().filter(|pod| pod.workload_name() == "api").collect()
}

/// Watches until version 2 is current, for at most this number of seconds. Returns the seconds that it took.
fn seconds_until_current(rollout: &mut TestRollout, at_most: i64) -> i64 {
    for second in 0..at_most {
        rollout.watch("2", 1);
        take(rollout);
        if rollout.status.current_version.as_deref() == Some("2") {
            return second;
        }
    }
    panic!("not current: {:?}", rollout.status.rollout)
}

#[test]
fn a_version_that_no_pod_is_affected_by_continues_at_once() {
    let mut rollout = TestRollout::new(&[("web", 8)]);
    rollout.rest("1");
    rollout.rest("2");
    assert_eq!(rollout.assigned("2"), 1, "the first pod may be affected");
    take(&mut rollout);
    rollout.rest("2");
    assert_eq!(rollout.assigned("2"), 2);
    let evidence = rollout.status.rollout.evidence.clone().unwrap();
    assert_eq!((evidence.unchanged, evidence.assigned, evidence.not_waited_for), (1, 1, 0));
    assert!(seconds_until_current(&mut rollout, 10) < 10);
}

#[test]
fn a_pause_of_a_step_is_kept() {
    let mut rollout = TestRollout::new(&[("web", 8)]);
    rollout.spec.steps[0].pause_seconds = 600;
    rollout.rest("1");
    rollout.rest("2");
    take(&mut rollout);
    rollout.watch("2", 590);
    assert_eq!(rollout.assigned("2"), 1);
    assert!(seconds_until_current(&mut rollout, 100) > 30);
}

#[test]
fn the_first_pod_of_a_workload_that_is_affected_proves_the_version_alone() {
    for first in 0..8 {
        // Another order of the pods.
        let mut rollout = TestRollout::new(&[("web", 8), ("api", 8)]);
        rollout.pods.iter_mut().for_each(|pod| pod.number = pod.number.rotate_left(first * 4));
        rollout.rest("1");
        for _ in 0..5 {
            rollout.watch("2", 1);
            take(&mut rollout);
        }
        assert_eq!(api(&mut rollout).len(), 1, "{first}");
        // Its probe needs that long to notice.
        rollout.watch("2", 28);
        api(&mut rollout).into_iter().for_each(Subject::fall);
        rollout.watch("2", 100);
        let (reason, message) = failure(&rollout).unwrap();
        assert_eq!(reason, Reason::PodNotReady, "{message}");
    }
    let mut rollout = TestRollout::new(&[("web", 8), ("api", 8)]);
    rollout.rest("1");
    assert!(seconds_until_current(&mut rollout, 300) > 100, "its steps are watched");
}

#[test]
fn harm_to_a_pod_that_is_not_affected_says_nothing() {
    for falls_before_its_report in [false, true] {
        let mut rollout = TestRollout::new(&[("web", 8)]);
        rollout.rest("1");
        rollout.rest("2");
        if falls_before_its_report {
            rollout.with("2").into_iter().for_each(Subject::fall);
            rollout.watch("2", 5);
        }
        take(&mut rollout);
        rollout.with("2").into_iter().for_each(Subject::fall);
        seconds_until_current(&mut rollout, 60);
        assert_eq!(failure(&rollout), None);
    }
}

#[test]
fn a_sick_pod_beside_holds_nothing_and_a_sick_workload_has_to_be_judged() {
    let mut rollout = TestRollout::new(&[("web", 8)]);
    rollout.pods[0].in_contact = false;
    rollout.pods[0].fall();
    rollout.rest("1");
    let sick = rollout.pods[0].uid.clone();
    for _ in 0..10 {
        rollout.watch("2", 1);
        take(&mut rollout);
        rollout.pods.iter_mut().filter(|pod| pod.uid == sick).for_each(|pod| pod.runs = Some("1".to_owned()));
    }
    assert_eq!(rollout.status.current_version.as_deref(), Some("2"));

    let mut rollout = TestRollout::new(&[("web", 8), ("api", 8)]);
    rollout.pods.iter_mut().filter(|pod| pod.workload_name() == "api").for_each(Subject::fall);
    rollout.rest("1");
    let mut effects = None;
    for _ in 0..20 {
        effects = Some(rollout.watch("2", 1));
        take(&mut rollout);
    }
    assert_eq!(effects.and_then(|effects| reason(&effects)), Some(Reason::NobodyToJudge));
    assert!(rollout.assigned("2") < 16);
}
