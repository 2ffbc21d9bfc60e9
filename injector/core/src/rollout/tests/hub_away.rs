//! Rollouts while the hub is away.

use nudge_api::{OnFailure, Reason};

use super::scene::{BAD, Nature, Scene, USUAL};
use super::{failure, reason};
use crate::hub_health::HubAway;

#[test]
fn a_hub_that_is_away_for_days_is_not_the_versions_fault() {
    // Before the first step, in the first and in a later step, and in the bake.
    for at in [0, 20, 60, 130] {
        let mut scene = Scene::new(&[("web", 8)], Nature::Good);
        scene.watch(at);
        let assigned = scene.rollout.assigned("2");
        scene.rollout.hub_away = Some(HubAway::NotRenewing);
        for _ in 0..3_000 {
            let effects = scene.second();
            assert_eq!((reason(&effects), effects.continuation.is_blocked()), (Some(Reason::HubAway), true), "{at}");
        }
        assert_eq!((scene.rollout.assigned("2"), scene.is_current()), (assigned, false), "{at}");
        assert_eq!(failure(&scene.rollout), None, "{at}");
        scene.hand_over();
        scene.watch(1_000);
        scene.rollout.hub_away = None;
        scene.passes(USUAL);
    }
}

#[test]
fn what_waits_in_its_line_holds_nothing_of_which_no_pod_owes_a_report() {
    let mut scene = Scene::new(&[("web", 8)], Nature::Good);
    scene.rollout.hub_away = Some(HubAway::NotWriting);
    scene.passes(USUAL);
}

/// A rollout whose step was assigned a moment before the hub went away, so that no pod of it has taken the version.
fn unheard(away: HubAway) -> Scene {
    let mut scene = Scene::new(&[("web", 8)], Nature::Good);
    scene.rollout.rest("2");
    assert_eq!(scene.rollout.assigned("2"), 1);
    scene.rollout.hub_away = Some(away);
    // Nobody requests a look meanwhile.
    for _ in 0..20 {
        scene.rollout.later(100);
        assert_eq!(reason(&scene.rollout.rest("2")), Some(Reason::HubAway));
    }
    scene.rollout.hub_away = None;
    scene
}

#[test]
fn pods_have_all_their_time_again_when_the_hub_is_back() {
    let mut scene = unheard(HubAway::NotRenewing);
    let patience = i64::from(scene.rollout.spec.ack_timeout_seconds);
    // The pods stay silent for almost as long as they may.
    let effects = scene.rollout.watch("2", patience - 1);
    assert_eq!((reason(&effects), failure(&scene.rollout)), (Some(Reason::Progressing), None));
    assert_eq!(reason(&scene.rollout.watch("2", 2)), Some(Reason::NotAcknowledged));
    let mut scene = unheard(HubAway::NotWriting);
    scene.passes(USUAL);
}

#[test]
fn the_deadline_counts_on_when_the_hub_is_back() {
    let mut scene = unheard(HubAway::NotWriting);
    let deadline = i64::from(scene.rollout.spec.progress_deadline_seconds);
    scene.rollout.watch("2", deadline - 10);
    assert_eq!(failure(&scene.rollout), None);
    scene.rollout.watch("2", 20);
    assert_eq!(failure(&scene.rollout).map(|(reason, _)| reason), Some(Reason::ProgressDeadlineExceeded));
}

#[test]
fn a_bad_version_goes_back_without_the_hub() {
    for nature in BAD {
        let mut scene = Scene::new(&[("web", 8)], Nature::Good);
        scene.rollout.spec.on_failure = OnFailure::Rollback;
        scene.watch(20);
        scene.rollout.hub_away = Some(HubAway::NotRenewing);
        scene.watch(3_600);
        scene.nature = nature;
        scene.is_stopped(900);
        assert_eq!((scene.exposed, scene.is_back()), (1, true), "{nature:?}");
    }
}

#[test]
fn a_version_for_all_pods_at_once_is_assigned_and_waits_for_the_hub() {
    let mut scene = Scene::new(&[("web", 8)], Nature::Good);
    scene.rollout.hub_away = Some(HubAway::NotRenewing);
    scene.rollout.override_reason = Some("outage");
    let effects = scene.rollout.rest("2");
    assert_eq!((scene.rollout.assigned("2"), reason(&effects)), (8, Some(Reason::HubAway)));
    scene.rollout.watch("2", 3_600);
    assert_eq!(failure(&scene.rollout), None);
    scene.rollout.hub_away = None;
    scene.passes(USUAL);
}

#[test]
fn where_no_pod_is_moved_the_hub_is_not_waited_for() {
    let mut scene = Scene::new(&[], Nature::Good);
    scene.rollout.hub_away = Some(HubAway::NotRenewing);
    scene.passes(USUAL);
}
