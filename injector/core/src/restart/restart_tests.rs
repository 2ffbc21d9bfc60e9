//! The order of the workloads' restarts, and their outcomes.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use nudge_api::{PartKind, Reason};
use proptest::prelude::*;

use super::*;
use crate::owners::{WorkloadId, WorkloadKind};

pub(super) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// Returns a healthy Deployment that has not been restarted.
pub(super) fn workload(name: &str) -> Workload {
    Workload {
        kind: WorkloadKind::Deployment,
        name: name.to_owned(),
        uid: format!("uid-of-{name}"),
        uses: ConfigUses {
            objects: [((PartKind::ConfigMap, "shop".to_owned()), ReadKeys::All)].into(),
            ..ConfigUses::default()
        },
        digest: None,
        last_mark: None,
        owner: None,
        update_block: None,
        progress: WorkloadProgress::Complete,
        replicas: None,
        is_unprobed: false,
        min_ready_seconds: 0,
        containers: ["app".to_owned()].into(),
        restarts: None,
        template: "template".into(),
        has_deadline: true,
    }
}

pub(super) fn mark(second: i64, digest: &str) -> RestartMark {
    let template = workload("web").template;
    RestartMark { at: at(second), digest: digest.into(), whole: "whole".into(), template, before: HealthBefore::Well }
}

/// The same, with the digest that it should have.
pub(super) fn open(name: &str) -> TargetedWorkload {
    TargetedWorkload { workload: workload(name), digest: "new".into(), whole: "whole".into() }
}

fn look(workloads: &[TargetedWorkload], back: bool, now: i64) -> (NextRestart, Vec<ObjectReport>) {
    look_behind(workloads, &BTreeMap::new(), back, now)
}

fn look_behind(
    workloads: &[TargetedWorkload],
    behind: &BTreeMap<WorkloadId, usize>,
    back: bool,
    now: i64,
) -> (NextRestart, Vec<ObjectReport>) {
    let memory = RestartAttempts::default();
    next_restart(&RestartSituation {
        workloads,
        behind,
        is_return: back,
        is_undecided: false,
        since: at(100),
        deadline_seconds: 60,
        settle_seconds: 10,
        attempts: &memory,
        now: at(now),
    })
}

/// Carries out the decision, as the API server would.
fn apply(workloads: &mut [TargetedWorkload], next: &NextRestart) -> Option<usize> {
    let NextRestart::Restart { index, mark } = next else { return None };
    let TargetedWorkload { workload, .. } = &mut workloads[*index];
    workload.digest = Some(mark.digest.clone());
    workload.last_mark = Some(mark.clone());
    workload.progress = WorkloadProgress::Moving;
    Some(*index)
}

#[test]
fn one_after_the_other_and_then_done() {
    let mut all = [open("a"), open("b")];
    for index in 0..2 {
        let (step, _) = look(&all, false, 101);
        assert_eq!(apply(&mut all, &step), Some(index));
        assert_eq!(
            look(&all, false, 500).0,
            NextRestart::Wait(format!("{} is being restarted", all[index].workload.id()))
        );
        all[index].workload.progress = WorkloadProgress::Complete;
    }
    assert_eq!(look(&all, false, 500), (NextRestart::Done, vec![]));
}

#[test]
fn a_restart_that_does_not_complete_fails_by_its_own_deadline_or_by_ours() {
    let mut all = [open("a")];
    let (step, _) = look(&all, false, 101);
    apply(&mut all, &step);
    all[0].workload.progress = WorkloadProgress::Failed;
    assert!(matches!(look(&all, false, 102).0, NextRestart::Failed(_)));
    (all[0].workload.progress, all[0].workload.has_deadline) = (WorkloadProgress::Moving, false);
    assert!(matches!(look(&all, false, 160).0, NextRestart::Wait(_)));
    assert!(matches!(look(&all, false, 161).0, NextRestart::Failed(_)));
}

#[test]
fn a_version_is_not_blamed_for_what_was_unwell_or_restarted_before() {
    let mut all = [open("a"), open("b"), open("c")];
    all[0].workload.progress = WorkloadProgress::Moving;
    all[2].workload.progress = WorkloadProgress::Failed;
    all[2].workload.digest = Some("new".into());
    all[2].workload.last_mark = Some(mark(99, "new"));
    let (step, _) = look(&all, false, 101);
    assert_eq!(apply(&mut all, &step), Some(1), "the one that is well first");
    all[1].workload.progress = WorkloadProgress::Complete;
    let (step, _) = look(&all, false, 102);
    assert_eq!(apply(&mut all, &step), Some(0));
    let (last, reports) = look(&all, false, 999);
    assert_eq!((last, reports[0].why.reason), (NextRestart::Done, Reason::Unwell));
}

#[test]
fn another_config_of_the_same_workload_waits_for_the_restart_and_does_not_switch_its_check_off() {
    let both = |workload: &Workload, digest: &str, now| {
        let all = [TargetedWorkload { workload: workload.clone(), digest: digest.into(), whole: "whole".into() }];
        let memory = RestartAttempts::default();
        // The second config came to restarting ten seconds after the first.
        [100, 110].map(|since| {
            let (behind, since, now) = (&BTreeMap::new(), at(since), at(now));
            next_restart(&RestartSituation {
                workloads: &all,
                behind,
                is_return: false,
                is_undecided: false,
                since,
                deadline_seconds: 60,
                settle_seconds: 10,
                attempts: &memory,
                now,
            })
            .0
        })
    };
    let mut all = [open("web")];
    let (step, _) = look(&all, false, 101);
    apply(&mut all, &step);
    let mut web = all[0].workload.clone();
    // The second is published, so that both want another template.
    assert!(both(&web, "newer", 112).iter().all(|next| matches!(next, NextRestart::Wait(_))));
    web.progress = WorkloadProgress::Failed;
    assert!(
        matches!(both(&web, "newer", 113), [NextRestart::Failed(_), NextRestart::Wait(_)]),
        "the first one's fault"
    );
    web.progress = WorkloadProgress::Complete;
    let [_, step] = both(&web, "newer", 114);
    assert!(matches!(&step, NextRestart::Restart { mark, .. } if mark.before == HealthBefore::Well), "{step:?}");
    let mut all = [TargetedWorkload { workload: web.clone(), digest: "newer".into(), whole: "whole".into() }];
    apply(&mut all, &step);
    all[0].workload.progress = WorkloadProgress::Failed;
    assert!(
        both(&all[0].workload, "newer", 115).iter().all(|next| matches!(next, NextRestart::Failed(_))),
        "it is of both now"
    );
    // A workload that an older rollout has left unhealthy is waited for no longer than its deadline.
    web.progress = WorkloadProgress::Moving;
    let [_, step] = both(&web, "newer", 161);
    assert!(matches!(step, NextRestart::Restart { mark, .. } if mark.before == HealthBefore::Unwell));
    assert!(
        matches!(
            look(&[TargetedWorkload { workload: web, digest: "newer".into(), whole: "whole".into() }], true, 112).0,
            NextRestart::Restart { .. }
        ),
        "the way back is not held up"
    );
}

#[test]
fn on_the_way_back_only_what_was_restarted_is_restarted_and_nothing_fails() {
    let mut all = [open("a"), open("b")];
    all[1].workload.digest = Some("bad".into());
    all[1].workload.progress = WorkloadProgress::Failed;
    all[1].workload.last_mark = Some(mark(90, "bad"));
    let (step, _) = look(&all, true, 101);
    assert_eq!(apply(&mut all, &step), Some(1));
    all[1].workload.progress = WorkloadProgress::Failed;
    assert!(matches!(look(&all, true, 102).0, NextRestart::Wait(_)));
    let (end, reports) = look(&all, true, 161);
    assert_eq!((end, reports[0].why.reason), (NextRestart::Done, Reason::NotBack));
}

#[test]
fn the_way_back_of_one_does_not_wait_for_the_health_of_another() {
    let mut all = ["a", "b", "c"].map(open);
    for TargetedWorkload { workload, .. } in &mut all {
        (workload.digest, workload.last_mark) = (Some("bad".into()), Some(mark(90, "bad")));
        workload.progress = WorkloadProgress::Failed;
    }
    for index in 0..3 {
        let (step, _) = look(&all, true, 101);
        assert_eq!(apply(&mut all, &step), Some(index), "none of them comes up");
    }
    assert!(matches!(look(&all, true, 102).0, NextRestart::Wait(_)), "the end waits for all");
}

#[test]
fn on_the_way_back_what_somebody_else_restarted_is_restarted_too() {
    let all = [open("a")];
    assert_eq!(look(&all, true, 101).0, NextRestart::Done);
    let behind = [("Deployment/a".into(), 1)].into();
    assert!(matches!(look_behind(&all, &behind, true, 101).0, NextRestart::Restart { .. }));
}

#[test]
fn held_undone_and_owned_workloads_are_reported() {
    let mut all = [open("a"), open("b"), open("c")];
    all[0].workload.update_block = Some(UpdateBlock::Paused);
    all[1].workload.owner = Some("Prometheus/main".to_owned());
    all[2].workload.last_mark = Some(mark(101, "new"));
    let (step, _) = look(&all, false, 102);
    assert_eq!(apply(&mut all, &step), Some(0));
    let (end, reports) = look(&all, false, 103);
    let reasons: Vec<_> = reports.iter().map(|report| report.why.reason).collect();
    assert_eq!((end, reasons), (NextRestart::Done, vec![Reason::Owned, Reason::Paused, Reason::Undone]));
}

#[test]
fn a_workload_that_a_tool_replaces_is_restarted_once_by_a_leader() {
    let mut memory = RestartAttempts::default();
    let look = |workload: &Workload, digest: &str, memory: &RestartAttempts| {
        let all = [TargetedWorkload { workload: workload.clone(), digest: digest.into(), whole: "whole".into() }];
        let behind = &BTreeMap::new();
        next_restart(&RestartSituation {
            workloads: &all,
            behind,
            is_return: false,
            is_undecided: false,
            since: at(100),
            deadline_seconds: 60,
            settle_seconds: 10,
            attempts: memory,
            now: at(102),
        })
    };
    // Template and marks are again those of the tool.
    let mut web = workload("web");
    assert!(matches!(look(&web, "new", &memory).0, NextRestart::Restart { .. }), "a new leader does not know of it");
    memory.note_restart(&web, &"new".into());
    let (end, reports) = look(&web, "new", &memory);
    assert_eq!((end, reports[0].why.reason), (NextRestart::Done, Reason::Undone));
    assert!(matches!(look(&web, "newer", &memory).0, NextRestart::Restart { .. }), "other content");
    // Another config that it uses went there and back.
    web.digest = Some("newer".into());
    web.last_mark = Some(mark(101, "newer"));
    assert!(matches!(look(&web, "new", &memory).0, NextRestart::Restart { .. }));
    web.last_mark = Some(mark(99, "newer"));
    assert_eq!(look(&web, "new", &memory).0, NextRestart::Done, "a copy of an older state");
    web.uid = "anew".to_owned();
    assert!(matches!(look(&web, "new", &memory).0, NextRestart::Restart { .. }), "another object");
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
    /// In any order of events: none is restarted twice for the same content, and it ends. Forward, never are two waited
    /// for at the same time.
    #[test]
    fn one_at_a_time_each_once_and_it_ends(events in proptest::collection::vec(happens(), 0..60), back: bool) {
        let mut all = ["a", "b", "c", "d"].map(open);
        for TargetedWorkload { workload, .. } in &mut all[..2] {
            workload.digest = Some("old".into());
            workload.has_deadline = false;
        }
        let (mut count, mut up, mut memory) = ([0; 4], [false; 4], RestartAttempts::default());
        let mut now = 101;
        let mut turn = |all: &mut [TargetedWorkload], now| -> Result<NextRestart, TestCaseError> {
            for (TargetedWorkload { workload, digest, .. }, up) in all.iter().zip(&mut up) {
                memory.observe(workload, 10, at(now));
                *up |= workload.digest.as_ref() == Some(digest) && workload.progress == WorkloadProgress::Complete;
            }
            let (workloads, behind, memory, now) = (&*all, &BTreeMap::new(), &memory, at(now));
            let (step, _) = next_restart(&RestartSituation { workloads, behind, is_return: back, is_undecided: false, since: at(100), deadline_seconds: 60, settle_seconds: 10, attempts: memory, now });
            if let NextRestart::Failed(message) = &step {
                let blamed = all.iter().zip(up).find(|(TargetedWorkload { workload, .. }, _)| message.starts_with(workload.id().as_str()));
                prop_assert!(!blamed.unwrap().1, "what has come up says nothing any more");
            }
            if let Some(index) = apply(all, &step) {
                count[index] += 1;
                prop_assert_eq!(count[index], 1, "restarted twice");
                let moving = all.iter().zip(up).filter(|(TargetedWorkload { workload, digest, .. }, up)| {
                    workload.digest.as_ref() == Some(digest) && workload.progress == WorkloadProgress::Moving && !up
                        && !workload.last_mark.as_ref().is_some_and(|mark| mark.before == HealthBefore::Unwell)
                });
                prop_assert!(back || moving.count() <= 1, "two at the same time");
            }
            Ok(step)
        };
        for event in events {
            match event {
                Happens::Looks => _ = turn(&mut all, now)?,
                Happens::Comes(index) => all[index].workload.progress = WorkloadProgress::Complete,
                Happens::Breaks(index) => {
                    let came_up = all[index].workload.last_mark.is_some() && all[index].workload.progress == WorkloadProgress::Complete;
                    all[index].workload.progress = if came_up { WorkloadProgress::Moving } else { WorkloadProgress::Failed };
                }
                Happens::Passes(seconds) => now += i64::from(seconds),
            }
        }
        for _ in 0..60 {
            now += 10;
            match turn(&mut all, now)? {
                NextRestart::Done | NextRestart::Failed(_) => return Ok(()),
                _ => {}
            }
            all.iter_mut().filter(|targeted| targeted.workload.progress == WorkloadProgress::Moving).for_each(|TargetedWorkload { workload, .. }| {
                workload.progress = WorkloadProgress::Complete;
            });
        }
        prop_assert!(false, "it does not end");
    }
}

#[test]
fn nothing_more_is_restarted_while_it_is_open_whether_the_version_harms() {
    let look = |all: &[TargetedWorkload], held, now| {
        let (behind, memory) = (&BTreeMap::new(), &RestartAttempts::default());
        let look = RestartSituation {
            workloads: all,
            behind,
            is_return: false,
            is_undecided: held,
            since: at(100),
            deadline_seconds: 60,
            settle_seconds: 10,
            attempts: memory,
            now: at(now),
        };
        next_restart(&look).0
    };
    let mut all = [open("api"), open("web")];
    let step = look(&all, false, 101);
    apply(&mut all, &step);
    all[0].workload.progress = WorkloadProgress::Complete;
    assert_eq!(look(&all, true, 110), NextRestart::Wait(UNDECIDED_MESSAGE.to_owned()));
    let step = look(&all, false, 111);
    assert!(matches!(step, NextRestart::Restart { index: 1, .. }), "{step:?}");
    apply(&mut all, &step);
    all[1].workload.progress = WorkloadProgress::Failed;
    assert!(matches!(look(&all, true, 112), NextRestart::Failed(_)), "what did not come up fails all the same");
    all[1].workload.progress = WorkloadProgress::Complete;
    assert_eq!(look(&all, true, 113), NextRestart::Done, "nothing is left that could be held");
}
