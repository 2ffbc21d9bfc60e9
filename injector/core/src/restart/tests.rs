//! The order in which workloads are restarted, and how that ends.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use nudge_api::Reason;
use proptest::prelude::*;
use serde_json::json;

use super::clock::over;
use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// A Deployment that is well and has not been restarted.
pub(super) fn workload(name: &str) -> Workload {
    Workload {
        kind: Kind::Deployment,
        name: name.to_owned(),
        uid: format!("uid-of-{name}"),
        uses: Uses { published: ["shop".to_owned()].into(), ..Uses::default() },
        digest: None,
        restarted: None,
        owner: None,
        hold: None,
        progress: Progress::Complete,
        steps: None,
        unprobed: false,
        restarts: None,
        template: "template".to_owned(),
        has_deadline: true,
    }
}

fn mark(second: i64, digest: &str) -> Restarted {
    Restarted { at: at(second), digest: digest.to_owned(), unwell: false, template: None }
}

/// The same, with the digest that it should have.
fn open(name: &str) -> (Workload, String) {
    (workload(name), "new".to_owned())
}

fn look(workloads: &[(Workload, String)], back: bool, now: i64) -> (Next, Vec<Report>) {
    look_behind(workloads, &BTreeMap::new(), back, now)
}

fn look_behind(
    workloads: &[(Workload, String)],
    behind: &BTreeMap<String, usize>,
    back: bool,
    now: i64,
) -> (Next, Vec<Report>) {
    let memory = Memory::default();
    next(&Look { workloads, behind, back, since: at(100), deadline: 60, settle: 10, memory: &memory, now: at(now) })
}

/// Carries out the decision, as the API server would.
fn apply(workloads: &mut [(Workload, String)], next: &Next) -> Option<usize> {
    let Next::Restart { index, mark } = next else { return None };
    let (workload, _) = &mut workloads[*index];
    workload.digest = Some(mark.digest.clone());
    workload.restarted = Some(mark.clone());
    workload.progress = Progress::Moving;
    Some(*index)
}

#[test]
fn one_after_the_other_and_then_done() {
    let mut all = [open("a"), open("b")];
    for index in 0..2 {
        let (step, _) = look(&all, false, 101);
        assert_eq!(apply(&mut all, &step), Some(index));
        assert_eq!(look(&all, false, 500).0, Next::Wait(format!("{} is being restarted", all[index].0.id())));
        all[index].0.progress = Progress::Complete;
    }
    assert_eq!(look(&all, false, 500), (Next::Done, vec![]));
}

#[test]
fn a_restart_that_does_not_complete_fails_by_its_own_deadline_or_by_ours() {
    let mut all = [open("a")];
    let (step, _) = look(&all, false, 101);
    apply(&mut all, &step);
    all[0].0.progress = Progress::Failed;
    assert!(matches!(look(&all, false, 102).0, Next::Failed(_)));
    (all[0].0.progress, all[0].0.has_deadline) = (Progress::Moving, false);
    assert!(matches!(look(&all, false, 160).0, Next::Wait(_)));
    assert!(matches!(look(&all, false, 161).0, Next::Failed(_)));
}

#[test]
fn a_version_is_not_blamed_for_what_was_unwell_or_restarted_before() {
    let mut all = [open("a"), open("b"), open("c")];
    all[0].0.progress = Progress::Moving;
    all[2].0.progress = Progress::Failed;
    all[2].0.digest = Some("new".to_owned());
    all[2].0.restarted = Some(mark(99, "new"));
    let (step, _) = look(&all, false, 101);
    assert_eq!(apply(&mut all, &step), Some(1), "the one that is well first");
    all[1].0.progress = Progress::Complete;
    let (step, _) = look(&all, false, 102);
    assert_eq!(apply(&mut all, &step), Some(0));
    let (last, reports) = look(&all, false, 999);
    assert_eq!((last, reports[0].why.reason), (Next::Done, Reason::Unwell));
}

#[test]
fn another_config_of_the_same_workload_waits_for_the_restart_and_does_not_switch_its_check_off() {
    let both = |workload: &Workload, digest: &str, now| {
        let all = [(workload.clone(), digest.to_owned())];
        let memory = Memory::default();
        // The second config came to restarting ten seconds after the first.
        [100, 110].map(|since| {
            let (behind, since, now) = (&BTreeMap::new(), at(since), at(now));
            next(&Look { workloads: &all, behind, back: false, since, deadline: 60, settle: 10, memory: &memory, now })
                .0
        })
    };
    let mut all = [open("web")];
    let (step, _) = look(&all, false, 101);
    apply(&mut all, &step);
    let mut web = all[0].0.clone();
    // The second is published, so that both want another template.
    assert!(both(&web, "newer", 112).iter().all(|next| matches!(next, Next::Wait(_))));
    web.progress = Progress::Failed;
    assert!(matches!(both(&web, "newer", 113), [Next::Failed(_), Next::Wait(_)]), "the first one's fault");
    web.progress = Progress::Complete;
    let [_, step] = both(&web, "newer", 114);
    assert!(matches!(&step, Next::Restart { mark, .. } if !mark.unwell), "{step:?}");
    let mut all = [(web.clone(), "newer".to_owned())];
    apply(&mut all, &step);
    all[0].0.progress = Progress::Failed;
    assert!(both(&all[0].0, "newer", 115).iter().all(|next| matches!(next, Next::Failed(_))), "it is of both now");
    // What an older rollout has left unwell is waited for no longer than its time.
    web.progress = Progress::Moving;
    let [_, step] = both(&web, "newer", 161);
    assert!(matches!(step, Next::Restart { mark, .. } if mark.unwell));
    assert!(
        matches!(look(&[(web, "newer".to_owned())], true, 112).0, Next::Restart { .. }),
        "the way back is not held up"
    );
}

#[test]
fn on_the_way_back_only_what_was_restarted_is_restarted_and_nothing_fails() {
    let mut all = [open("a"), open("b")];
    all[1].0.digest = Some("bad".to_owned());
    all[1].0.progress = Progress::Failed;
    all[1].0.restarted = Some(mark(90, "bad"));
    let (step, _) = look(&all, true, 101);
    assert_eq!(apply(&mut all, &step), Some(1));
    all[1].0.progress = Progress::Failed;
    assert!(matches!(look(&all, true, 102).0, Next::Wait(_)));
    let (end, reports) = look(&all, true, 161);
    assert_eq!((end, reports[0].why.reason), (Next::Done, Reason::NotBack));
}

#[test]
fn on_the_way_back_what_somebody_else_restarted_is_restarted_too() {
    let all = [open("a")];
    assert_eq!(look(&all, true, 101).0, Next::Done);
    let behind = [("Deployment/a".to_owned(), 1)].into();
    assert!(matches!(look_behind(&all, &behind, true, 101).0, Next::Restart { .. }));
}

#[test]
fn held_undone_and_owned_workloads_are_reported() {
    let mut all = [open("a"), open("b"), open("c")];
    all[0].0.hold = Some((Reason::Paused, "is paused"));
    all[1].0.owner = Some("Prometheus/main".to_owned());
    all[2].0.restarted = Some(mark(101, "new"));
    let (step, _) = look(&all, false, 102);
    assert_eq!(apply(&mut all, &step), Some(0));
    let (end, reports) = look(&all, false, 103);
    let reasons: Vec<_> = reports.iter().map(|report| report.why.reason).collect();
    assert_eq!((end, reasons), (Next::Done, vec![Reason::Owned, Reason::Paused, Reason::Undone]));
}

#[test]
fn a_workload_that_a_tool_replaces_is_restarted_once_by_a_leader() {
    let mut memory = Memory::default();
    let look = |workload: &Workload, digest: &str, memory: &Memory| {
        let all = [(workload.clone(), digest.to_owned())];
        let behind = &BTreeMap::new();
        next(&Look {
            workloads: &all,
            behind,
            back: false,
            since: at(100),
            deadline: 60,
            settle: 10,
            memory,
            now: at(102),
        })
    };
    // Template and marks are again those of the tool.
    let mut web = workload("web");
    assert!(matches!(look(&web, "new", &memory).0, Next::Restart { .. }), "a new leader does not know of it");
    memory.restarted(&web, "new");
    let (end, reports) = look(&web, "new", &memory);
    assert_eq!((end, reports[0].why.reason), (Next::Done, Reason::Undone));
    assert!(matches!(look(&web, "newer", &memory).0, Next::Restart { .. }), "other content");
    // Another config that it uses went there and back.
    web.digest = Some("newer".to_owned());
    web.restarted = Some(mark(101, "newer"));
    assert!(matches!(look(&web, "new", &memory).0, Next::Restart { .. }));
    web.restarted = Some(mark(99, "newer"));
    assert_eq!(look(&web, "new", &memory).0, Next::Done, "a copy of an older state");
    web.uid = "anew".to_owned();
    assert!(matches!(look(&web, "new", &memory).0, Next::Restart { .. }), "another object");
}

/// What the API server says of a DaemonSet or StatefulSet under restart.
fn under_restart(kind: Kind, all: i32, updated: i32, down: i32) -> (Workload, String) {
    let (status, meta) = match kind {
        Kind::DaemonSet => (
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
    object["metadata"] = json!({"name": "x", "uid": "x", "generation": 2, "annotations": {"nudge.dev/restarted": mark(101, "new").text()}});
    object["status"] = status;
    let workload = match kind {
        Kind::DaemonSet => Workload::of_daemon_set(&serde_json::from_value(object).unwrap()),
        _ => Workload::of_stateful_set(&serde_json::from_value(object).unwrap()),
    };
    (workload.unwrap(), "new".to_owned())
}

/// Looks as the controller does, with what the leader remembers.
fn watched(memory: &mut Memory, all: &[(Workload, String)], now: i64) -> (Next, Vec<Report>) {
    for (workload, _) in all {
        memory.watch(workload, 10, at(100), at(now));
    }
    let behind = &BTreeMap::new();
    next(&Look { workloads: all, behind, back: false, since: at(100), deadline: 60, settle: 10, memory, now: at(now) })
}

#[test]
fn a_restart_may_take_long_while_it_progresses() {
    for (kind, all, seconds) in [(Kind::StatefulSet, 3, 50), (Kind::DaemonSet, 500, 20)] {
        let (mut memory, mut now) = (Memory::default(), 101);
        for updated in 0..all {
            for down in [1, 0] {
                let progress = watched(&mut memory, &[under_restart(kind, all, updated + down, down)], now);
                assert!(matches!(progress.0, Next::Wait(_)), "{kind:?} {updated} {down} at {now}: {progress:?}");
                now += if down == 1 { seconds } else { 1 };
            }
        }
        assert!(now > 101 + 2 * 60, "longer than the deadline in total");
        assert_eq!(watched(&mut memory, &[under_restart(kind, all, all, 0)], now).0, Next::Done);
    }
}

#[test]
fn a_restart_that_goes_forth_and_back_does_not_progress() {
    for kind in [Kind::StatefulSet, Kind::DaemonSet] {
        let (mut memory, mut now) = (Memory::default(), 101);
        let ends = (0..1000).find(|turn| {
            now += 7;
            // It becomes Ready for a moment, over and over again.
            matches!(watched(&mut memory, &[under_restart(kind, 3, 1, turn % 2)], now).0, Next::Failed(_))
        });
        assert!(ends.is_some_and(|turn| (8..=10).contains(&turn)), "{kind:?}: {ends:?}");
        // A new leader waits anew.
        let mut anew = Memory::default();
        assert!(matches!(watched(&mut anew, &[under_restart(kind, 3, 1, 1)], now).0, Next::Wait(_)));
        assert!(matches!(watched(&mut anew, &[under_restart(kind, 3, 1, 1)], now + 60).0, Next::Failed(_)));
    }
}

/// A Deployment that has just been restarted.
fn restarted() -> Workload {
    Workload { digest: Some("new".to_owned()), restarted: Some(mark(101, "new")), ..workload("web") }
}

#[test]
fn without_a_probe_it_must_stay_up_for_a_while() {
    let mut memory = Memory::default();
    let count = |all| Some(PodRestarts { most: i32::from(all > 0), all });
    let mut look = |progress, restarts: i32, now| {
        let web = Workload { progress, unprobed: true, restarts: count(restarts), ..restarted() };
        watched(&mut memory, &[(web, "new".to_owned())], now).0
    };
    let waits = |next: Next| assert!(matches!(next, Next::Wait(_)), "{next:?}");
    waits(look(Progress::Complete, 0, 102));
    waits(look(Progress::Ended, 0, 105));
    waits(look(Progress::Complete, 0, 106));
    waits(look(Progress::Complete, 1, 112));
    waits(look(Progress::Complete, 1, 113));
    waits(look(Progress::Complete, 1, 122));
    assert_eq!(look(Progress::Complete, 1, 123), Next::Done);
    assert_eq!(look(Progress::Ended, 3, 124), Next::Done, "what happens later is no matter of the restart");
    // With a probe its controller's word is enough.
    let ended = Workload { progress: Progress::Ended, ..restarted() };
    assert_eq!(watched(&mut Memory::default(), &[(ended, "new".to_owned())], 102).0, Next::Done);
}

#[test]
fn without_a_probe_pods_that_crash_again_and_again_fail() {
    let mut memory = Memory::default();
    let mut look = |progress, most, now| {
        let restarts = Some(PodRestarts { most, all: 2 * most });
        let web = Workload { progress, unprobed: true, restarts, ..restarted() };
        watched(&mut memory, &[(web, "new".to_owned())], now).0
    };
    assert!(matches!(look(Progress::Moving, 0, 102), Next::Wait(_)));
    assert!(matches!(look(Progress::Complete, 1, 105), Next::Wait(_)));
    assert!(matches!(look(Progress::Ended, 2, 109), Next::Failed(_)));
    // One that is never up for long, and does not restart, fails by the deadline.
    let mut memory = Memory::default();
    let ends = (0..100).find(|turn| {
        let progress = if turn % 2 == 0 { Progress::Complete } else { Progress::Ended };
        let web = Workload { progress, unprobed: true, ..restarted() };
        matches!(watched(&mut memory, &[(web, "new".to_owned())], 102 + 5 * turn).0, Next::Failed(_))
    });
    assert_eq!(ends, Some(14));
}

#[test]
fn a_template_that_somebody_has_changed_is_reported_and_not_blamed() {
    let theirs = |progress| {
        let before = Some(Restarted { template: Some("before".to_owned()), ..mark(101, "new") });
        Workload { progress, restarted: before, ..restarted() }
    };
    let look =
        |workload: Workload, digest: &str, now| watched(&mut Memory::default(), &[(workload, digest.to_owned())], now);
    assert!(matches!(look(theirs(Progress::Moving), "new", 102).0, Next::Wait(_)), "it may come up");
    let (next, reports) = look(theirs(Progress::Failed), "new", 102);
    assert_eq!((next, reports[0].why.reason), (Next::Done, Reason::TemplateChanged));
    assert_eq!(look(theirs(Progress::Complete), "new", 102), (Next::Done, vec![]));
    // Another config goes on, and does not blame it either.
    let (next, _) = look(theirs(Progress::Failed), "newer", 102);
    assert!(matches!(next, Next::Restart { mark, .. } if mark.unwell && mark.template.as_deref() == Some("template")));
}

#[derive(Clone, Debug)]
enum Happens {
    Looks,
    Comes(usize),
    Breaks(usize),
    Passes(u8),
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        3 => Just(Happens::Looks),
        2 => (0..4_usize).prop_map(Happens::Comes),
        1 => (0..4_usize).prop_map(Happens::Breaks),
        1 => any::<u8>().prop_map(Happens::Passes),
    ]
}

proptest! {
    /// In any order of events: never two restarts that are waited for at the same time, none twice for the same content, and it ends.
    #[test]
    fn one_at_a_time_each_once_and_it_ends(events in proptest::collection::vec(happens(), 0..60), back: bool) {
        let mut all = ["a", "b", "c", "d"].map(open);
        for (workload, _) in &mut all[..2] {
            workload.digest = Some("old".to_owned());
            workload.has_deadline = false;
        }
        let mut count = [0; 4];
        let mut now = 101;
        let mut turn = |all: &mut [(Workload, String)], now| -> Result<Next, TestCaseError> {
            let (step, _) = look(all, back, now);
            if let Some(index) = apply(all, &step) {
                count[index] += 1;
                prop_assert_eq!(count[index], 1, "restarted twice");
                let moving = all.iter().filter(|(workload, digest)| {
                    workload.digest.as_ref() == Some(digest) && workload.progress == Progress::Moving
                        && !workload.restarted.as_ref().is_some_and(|mark| mark.unwell)
                        && !(back && over(workload.restarted.as_ref().unwrap().at, 60, at(now)))
                });
                prop_assert!(moving.count() <= 1, "two at the same time");
            }
            Ok(step)
        };
        for event in events {
            match event {
                Happens::Looks => _ = turn(&mut all, now)?,
                Happens::Comes(index) => all[index].0.progress = Progress::Complete,
                // What has come up stays up, or it is no restart of ours that is looked at.
                Happens::Breaks(index) if all[index].0.restarted.is_none() || all[index].0.progress == Progress::Moving => {
                    all[index].0.progress = Progress::Failed;
                }
                Happens::Breaks(_) => {}
                Happens::Passes(seconds) => now += i64::from(seconds),
            }
        }
        for _ in 0..60 {
            now += 10;
            match turn(&mut all, now)? {
                Next::Done | Next::Failed(_) => return Ok(()),
                _ => {}
            }
            all.iter_mut().filter(|(workload, _)| workload.progress == Progress::Moving).for_each(|(workload, _)| {
                workload.progress = Progress::Complete;
            });
        }
        prop_assert!(false, "it does not end");
    }
}
