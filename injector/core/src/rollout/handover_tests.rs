//! A leader that is away, and one that takes over in each state of a rollout with the stored status alone.

use nudge_api::{OnFailure, Phase, Reason, RolloutStage};

use super::state::{Cause, Stage};
use super::test_world::{BAD, Nature, USUAL, World};
use super::tests::{failure, reason};
use super::{Restarts, Rollout};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

fn state(world: &World) -> Rollout {
    Rollout::from_status(&world.rollout.status, &Time(Timestamp::from_second(1).unwrap()))
}

#[test]
fn with_nothing_in_the_way_a_version_is_current_in_three_minutes() {
    for workloads in [vec![("web", 1)], vec![("web", 8)], vec![("web", 40), ("api", 60)]] {
        World::new(&workloads, Nature::Good).passes(USUAL);
    }
}

#[test]
fn a_leader_that_is_away_during_a_step_does_no_harm_to_a_good_version() {
    for away in [5, 60, 3600] {
        for at in [1, 20, 38, 60, 90, 130] {
            let mut world = World::new(&[("web", 8)], Nature::Good);
            world.watch(at);
            world.nobody_looks(away);
            world.hand_over();
            world.passes(USUAL);
        }
    }
}

#[test]
fn a_bad_version_does_not_pass_while_leaders_come_and_go() {
    for nature in BAD {
        for at in 1..60 {
            let mut world = World::new(&[("web", 8)], nature);
            for _ in 0..at {
                world.second();
            }
            world.nobody_looks(7);
            world.hand_over();
            world.is_stopped(700);
            assert!(world.exposed <= 2, "{nature:?} at {at}: {}", world.exposed);
        }
    }
}

#[test]
fn a_bad_version_does_not_pass_where_no_leader_lasts() {
    for nature in BAD {
        for lasts in [3, 10, 30, 50] {
            let mut world = World::new(&[("web", 8)], nature);
            for second in 0..1000 {
                world.second();
                if second % lasts == 0 {
                    world.hand_over();
                }
                assert!(!world.is_current(), "{nature:?}, each for {lasts} s");
            }
            assert!(world.exposed <= 4, "{nature:?}, each for {lasts} s: {}", world.exposed);
        }
    }
}

/// A good rollout in this state.
fn moving(state: Stage) -> World {
    let mut world = World::new(&[("web", 8)], Nature::Good);
    if state == Stage::Restarting {
        world.rollout.restart = Restarts::Busy("Deployment/api is on its way".to_owned());
    }
    let stage = match state {
        Stage::Moving => RolloutStage::Moving,
        Stage::Baking => RolloutStage::Baking,
        Stage::Restarting => RolloutStage::Restarting,
    };
    while world.rollout.status.rollout.stage != Some(stage) {
        world.second();
        assert!(world.seconds < 300, "{stage:?}");
    }
    world
}

#[test]
fn another_leader_goes_on_in_each_stage() {
    for stage in [Stage::Moving, Stage::Baking, Stage::Restarting] {
        for after in [0, 1, 15, 36] {
            let mut world = moving(stage);
            world.watch(after);
            let (revision, assigned) = (world.rollout.status.rollout.revision, world.rollout.assigned("2"));
            world.hand_over();
            world.rollout.rest("2");
            assert_eq!(
                (world.rollout.status.rollout.revision, world.rollout.assigned("2")),
                (revision, assigned),
                "a take-over assigns nothing: {stage:?}"
            );
            world.rollout.restart = Restarts::Done;
            world.passes(USUAL);
        }
    }
}

#[test]
fn another_leader_stops_in_each_stage_what_gets_bad_then() {
    for stage in [Stage::Moving, Stage::Baking, Stage::Restarting] {
        for nature in BAD {
            let mut world = moving(stage);
            world.hand_over();
            world.nature = nature;
            world.is_stopped(900);
            assert_eq!(world.rollout.assigned("1"), 8, "{stage:?} {nature:?}");
        }
    }
}

#[test]
fn another_leader_waits_again_in_the_bake() {
    let mut world = moving(Stage::Baking);
    world.watch(50);
    world.hand_over();
    world.watch(36);
    assert_eq!(world.rollout.status.rollout.stage, Some(RolloutStage::Baking), "it has watched for 36 s itself");
    world.passes(5);
}

#[test]
fn another_leader_ends_each_way_back() {
    // The target failed.
    let mut failed = World::new(&[("web", 8)], Nature::Crashes);
    while !failed.is_back() {
        failed.live(1);
        failed.rollout.watch("2", 1);
    }
    // It is not requested any more.
    let mut left = moving(Stage::Moving);
    left.requested = "1";
    left.rollout.rest("1");
    // The previous one is requested.
    let mut returned = World::new(&[("web", 8)], Nature::Good);
    returned.passes(USUAL);
    returned.requested = "1";
    returned.rollout.rest("1");
    let causes = [
        (failed, Phase::Failed, "RollingBack"),
        (left, Phase::Current, "Leaving"),
        (returned, Phase::Current, "Returning"),
    ];
    for (mut world, phase, name) in causes {
        let before = state(&world);
        let kind = match &before {
            Rollout::Back(_, Cause::RollingBack(_)) => "RollingBack",
            Rollout::Back(_, Cause::Leaving(_)) => "Leaving",
            Rollout::Back(_, Cause::Returning) => "Returning",
            _ => "none",
        };
        assert_eq!((kind, world.rollout.assigned("1")), (name, 8));
        world.hand_over();
        world.rollout.rest(world.requested);
        assert_eq!(state(&world), before, "nothing has moved yet");
        world.watch(10);
        let status = &world.rollout.status;
        assert_eq!((status.phase, status.current.as_deref()), (phase, Some("1")), "{name}");
        assert_eq!(failure(&world.rollout).is_some(), name == "RollingBack");
    }
}

#[test]
fn another_leader_keeps_a_pause_and_goes_on_after_it() {
    // Before the beginning, and in the middle of a step.
    for at in [0, 20] {
        let mut world = World::new(&[("web", 8)], Nature::Good);
        world.watch(at);
        world.rollout.spec.paused = true;
        world.watch(5);
        world.hand_over();
        let effects = world.second();
        assert_eq!((reason(&effects), effects.yields()), (Some(Reason::Paused), true));
        assert_eq!(matches!(state(&world), Rollout::Paused(..)), at == 0);
        let assigned = world.rollout.assigned("2");
        world.watch(3600);
        assert_eq!(world.rollout.assigned("2"), assigned, "{at}");
        world.rollout.spec.paused = false;
        world.passes(USUAL);
    }
}

#[test]
fn another_leader_keeps_waiting_and_does_not_try_again_what_failed() {
    let mut world = World::new(&[("web", 8)], Nature::Good);
    world.rollout.neighbour = Some("keys");
    world.watch(5);
    world.hand_over();
    assert_eq!((reason(&world.second()), world.exposed), (Some(Reason::WaitingFor), 0));
    assert!(matches!(state(&world), Rollout::Waiting(_)));
    world.rollout.neighbour = None;
    world.passes(USUAL);

    let mut world = World::new(&[("web", 8)], Nature::Crashes);
    world.is_stopped(60);
    world.watch(60);
    assert_eq!(world.rollout.status.phase, Phase::Failed);
    world.hand_over();
    world.watch(3600);
    assert!(matches!(state(&world), Rollout::Failed(..)));
    assert_eq!((world.rollout.assigned("1"), world.exposed), (8, 1));
    // Somebody fixes the cause, and changes the spec.
    world.nature = Nature::Good;
    world.rollout.generation += 1;
    for _ in 0..900 {
        world.second();
    }
    assert!(world.is_current(), "{:?}", world.rollout.status.rollout);
}

#[test]
fn another_leader_keeps_what_stands_still() {
    let mut world = World::new(&[("web", 8)], Nature::Crashes);
    world.rollout.spec.on_failure = OnFailure::Pause;
    world.watch(20);
    world.hand_over();
    let effects = world.second();
    assert_eq!((reason(&effects), effects.held, world.exposed), (Some(Reason::Failed), true, 1));
}

#[test]
fn another_leader_holds_what_was_inconclusive_until_pods_are_well_again() {
    for recover in [true, false] {
        // Everybody is unready: a dependency is away.
        let mut world = World::new(&[("web", 40)], Nature::Good);
        world.watch(60);
        let assigned = world.rollout.assigned("2");
        world.rollout.pods.iter_mut().for_each(super::Subject::fall);
        world.watch(30);
        assert_eq!(reason(&world.second()), Some(Reason::Inconclusive));
        world.hand_over();
        world.watch(60);
        assert_eq!((world.rollout.assigned("2"), failure(&world.rollout)), (assigned, None));
        if recover {
            world.rollout.pods.iter_mut().for_each(super::Subject::recover);
            world.passes(USUAL);
        } else {
            assert_eq!(world.is_stopped(620), Reason::ProgressDeadlineExceeded);
        }
    }
}

#[test]
fn what_follows_soon_on_another_leader_is_not_what_follows_soon_on_a_notification() {
    let mut world = World::new(&[("web", 40)], Nature::Good);
    world.watch(70);
    world.hand_over();
    world.watch(2);
    // A dependency is away: those with the version fall one second before the others.
    world.rollout.with("2").into_iter().for_each(super::Subject::fall);
    world.watch(1);
    world.rollout.pods.iter_mut().for_each(super::Subject::fall);
    world.watch(60);
    world.rollout.pods.iter_mut().for_each(super::Subject::recover);
    world.passes(USUAL);
}
