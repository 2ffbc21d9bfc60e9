//! Versions that may not continue although nothing is wrong with them.

use nudge_api::{ConfigState, OnFailure, Reason};

use super::scene::{BAD, Nature, Scene, USUAL};
use super::{TestRollout, failure, reason};
use crate::rollout::ClosedGate;

fn closed_gate(reason: Reason) -> ClosedGate {
    ClosedGate { why: reason.explained("it may not continue"), recheck_at: None, ends_at: None, keeps_message: false }
}

#[test]
fn nothing_begins_and_it_begins_when_it_may() {
    for reason_ in [Reason::AwaitingApproval, Reason::OutsideWindow, Reason::OnHold] {
        let mut scene = Scene::new(&[("web", 8)], Nature::Good);
        scene.rollout.closed_gate = Some(closed_gate(reason_));
        for _ in 0..2_000 {
            let effects = scene.second();
            assert_eq!((reason(&effects), effects.continuation.yields()), (Some(reason_), true));
        }
        assert_eq!((scene.exposed, failure(&scene.rollout)), (0, None));
        assert_eq!(scene.rollout.status.target_version.as_deref(), Some("2"), "it is visible");
        scene.rollout.closed_gate = None;
        scene.passes(USUAL);
    }
}

#[test]
fn a_step_a_bake_and_the_publication_wait_for_days() {
    // In the first step, in the middle, and in the bake.
    for at in [20, 60, 130] {
        let mut scene = Scene::new(&[("web", 8)], Nature::Good);
        scene.watch(at);
        let assigned = scene.rollout.assigned("2");
        scene.rollout.closed_gate = Some(closed_gate(Reason::OutsideWindow));
        scene.watch(3 * 3_600);
        assert_eq!((scene.rollout.assigned("2"), scene.is_current()), (assigned, false), "{at}");
        assert_eq!(failure(&scene.rollout), None, "{at}: the deadline does not count");
        scene.hand_over();
        scene.watch(60);
        scene.rollout.closed_gate = None;
        scene.passes(USUAL);
    }
}

#[test]
fn what_is_assigned_already_is_judged_and_goes_back() {
    for nature in BAD {
        let mut scene = Scene::new(&[("web", 8)], Nature::Good);
        scene.watch(20);
        scene.rollout.closed_gate = Some(closed_gate(Reason::OutsideWindow));
        scene.watch(3_600);
        scene.nature = nature;
        scene.is_stopped(900);
        assert_eq!((scene.exposed, scene.is_back()), (1, true), "{nature:?}");
    }
}

#[test]
fn the_way_back_and_an_override_do_not_wait() {
    let mut scene = Scene::new(&[("web", 8)], Nature::Good);
    scene.passes(USUAL);
    scene.rollout.closed_gate = Some(closed_gate(Reason::OnHold));
    scene.requested = "1";
    scene.second();
    assert_eq!((scene.rollout.assigned("2"), scene.rollout.status.current_version.as_deref()), (0, Some("1")));

    let mut scene = Scene::new(&[("web", 8)], Nature::Good);
    scene.rollout.closed_gate = Some(closed_gate(Reason::AwaitingApproval));
    scene.watch(30);
    scene.rollout.override_reason = Some("outage");
    scene.second();
    assert_eq!(scene.rollout.assigned("2"), 8);
    scene.passes(USUAL);
}

#[test]
fn a_version_that_failed_stays_failed() {
    let mut scene = Scene::new(&[("web", 8)], Nature::Crashes);
    scene.rollout.spec.on_failure = OnFailure::Rollback;
    scene.is_stopped(100);
    scene.rollout.closed_gate = Some(closed_gate(Reason::OnHold));
    scene.watch(700);
    assert_eq!(scene.rollout.status.state(), ConfigState::Failed);
}

#[test]
fn the_first_version_waits_for_approval_and_for_nothing_else() {
    for (why, waits) in [(Reason::AwaitingApproval, true), (Reason::OutsideWindow, false), (Reason::OnHold, false)] {
        let mut rollout = TestRollout::new(&[("web", 2)]);
        rollout.status = nudge_api::VersionedConfigStatus::default();
        rollout.pods.iter_mut().for_each(|pod| pod.runs = None);
        rollout.closed_gate = Some(closed_gate(why));
        let effects = rollout.rest("1");
        assert_eq!((rollout.status.current_version.is_none(), reason(&effects) == Some(why)), (waits, waits), "{why}");
        rollout.closed_gate = None;
        rollout.rest("1");
        assert_eq!(rollout.status.current_version.as_deref(), Some("1"));
    }
}

#[test]
fn a_config_that_is_deleted_and_made_again_has_no_first_version_for_its_pods() {
    for why in [Reason::AwaitingApproval, Reason::OutsideWindow, Reason::OnHold, Reason::PoliciesUnknown] {
        let mut rollout = TestRollout::new(&[("web", 2)]);
        rollout.rest("1");
        rollout.status = nudge_api::VersionedConfigStatus::default();
        rollout.pods[0].runs = Some("1".to_owned());
        rollout.closed_gate = Some(closed_gate(why));
        assert_eq!((reason(&rollout.rest("2")), rollout.assigned("2")), (Some(why), 0), "{why}");
        rollout.override_reason = Some("outage");
        rollout.rest("2");
        assert_eq!(rollout.status.current_version.as_deref(), Some("2"), "{why}");
    }
}
