//! Rollouts that are held: by somebody, by numbers that say too little, by another config on the same pods.

use nudge_api::Reason;

use super::scene::{Nature, Scene, USUAL, each};
use super::{TestRollout, failure, on_hold, reason, steps};
use crate::rollout::Subject;

#[test]
fn what_was_harmed_before_an_outage_holds_after_it() {
    // In the bake there is nothing to compare with, so the verdict takes two windows. The API server is away.
    let mut scene = Scene::new(&[("web", 8)], Nature::Good);
    scene.watch(130);
    scene.rollout.pods[..4].iter_mut().for_each(Subject::fall);
    scene.watch(40);
    assert_eq!(scene.rollout.assigned("2"), 8);
    scene.rollout.evidence.reset_after_gap();
    assert_eq!(scene.is_stopped(700), Reason::ProgressDeadlineExceeded);
}

#[test]
fn what_is_inconclusive_stays_it_when_the_evidence_begins_anew() {
    let mut scene = Scene::new(&[("web", 40)], Nature::Good);
    scene.rollout.spec.steps = steps(&["25%", "50%"]);
    scene.rollout.spec.steps[0].pause_seconds = 840;
    scene.watch(830);
    // All pods are down, and the first 15 minutes end in the middle of the outage.
    scene.rollout.pods.iter_mut().for_each(Subject::fall);
    for _ in 0..300 {
        let effects = scene.second();
        assert!(scene.seconds < 850 || reason(&effects) == Some(Reason::Inconclusive), "{effects:?}");
        assert_eq!(scene.rollout.assigned("2"), 10);
    }
    scene.rollout.pods.iter_mut().for_each(Subject::recover);
    scene.passes(USUAL);
}

#[test]
fn time_in_which_a_rollout_is_only_watched_is_no_delay() {
    let mut scene = Scene::new(&[("web", 8)], Nature::Good);
    scene.rollout.spec.bake_seconds = 3_600;
    // One pod is unready for a second now and then, long after the last progress.
    scene.passes_while(3_800, |scene| match scene.seconds % 900 {
        890 => scene.rollout.pods[0].fall(),
        891 => scene.rollout.pods[0].recover(),
        _ => {}
    });
    // Rare troubles of a long bake do not add up to an outage either.
    let mut scene = Scene::new(&[("web", 8)], Nature::Good);
    scene.rollout.spec.bake_seconds = 20_000;
    scene.passes_while(22_000, |scene| match scene.seconds % 2_000 {
        1_800 => scene.rollout.pods[0].fall(),
        1_900 => scene.rollout.pods[0].recover(),
        _ => {}
    });
    // One that is so every other second makes no progress, and does not hold for ever.
    let mut scene = Scene::new(&[("web", 8)], Nature::Good);
    scene.watch(60);
    let reason = scene.is_stopped_while(1_300, |scene| {
        let even = scene.seconds % 2 == 0;
        scene.rollout.with("2").into_iter().for_each(|pod| if even { pod.fall() } else { pod.recover() });
    });
    assert_eq!(reason, Reason::ProgressDeadlineExceeded);
}

/// Both configs are in the same pods: each config sees the effects of the other config on a pod.
fn share(from: &Scene, to: &mut Scene) {
    for (from, to) in from.rollout.pods.iter().zip(&mut to.rollout.pods) {
        let (runs, seen) = (to.runs.clone(), from.clone());
        *to = Subject { runs, ..seen };
    }
}

/// One second of both. A config waits for the other while that is moved, and does not yield.
fn both(held: &mut Scene, other: &mut Scene, yields: &mut [bool; 2]) -> Option<Reason> {
    let moving = |scene: &Scene| scene.rollout.status.rollout.stage.is_some();
    held.rollout.neighbour = (moving(other) && !yields[1]).then_some("other");
    let effects = held.second();
    yields[0] = effects.continuation.yields();
    other.rollout.neighbour = (moving(held) && !yields[0]).then_some("held");
    yields[1] = other.second().continuation.yields();
    share(other, held);
    reason(&effects)
}

#[test]
fn two_configs_on_the_same_pods_of_which_one_is_held() {
    each(|nature| {
        let mut held = Scene::new(&[("web", 8)], Nature::Good);
        let mut other = Scene::new(&[("web", 8)], nature);
        other.requested = "1";
        let mut yields = [false; 2];
        for _ in 0..20 {
            both(&mut held, &mut other, &mut yields);
        }
        held.rollout.closed_gate = Some(on_hold());
        other.requested = "2";
        for _ in 0..USUAL + 10 {
            both(&mut held, &mut other, &mut yields);
        }
        assert_eq!((held.rollout.assigned("2"), failure(&held.rollout)), (1, None), "on hold");
        assert_eq!((other.is_current(), other.is_back()), (nature == Nature::Good, nature != Nature::Good));
        held.rollout.closed_gate = None;
        let began = held.seconds;
        while !held.is_current() {
            both(&mut held, &mut other, &mut yields);
            assert_eq!(failure(&held.rollout), None);
            // A pod that restarted because of the other is not healthy for ten minutes, and holds nothing.
            assert!(held.seconds - began < USUAL, "{nature:?} {:?}", held.rollout.status.rollout);
        }
    });
}

#[test]
fn a_config_without_anybody_to_judge_lets_another_one_pass() {
    let mut held = Scene::new(&[("web", 8)], Nature::Good);
    let mut other = Scene::new(&[("web", 8)], Nature::Good);
    other.requested = "1";
    other.rollout.pods.iter_mut().for_each(Subject::fall);
    share(&other, &mut held);
    let mut yields = [false; 2];
    for _ in 0..30 {
        both(&mut held, &mut other, &mut yields);
    }
    assert_eq!((yields[0], held.rollout.assigned("2")), (true, 1));
    // The other one has the fix.
    other.requested = "2";
    for _ in 0..400 {
        other.rollout.with("2").into_iter().for_each(Subject::recover);
        both(&mut held, &mut other, &mut yields);
    }
    assert!(other.is_current(), "{:?}", other.rollout.status.rollout);
    for _ in 0..USUAL + 40 {
        both(&mut held, &mut other, &mut yields);
    }
    assert!(held.is_current(), "{:?}", held.rollout.status.rollout);
}

#[test]
fn a_pod_whose_report_may_wait_in_our_own_line_is_not_silent_for_a_minute_more() {
    for (line, patience) in [(0, 30), (25_000, 55), (60_000, 90), (3_600_000, 90), (-5, 30)] {
        let mut rollout = TestRollout::new(&[("web", 4)]);
        rollout.report_wait = line;
        rollout.rest("2");
        assert_eq!(reason(&rollout.watch("2", patience - 1)), Some(Reason::Progressing), "{line}");
        assert_eq!(reason(&rollout.watch("2", 2)), Some(Reason::NotAcknowledged), "{line}");
        // The line is gone, and the pods that wait no longer are judged by the time of the spec.
        rollout.report_wait = 0;
        rollout.take();
        rollout.watch("2", 38);
        assert_eq!(rollout.assigned("2"), 2, "{line}");
    }
}
