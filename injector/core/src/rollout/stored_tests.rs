//! Statuses that somebody has edited: each is read as a sane state.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use k8s_openapi::jiff::Timestamp;
use nudge_api::{GroupStatus, Phase, Reason, RolloutFailure, RolloutStage, VersionedConfigStatus};

use super::tests::TestRollout;
use super::{ALL, Cause, Rollout, Since, Stage};

const PHASES: [Phase; 5] = [Phase::Waiting, Phase::Current, Phase::Progressing, Phase::RollingBack, Phase::Failed];
const STAGES: [Option<RolloutStage>; 6] = [
    None,
    Some(RolloutStage::Moving),
    Some(RolloutStage::Baking),
    Some(RolloutStage::Restarting),
    Some(RolloutStage::Leaving),
    Some(RolloutStage::RollingBack),
];

fn now() -> Time {
    Time(Timestamp::from_second(1_000).unwrap())
}

fn status(stage: Option<RolloutStage>, phase: Phase) -> VersionedConfigStatus {
    let mut status = VersionedConfigStatus { current: Some("1".to_owned()), phase, ..VersionedConfigStatus::default() };
    status.rollout.stage = stage;
    status
}

fn with_groups(mut status: VersionedConfigStatus) -> VersionedConfigStatus {
    status.rollout.groups = vec![GroupStatus { workload: "web".to_owned(), threshold: ALL }];
    status
}

fn failure(version: &str) -> RolloutFailure {
    let message = "pod a is not Ready".to_owned();
    RolloutFailure { version: version.to_owned(), generation: 1, reason: Reason::PodNotReady, message }
}

/// Fields in all combinations, most of which contradict each other.
fn edited() -> Vec<VersionedConfigStatus> {
    let mut all = Vec::new();
    for stage in STAGES {
        for phase in PHASES {
            for bits in 0..128 {
                let is = |bit: u8| bits & (1 << bit) != 0;
                let mut status = status(stage, phase);
                status.current = is(0).then(|| "1".to_owned());
                status.target = is(1).then(|| if is(2) { "2" } else { "1" }.to_owned());
                status.previous = is(3).then(|| "1".to_owned());
                if is(4) {
                    status = with_groups(status);
                }
                status.rollout.failure = is(5).then(|| failure("3"));
                status.rollout.applied_at = is(6).then(|| MicroTime(now().0));
                status.rollout.unproven_since.clone_from(&status.rollout.applied_at);
                all.push(status);
            }
        }
    }
    all
}

#[test]
fn what_is_read_from_an_edited_status_is_written_without_contradiction() {
    for status in edited() {
        let rollout = Rollout::from_status(&status, &now());
        let written = rollout.clone().into_status(status.clone());
        assert_eq!(Rollout::from_status(&written, &now()), rollout, "{status:?}");
        assert_eq!(written.clone(), rollout.into_status(written.clone()), "{status:?}");
        assert!(written.target.is_none() || written.target != written.current, "{status:?}");
        assert!(written.rollout.stage.is_none() || written.target.is_some(), "{status:?}");
        assert!(written.rollout.applied_at.is_none() || written.rollout.unproven_since.is_none(), "{status:?}");
    }
}

#[test]
fn from_any_edited_status_the_requested_version_becomes_current() {
    for status in edited() {
        let mut rollout = TestRollout::new(&[("web", 2)]);
        rollout.status = status.clone();
        for _ in 0..10 {
            rollout.rest("2");
            rollout.take();
            rollout.later(10_000);
        }
        let end = &rollout.status;
        assert_eq!((end.current.as_deref(), end.phase), (Some("2"), Phase::Current), "{status:?} became {end:?}");
        assert_eq!((&end.target, end.rollout.stage, &end.rollout.failure), (&None, None, &None), "{status:?}");
    }
}

#[test]
fn pods_that_an_edited_status_assigns_another_version_get_another_revision() {
    for stage in [None, Some(RolloutStage::Leaving)] {
        let mut status = with_groups(status(stage, Phase::Current));
        status.target = Some("2".to_owned());
        let written = Rollout::from_status(&status, &now()).into_status(status.clone());
        assert!(written.rollout.groups.is_empty() && written.rollout.revision > status.rollout.revision);
    }
}

#[test]
fn what_contradicts_itself_is_proven_or_left_anew() {
    let mut edited = status(Some(RolloutStage::Moving), Phase::Current);
    edited.target = Some("2".to_owned());
    edited.rollout.applied_at = Some(MicroTime(now().0));
    edited.rollout.unproven_since = Some(MicroTime(now().0));
    let rollout = Rollout::from_status(&edited, &now());
    let Rollout::Forward(moved, Stage::Moving(proof)) = &rollout else { panic!("{rollout:?}") };
    assert_eq!((&proof.since, &moved.began_at), (&Since::Unknown, &now()));
    edited.rollout.stage = Some(RolloutStage::RollingBack);
    let rollout = Rollout::from_status(&edited, &now());
    assert!(matches!(rollout, Rollout::Back(_, Cause::Leaving(None))), "a rollback without a failure: {rollout:?}");
    edited.target = None;
    assert!(matches!(Rollout::from_status(&edited, &now()), Rollout::Current(_)), "nothing to leave");
}
