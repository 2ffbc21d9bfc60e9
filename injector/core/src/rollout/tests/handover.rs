//! A leader that is away, and one that takes over in each state of a rollout with the stored status alone.

use nudge_api::{ConfigState, OnFailure, Reason, RolloutStage};

use super::scene::{BAD, Nature, Scene, USUAL};
use super::{failure, on_hold, reason};
use crate::rollout::state::{Cause, Return, Stage};
use crate::rollout::{Restarts, Rollout};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

fn state(scene: &Scene) -> Rollout {
    Rollout::from_status(&scene.rollout.status, &Time(Timestamp::from_second(1).unwrap()))
}

#[test]
fn with_nothing_in_the_way_a_version_is_current_in_three_minutes() {
    for workloads in [vec![("web", 1)], vec![("web", 8)], vec![("web", 40), ("api", 60)]] {
        Scene::new(&workloads, Nature::Good).passes(USUAL);
    }
}

#[test]
fn a_leader_that_is_away_during_a_step_does_no_harm_to_a_good_version() {
    for away in [5, 60, 3600] {
        for at in [1, 20, 38, 60, 90, 130] {
            let mut scene = Scene::new(&[("web", 8)], Nature::Good);
            scene.watch(at);
            scene.nobody_looks(away);
            scene.hand_over();
            scene.passes(USUAL);
        }
    }
}

#[test]
fn a_bad_version_does_not_pass_while_leaders_come_and_go() {
    for nature in BAD {
        for at in (1..12).chain((12..60).step_by(4)) {
            let mut scene = Scene::new(&[("web", 8)], nature);
            for _ in 0..at {
                scene.second();
            }
            scene.nobody_looks(7);
            scene.hand_over();
            scene.is_stopped(700);
            assert!(scene.exposed <= 2, "{nature:?} at {at}: {}", scene.exposed);
        }
    }
}

#[test]
fn a_bad_version_does_not_pass_where_no_leader_lasts() {
    for nature in BAD {
        for lasts in [3, 10, 30, 50] {
            let mut scene = Scene::new(&[("web", 8)], nature);
            for second in 0..1000 {
                scene.second();
                if second % lasts == 0 {
                    scene.hand_over();
                }
                assert!(!scene.is_current(), "{nature:?}, each for {lasts} s");
            }
            assert!(scene.exposed <= 4, "{nature:?}, each for {lasts} s: {}", scene.exposed);
        }
    }
}

/// A good rollout in this state.
fn moving(state: Stage) -> Scene {
    let mut scene = Scene::new(&[("web", 8)], Nature::Good);
    if state == Stage::Restarting {
        scene.rollout.restart = Restarts::Busy("Deployment/api is on its way".to_owned());
    }
    let stage = match state {
        Stage::Moving => RolloutStage::Moving,
        Stage::Baking => RolloutStage::Baking,
        Stage::Restarting => RolloutStage::Restarting,
    };
    while scene.rollout.status.rollout.stage != Some(stage) {
        scene.second();
        assert!(scene.seconds < 300, "{stage:?}");
    }
    scene
}

#[test]
fn another_leader_continues_in_each_stage() {
    for stage in [Stage::Moving, Stage::Baking, Stage::Restarting] {
        for after in [0, 1, 15, 36] {
            let mut scene = moving(stage);
            scene.watch(after);
            let (revision, assigned) = (scene.rollout.status.internal.revision, scene.rollout.assigned("2"));
            scene.hand_over();
            scene.rollout.rest("2");
            assert_eq!(
                (scene.rollout.status.internal.revision, scene.rollout.assigned("2")),
                (revision, assigned),
                "a take-over assigns nothing: {stage:?}"
            );
            scene.rollout.restart = Restarts::Done;
            scene.passes(USUAL);
        }
    }
}

#[test]
fn another_leader_stops_in_each_stage_what_gets_bad_then() {
    for stage in [Stage::Moving, Stage::Baking, Stage::Restarting] {
        for nature in BAD {
            let mut scene = moving(stage);
            scene.hand_over();
            scene.nature = nature;
            scene.is_stopped(900);
            assert_eq!(scene.rollout.assigned("1"), 8, "{stage:?} {nature:?}");
        }
    }
}

#[test]
fn another_leader_waits_again_in_the_bake() {
    let mut scene = moving(Stage::Baking);
    scene.watch(50);
    scene.hand_over();
    scene.watch(36);
    assert_eq!(scene.rollout.status.rollout.stage, Some(RolloutStage::Baking), "it has watched for 36 s itself");
    scene.passes(5);
}

#[test]
fn a_leader_whose_clock_was_ahead_does_not_prolong_the_bake() {
    for ahead in [30, 300] {
        let mut scene = moving(Stage::Baking);
        let began = scene.rollout.status.rollout.progress_time.as_mut().unwrap();
        *began = MicroTime(began.0 + SignedDuration::from_secs(ahead));
        scene.hand_over();
        scene.watch(59);
        assert_eq!(scene.rollout.status.rollout.stage, Some(RolloutStage::Baking), "it has watched for 59 s itself");
        scene.passes(10);
    }
}

#[test]
fn a_leader_whose_clock_was_ahead_does_not_prolong_a_hold() {
    let mut scene = moving(Stage::Moving);
    let step = scene.rollout.status.rollout.step;
    scene.rollout.spec.steps[step as usize - 1].pause_seconds = 600;
    let stepped = scene.rollout.status.rollout.step_time.as_mut().unwrap();
    *stepped = Time(stepped.0 + SignedDuration::from_mins(5));
    scene.hand_over();
    scene.watch(620);
    assert_eq!(scene.rollout.status.rollout.step, step, "it has held it for about as long itself");
    scene.watch(60);
    assert!(scene.rollout.status.rollout.step > step);
}

#[test]
fn a_leader_whose_clock_was_ahead_does_not_prolong_a_return() {
    for ahead in [60, 3600] {
        let mut rollout = Scene::new(&[("web", 8)], Nature::Good).rollout;
        rollout.walk("2");
        // No pod takes version 1 again.
        rollout.rest("1");
        let deadline = i64::from(rollout.spec.progress_deadline_seconds);
        let began = rollout.status.rollout.progress_time.as_mut().unwrap();
        *began = MicroTime(began.0 + SignedDuration::from_secs(ahead));
        rollout.watch("1", deadline - 1);
        assert_eq!(rollout.status.state(), ConfigState::RollingBack);
        rollout.watch("1", 2);
        assert_eq!(rollout.status.state(), ConfigState::Current, "{ahead}");
    }
}

#[test]
fn another_leader_ends_each_way_back() {
    // The target failed.
    let mut failed = Scene::new(&[("web", 8)], Nature::Crashes);
    while !failed.is_back() {
        failed.live(1);
        failed.rollout.watch("2", 1);
    }
    // The version is not requested any more.
    let mut left = moving(Stage::Moving);
    left.requested = "1";
    left.rollout.rest("1");
    // The previous one is requested.
    let mut returned = Scene::new(&[("web", 8)], Nature::Good);
    returned.passes(USUAL);
    returned.requested = "1";
    returned.rollout.rest("1");
    let causes = [
        (failed, ConfigState::Failed, "RollingBack"),
        (left, ConfigState::Current, "Leaving"),
        (returned, ConfigState::Current, "Returning"),
    ];
    for (mut scene, end, name) in causes {
        let before = state(&scene);
        let kind = match &before {
            Rollout::Back(Return { cause: Cause::RollingBack(_), .. }) => "RollingBack",
            Rollout::Back(Return { cause: Cause::Leaving(_), .. }) => "Leaving",
            Rollout::Back(Return { cause: Cause::Returning, .. }) => "Returning",
            _ => "none",
        };
        assert_eq!((kind, scene.rollout.assigned("1")), (name, 8));
        scene.hand_over();
        scene.rollout.rest(scene.requested);
        assert_eq!(state(&scene), before, "nothing has moved yet");
        scene.watch(10);
        let status = &scene.rollout.status;
        assert_eq!((status.state(), status.current_version.as_deref()), (end, Some("1")), "{name}");
        assert_eq!(failure(&scene.rollout).is_some(), name == "RollingBack");
    }
}

#[test]
fn another_leader_keeps_a_hold_and_continues_after_it() {
    // Before the beginning, and in the middle of a step, which is watched first.
    for at in [0, 20] {
        let mut scene = Scene::new(&[("web", 8)], Nature::Good);
        scene.watch(at);
        scene.rollout.closed_gate = Some(on_hold());
        scene.watch(60);
        scene.hand_over();
        assert_eq!(matches!(state(&scene), Rollout::NotBegun { .. }), at == 0);
        scene.watch(60);
        let effects = scene.second();
        assert_eq!((reason(&effects), effects.continuation.yields()), (Some(Reason::OnHold), true));
        let assigned = scene.rollout.assigned("2");
        scene.watch(3600);
        assert_eq!(scene.rollout.assigned("2"), assigned, "{at}");
        scene.rollout.closed_gate = None;
        scene.passes(USUAL);
    }
}

#[test]
fn another_leader_keeps_waiting_and_does_not_try_again_what_failed() {
    let mut scene = Scene::new(&[("web", 8)], Nature::Good);
    scene.rollout.neighbour = Some("keys");
    scene.watch(5);
    scene.hand_over();
    assert_eq!((reason(&scene.second()), scene.exposed), (Some(Reason::WaitingFor), 0));
    assert!(matches!(state(&scene), Rollout::Waiting(_)));
    scene.rollout.neighbour = None;
    scene.passes(USUAL);

    let mut scene = Scene::new(&[("web", 8)], Nature::Crashes);
    scene.is_stopped(60);
    scene.watch(60);
    assert_eq!(scene.rollout.status.state(), ConfigState::Failed);
    scene.hand_over();
    scene.watch(3600);
    assert!(matches!(state(&scene), Rollout::Failed { .. }));
    assert_eq!((scene.rollout.assigned("1"), scene.exposed), (8, 1));
    // Somebody fixes the cause, and changes something else of the spec.
    scene.nature = Nature::Good;
    scene.rollout.generation += 1;
    scene.watch(60);
    assert!(matches!(state(&scene), Rollout::Failed { .. }));
    scene.rollout.retry();
    for _ in 0..900 {
        scene.second();
    }
    assert!(scene.is_current(), "{:?}", scene.rollout.status.rollout);
}

#[test]
fn another_leader_keeps_what_stands_still() {
    let mut scene = Scene::new(&[("web", 8)], Nature::Crashes);
    scene.rollout.spec.on_failure = OnFailure::Hold;
    scene.watch(20);
    scene.hand_over();
    let effects = scene.second();
    assert_eq!((reason(&effects), effects.continuation.is_blocked(), scene.exposed), (Some(Reason::Failed), true, 1));
}

#[test]
fn another_leader_holds_what_was_inconclusive_until_pods_are_well_again() {
    for recover in [true, false] {
        // Everybody is unready: a dependency is away.
        let mut scene = Scene::new(&[("web", 40)], Nature::Good);
        scene.watch(60);
        let assigned = scene.rollout.assigned("2");
        scene.rollout.pods.iter_mut().for_each(crate::rollout::Subject::fall);
        scene.watch(30);
        assert_eq!(reason(&scene.second()), Some(Reason::Inconclusive));
        scene.hand_over();
        scene.watch(60);
        assert_eq!((scene.rollout.assigned("2"), failure(&scene.rollout)), (assigned, None));
        if recover {
            scene.rollout.pods.iter_mut().for_each(crate::rollout::Subject::recover);
            scene.passes(USUAL);
        } else {
            assert_eq!(scene.is_stopped(620), Reason::ProgressDeadlineExceeded);
        }
    }
}

#[test]
fn what_follows_soon_on_another_leader_is_not_what_follows_soon_on_a_notification() {
    let mut scene = Scene::new(&[("web", 40)], Nature::Good);
    scene.watch(70);
    scene.hand_over();
    scene.watch(2);
    // A dependency is away: pods with the version fall one second before the other pods.
    scene.rollout.with("2").into_iter().for_each(crate::rollout::Subject::fall);
    scene.watch(1);
    scene.rollout.pods.iter_mut().for_each(crate::rollout::Subject::fall);
    scene.watch(60);
    scene.rollout.pods.iter_mut().for_each(crate::rollout::Subject::recover);
    scene.passes(USUAL);
}
