//! Workloads that count as up after a restart, and workloads that count as failed.

use std::collections::BTreeMap;

use nudge_api::Reason;
use serde_json::json;

use super::tests::{at, mark, open, workload};
use super::*;
use crate::owners::WorkloadKind;

/// Returns a DaemonSet or StatefulSet under restart, as the API server shows it.
fn under_restart(kind: WorkloadKind, all: i32, updated: i32, down: i32) -> TargetedWorkload {
    let (status, meta) = match kind {
        WorkloadKind::DaemonSet => (
            json!({"desiredNumberScheduled": all, "updatedNumberScheduled": updated, "numberReady": all - down,
                "numberAvailable": all - down, "currentNumberScheduled": all, "numberMisscheduled": 0, "observedGeneration": 2}),
            json!({"spec": {}}),
        ),
        _ => (
            json!({"replicas": all, "readyReplicas": all - down, "updatedReplicas": updated, "updateRevision": "b",
                "currentRevision": if updated == all && down == 0 { "b" } else { "a" }, "observedGeneration": 2}),
            json!({"spec": {"replicas": all, "serviceName": "x"}}),
        ),
    };
    let template = json!({
        "metadata": {"annotations": {"nudge.dev/config-digest": "new"}},
        "spec": {"containers": [{"name": "app", "envFrom": [{"configMapRef": {"name": "shop"}}], "readinessProbe": {}}]},
    });
    let mut object = meta;
    object["spec"]["template"] = template;
    object["spec"]["selector"] = json!({});
    object["metadata"] = json!({"name": "x", "uid": "x", "generation": 2});
    object["status"] = status;
    let workload = match kind {
        WorkloadKind::DaemonSet => Workload::of_daemon_set(&serde_json::from_value(object).unwrap()),
        _ => Workload::of_stateful_set(&serde_json::from_value(object).unwrap()),
    };
    let mut workload = workload.unwrap();
    workload.last_mark = Some(RestartMark { template: workload.template.clone(), ..mark(101, "new") });
    TargetedWorkload { workload, digest: "new".into(), whole: "whole".into() }
}

/// Observes as the controller does, with the leader's memory.
pub(super) fn watched(
    memory: &mut RestartAttempts,
    all: &[TargetedWorkload],
    now: i64,
) -> (NextRestart, Vec<ObjectReport>) {
    for TargetedWorkload { workload, .. } in all {
        memory.observe(workload, 10, at(now));
    }
    let behind = &BTreeMap::new();
    next_restart(&RestartSituation {
        workloads: all,
        behind,
        is_return: false,
        is_undecided: false,
        since: at(100),
        deadline_seconds: 60,
        settle_seconds: 10,
        attempts: memory,
        now: at(now),
    })
}

#[test]
fn a_restart_may_take_long_while_it_progresses() {
    for (kind, all, seconds) in [(WorkloadKind::StatefulSet, 3, 50), (WorkloadKind::DaemonSet, 500, 20)] {
        let (mut memory, mut now) = (RestartAttempts::default(), 101);
        for updated in 0..all {
            for down in [1, 0] {
                let progress = watched(&mut memory, &[under_restart(kind, all, updated + down, down)], now);
                assert!(matches!(progress.0, NextRestart::Wait(_)), "{kind:?} {updated} {down} at {now}: {progress:?}");
                now += if down == 1 { seconds } else { 1 };
            }
        }
        assert!(now > 101 + 2 * 60, "longer than the deadline in total");
        assert_eq!(watched(&mut memory, &[under_restart(kind, all, all, 0)], now).0, NextRestart::Done);
    }
}

#[test]
fn a_restart_progresses_where_the_workload_is_scaled() {
    for kind in [WorkloadKind::StatefulSet, WorkloadKind::DaemonSet] {
        let mut memory = RestartAttempts::default();
        // Six of ten are new. Five go, the new ones first; then nodes or replicas come back.
        let sizes = [(10, 6), (5, 1), (5, 2), (5, 3), (5, 4), (9, 5), (9, 6), (9, 7), (9, 8)];
        for (turn, (all, updated)) in sizes.into_iter().enumerate() {
            let now = 110 + 50 * i64::try_from(turn).unwrap();
            let (next, _) = watched(&mut memory, &[under_restart(kind, all, updated, 1)], now);
            assert!(matches!(next, NextRestart::Wait(_)), "{kind:?} {all} {updated}: {next:?}");
        }
        // The workload grows and shrinks, and makes no progress.
        let ends = (0..100).find(|turn| {
            let (next, _) =
                watched(&mut memory, &[under_restart(kind, 9 - turn % 2, 8 - turn % 2, 1)], 515 + i64::from(*turn));
            matches!(next, NextRestart::Failed(_))
        });
        assert_eq!(ends, Some(55), "{kind:?}");
    }
}

#[test]
fn a_restart_that_goes_forth_and_back_does_not_progress() {
    for kind in [WorkloadKind::StatefulSet, WorkloadKind::DaemonSet] {
        let (mut memory, mut now) = (RestartAttempts::default(), 101);
        let ends = (0..1000).find(|turn| {
            now += 7;
            // The pod becomes Ready for a moment, over and over again.
            matches!(watched(&mut memory, &[under_restart(kind, 3, 1, turn % 2)], now).0, NextRestart::Failed(_))
        });
        assert!(ends.is_some_and(|turn| (8..=10).contains(&turn)), "{kind:?}: {ends:?}");
        // A new leader waits again.
        let mut anew = RestartAttempts::default();
        assert!(matches!(watched(&mut anew, &[under_restart(kind, 3, 1, 1)], now).0, NextRestart::Wait(_)));
        assert!(matches!(watched(&mut anew, &[under_restart(kind, 3, 1, 1)], now + 60).0, NextRestart::Failed(_)));
    }
}

#[test]
fn what_came_up_long_ago_may_flap() {
    for kind in [WorkloadKind::StatefulSet, WorkloadKind::DaemonSet] {
        let mut memory = RestartAttempts::default();
        let moving = Workload { progress: WorkloadProgress::Moving, ..restarted() };
        let other = || TargetedWorkload { workload: moving.clone(), digest: "new".into(), whole: "whole".into() };
        watched(&mut memory, &[under_restart(kind, 3, 2, 1), other()], 110);
        watched(&mut memory, &[under_restart(kind, 3, 3, 0), other()], 120);
        // The workload gets another pod, which is not Ready yet, and one of the older pods is not Ready either.
        let (next, _) = watched(&mut memory, &[under_restart(kind, 4, 3, 2), other()], 900);
        assert_eq!(next, NextRestart::Wait("Deployment/web is being restarted".to_owned()), "{kind:?}");
    }
}

/// A Deployment that has just been restarted.
fn restarted() -> Workload {
    Workload { digest: Some("new".into()), last_mark: Some(mark(101, "new")), ..workload("web") }
}

#[test]
fn without_a_probe_it_must_stay_up_for_a_while() {
    let mut memory = RestartAttempts::default();
    let count = |all| Some(PodRestarts { max: i32::from(all > 0), second: 0, total: all });
    let mut look = |progress, restarts: i32, now| {
        let web = Workload { progress, is_unprobed: true, restarts: count(restarts), ..restarted() };
        watched(&mut memory, &[TargetedWorkload { workload: web, digest: "new".into(), whole: "whole".into() }], now).0
    };
    let waits = |next: NextRestart| assert!(matches!(next, NextRestart::Wait(_)), "{next:?}");
    waits(look(WorkloadProgress::Complete, 0, 102));
    waits(look(WorkloadProgress::Ended, 0, 105));
    waits(look(WorkloadProgress::Complete, 0, 106));
    waits(look(WorkloadProgress::Complete, 1, 112));
    waits(look(WorkloadProgress::Complete, 1, 113));
    waits(look(WorkloadProgress::Complete, 1, 122));
    assert_eq!(look(WorkloadProgress::Complete, 1, 123), NextRestart::Done);
    assert_eq!(
        look(WorkloadProgress::Ended, 3, 124),
        NextRestart::Done,
        "what happens later is no matter of the restart"
    );
    // With a probe its controller's word is enough.
    let workload = Workload { progress: WorkloadProgress::Ended, ..restarted() };
    let all = [TargetedWorkload { workload, digest: "new".into(), whole: "whole".into() }];
    assert_eq!(watched(&mut RestartAttempts::default(), &all, 102).0, NextRestart::Done);
}

#[test]
fn without_a_probe_pods_that_crash_again_and_again_fail() {
    let mut memory = RestartAttempts::default();
    let mut look = |progress, most, now| {
        let restarts = Some(PodRestarts { max: most, second: most, total: 2 * most });
        let web = Workload { progress, is_unprobed: true, restarts, ..restarted() };
        watched(&mut memory, &[TargetedWorkload { workload: web, digest: "new".into(), whole: "whole".into() }], now).0
    };
    assert!(matches!(look(WorkloadProgress::Moving, 0, 102), NextRestart::Wait(_)));
    assert!(matches!(look(WorkloadProgress::Complete, 1, 105), NextRestart::Wait(_)));
    assert!(matches!(look(WorkloadProgress::Ended, 2, 109), NextRestart::Failed(_)));
    // One pod alone may have a reason of its own, unless the workload has no other pod.
    for (all, fails) in [(3, false), (1, true)] {
        let mut memory = RestartAttempts::default();
        let mut look = |most, now| {
            let restarts = Some(PodRestarts { max: most, second: most.min(1), total: most });
            let steps = Some(ReplicaCounts { total: all, updated: all, ready: all, available: all });
            let web = Workload {
                progress: WorkloadProgress::Ended,
                is_unprobed: true,
                restarts,
                replicas: steps,
                ..restarted()
            };
            matches!(
                watched(
                    &mut memory,
                    &[TargetedWorkload { workload: web, digest: "new".into(), whole: "whole".into() }],
                    now
                )
                .0,
                NextRestart::Failed(_)
            )
        };
        assert_eq!([look(0, 102), look(5, 103)], [false, fails]);
    }
    // One that is never up for long, and does not restart, fails by the deadline.
    let mut memory = RestartAttempts::default();
    let ends = (0..100).find(|turn| {
        let progress = if turn % 2 == 0 { WorkloadProgress::Complete } else { WorkloadProgress::Ended };
        let web = Workload { progress, is_unprobed: true, ..restarted() };
        matches!(
            watched(
                &mut memory,
                &[TargetedWorkload { workload: web, digest: "new".into(), whole: "whole".into() }],
                102 + 5 * turn
            )
            .0,
            NextRestart::Failed(_)
        )
    });
    assert_eq!(ends, Some(14));
}

#[test]
fn a_template_that_somebody_has_changed_is_reported_and_not_blamed() {
    let theirs = |progress| {
        let before = Some(RestartMark { template: "before".into(), ..mark(101, "new") });
        Workload { progress, last_mark: before, ..restarted() }
    };
    let look = |workload: Workload, digest: &str, now| {
        watched(
            &mut RestartAttempts::default(),
            &[TargetedWorkload { workload, digest: digest.into(), whole: "whole".into() }],
            now,
        )
    };
    assert!(matches!(look(theirs(WorkloadProgress::Moving), "new", 102).0, NextRestart::Wait(_)), "it may come up");
    let (next, reports) = look(theirs(WorkloadProgress::Failed), "new", 102);
    assert_eq!((next, reports[0].why.reason), (NextRestart::Done, Reason::TemplateChanged));
    assert_eq!(look(theirs(WorkloadProgress::Complete), "new", 102), (NextRestart::Done, vec![]));
    // Another config continues, and does not blame the workload either.
    let (next, _) = look(theirs(WorkloadProgress::Failed), "newer", 102);
    assert!(
        matches!(next, NextRestart::Restart { mark, .. } if mark.before == HealthBefore::Unwell && mark.template == "template".into())
    );
}

/// Observes a workload that has not been restarted yet. Returns the mark that it gets.
fn first_mark(workload: &Workload) -> RestartMark {
    let before = Workload { digest: None, last_mark: None, ..workload.clone() };
    match watched(
        &mut RestartAttempts::default(),
        &[TargetedWorkload { workload: before, digest: "new".into(), whole: "whole".into() }],
        101,
    )
    .0
    {
        NextRestart::Restart { mark, .. } => mark,
        next => panic!("{next:?}"),
    }
}

#[test]
fn one_pod_that_is_unready_before_does_not_switch_the_judgement_off() {
    // A Deployment is healthy if its controller reports that it came up.
    let mut web = open("web").workload;
    web.progress = WorkloadProgress::Ended;
    assert_eq!(first_mark(&web).before, HealthBefore::Well);
    for kind in [WorkloadKind::StatefulSet, WorkloadKind::DaemonSet] {
        let mark = first_mark(&under_restart(kind, 10, 10, 1).workload);
        assert_eq!(mark.before, HealthBefore::Available(9), "{kind:?}");
        let end = |updated, down, now| {
            let mut memory = RestartAttempts::default();
            let TargetedWorkload { workload: mut set, digest, whole } = under_restart(kind, 10, updated, down);
            set.last_mark = Some(mark.clone());
            let all = [TargetedWorkload { workload: set, digest, whole }];
            watched(&mut memory, &all, 102);
            let (next, reports) = watched(&mut memory, &all, now);
            (next, reports.first().map(|report| report.why.reason))
        };
        assert_eq!(end(10, 1, 103), (NextRestart::Done, None), "as many as before");
        assert!(matches!(end(10, 2, 103).0, NextRestart::Wait(_)) && matches!(end(5, 1, 103).0, NextRestart::Wait(_)));
        assert!(matches!(end(10, 2, 162).0, NextRestart::Failed(_)), "fewer");
        assert!(matches!(end(2, 2, 162).0, NextRestart::Failed(_)));
        // The pod that was not Ready before keeps its controller from replacing the other pods.
        assert_eq!(end(2, 1, 162), (NextRestart::Done, Some(Reason::Unwell)));
        let none = first_mark(&under_restart(kind, 1, 1, 1).workload);
        assert_eq!(none.before, HealthBefore::Unwell, "what would it prove?");
        let half = first_mark(&under_restart(kind, 10, 5, 1).workload);
        assert_eq!(half.before, HealthBefore::Unwell, "it is somebody else's rollout");
    }
}

#[test]
fn without_a_probe_as_many_as_before_must_stay_up() {
    let steps = |available| Some(ReplicaCounts { total: 3, updated: 3, ready: available, available });
    let flaps = |available| Workload {
        progress: WorkloadProgress::Ended,
        is_unprobed: true,
        replicas: steps(available),
        ..restarted()
    };
    let mark = first_mark(&flaps(2));
    assert_eq!(mark.before, HealthBefore::Available(2));
    let mut memory = RestartAttempts::default();
    let mut look = |available, most, now| {
        let restarts = Some(PodRestarts { max: most, second: most, total: most });
        let web = Workload { restarts, last_mark: Some(mark.clone()), ..flaps(available) };
        watched(&mut memory, &[TargetedWorkload { workload: web, digest: "new".into(), whole: "whole".into() }], now).0
    };
    assert!(matches!(look(2, 0, 102), NextRestart::Wait(_)));
    assert!(matches!(look(1, 3, 105), NextRestart::Wait(_)));
    assert!(matches!(look(2, 5, 106), NextRestart::Wait(_)));
    assert_eq!(look(2, 9, 116), NextRestart::Done, "the one that crashed before crashes still");
    let mut memory = RestartAttempts::default();
    let web = Workload { last_mark: Some(mark.clone()), ..flaps(1) };
    let all = [TargetedWorkload { workload: web, digest: "new".into(), whole: "whole".into() }];
    assert!(matches!(watched(&mut memory, &all, 102).0, NextRestart::Wait(_)));
    assert!(matches!(watched(&mut memory, &all, 172).0, NextRestart::Failed(_)), "fewer");
}

#[test]
fn a_restart_for_another_config_is_waited_for_while_it_progresses() {
    let mut memory = RestartAttempts::default();
    // The workload was restarted at 101; the other config's turn comes at 161, after the deadline.
    let mut look = |updated, down, now| {
        let TargetedWorkload { workload: set, .. } = under_restart(WorkloadKind::StatefulSet, 3, updated, down);
        memory.observe(&set, 10, at(now));
        let (workloads, behind, memory) = (
            &[TargetedWorkload { workload: set, digest: "newer".into(), whole: "whole".into() }],
            &BTreeMap::new(),
            &memory,
        );
        let (since, now) = (at(161), at(now));
        assert_eq!(memory.last_progress(since), None, "it is not of this stage");
        next_restart(&RestartSituation {
            workloads,
            behind,
            is_return: false,
            is_undecided: false,
            since,
            deadline_seconds: 60,
            settle_seconds: 10,
            attempts: memory,
            now,
        })
        .0
    };
    assert!(matches!(look(1, 1, 162), NextRestart::Wait(_)));
    assert!(matches!(look(2, 1, 210), NextRestart::Wait(_)));
    assert!(matches!(look(2, 1, 269), NextRestart::Wait(_)));
    assert!(
        matches!(look(2, 1, 270), NextRestart::Restart { mark, .. } if mark.before == HealthBefore::Unwell),
        "it stands still"
    );
    assert!(
        matches!(look(3, 1, 271), NextRestart::Restart { .. }),
        "only a pod that is not Ready, long after the restart"
    );
}
