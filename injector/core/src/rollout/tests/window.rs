//! Whole rollouts by a simulated clock, over changes of daylight saving time.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use nudge_api::{ConfigState, Day, Hold, Reason, RolloutSpec, Window};

use super::scene::{Nature, Scene, USUAL};
use super::{TestRollout, failure, reason};
use crate::governance::{EffectiveRules, Policies, rules_gate};
use crate::rollout::{Effects, Now, SteadyTime};

fn millis(time: &str) -> i64 {
    time.parse::<Timestamp>().unwrap().as_millisecond()
}

/// A rollout with this window on Sundays in Berlin, at this time.
fn sunday(from: &str, to: &str, time: &str) -> Scene {
    let window = Window {
        name: "sunday".to_owned(),
        days: vec![Day::Sun],
        from: from.to_owned(),
        to: to.to_owned(),
        time_zone: "Europe/Berlin".to_owned(),
    };
    let mut rollout = TestRollout::new(&[("web", 8)]);
    rollout.spec = RolloutSpec { windows: vec![window], ..rollout.spec };
    rollout.millis = millis(time);
    Scene::of(rollout, Nature::Good)
}

/// Applies the spec's rules of this moment.
fn ruled(scene: &mut Scene) {
    let time = Time(Timestamp::from_millisecond(scene.rollout.millis).unwrap());
    let now = Now { time: &time, steady: SteadyTime(scene.rollout.millis) };
    scene.rollout.closed_gate = rules_gate(&EffectiveRules::of(&scene.rollout.spec, &Policies::default()), now);
}

fn second(scene: &mut Scene) -> Effects {
    ruled(scene);
    scene.second()
}

/// A look each second until this time.
fn until(scene: &mut Scene, time: &str) -> Effects {
    let mut effects = Effects::default();
    while scene.rollout.millis < millis(time) {
        effects = second(scene);
        assert_eq!(failure(&scene.rollout), None, "the deadline does not count");
    }
    effects
}

#[test]
fn a_window_that_closes_in_the_middle_stops_it_and_the_hour_that_comes_again_continues() {
    // 02:20 to 02:30 comes twice on the night of 25 October.
    let mut scene = sunday("02:20", "02:30", "2026-10-25T00:00:00Z");
    let effects = until(&mut scene, "2026-10-25T00:20:00Z");
    assert_eq!((reason(&effects), scene.exposed), (Some(Reason::OutsideWindow), 0));
    let message = effects.continuation.explanation().unwrap().message.clone();
    assert!(message.ends_with("2026-10-25 02:20 Europe/Berlin (00:20 UTC)"), "{message}");
    until(&mut scene, "2026-10-25T00:21:00Z");
    assert!(scene.exposed > 0, "it began with the window");
    // Somebody requests it a minute before the end: most steps are left.
    let mut scene = sunday("02:20", "02:30", "2026-10-25T00:29:00Z");
    until(&mut scene, "2026-10-25T00:30:00Z");
    let assigned = scene.rollout.assigned("2");
    assert!((1..8).contains(&assigned), "{assigned}");
    let effects = until(&mut scene, "2026-10-25T01:20:00Z");
    assert_eq!((scene.rollout.assigned("2"), reason(&effects)), (assigned, Some(Reason::OutsideWindow)));
    let message = effects.continuation.explanation().unwrap().message.clone();
    assert!(message.ends_with("2026-10-25 02:20 Europe/Berlin (01:20 UTC)"), "{message}");
    while !scene.is_current() {
        second(&mut scene);
        assert!(scene.rollout.millis <= millis("2026-10-25T01:20:00Z") + USUAL * 1000, "it continued");
    }
}

#[test]
fn what_begins_in_the_hour_that_does_not_exist_begins_when_clocks_have_changed() {
    let mut scene = sunday("02:30", "05:00", "2026-03-29T00:50:00Z");
    let effects = until(&mut scene, "2026-03-29T01:00:00Z");
    assert_eq!((reason(&effects), scene.exposed), (Some(Reason::OutsideWindow), 0));
    let message = effects.continuation.explanation().unwrap().message.clone();
    assert!(message.ends_with("2026-03-29 03:00 Europe/Berlin (01:00 UTC)"), "{message}");
    second(&mut scene);
    assert_eq!(scene.exposed, 1);
}

#[test]
fn a_window_that_does_not_exist_this_time_is_waited_for_a_week_with_a_look_an_hour() {
    let mut scene = sunday("02:15", "02:45", "2026-03-29T00:00:00Z");
    let (mut looks, opens) = (0, millis("2026-04-05T00:15:00Z"));
    loop {
        ruled(&mut scene);
        let effects = scene.rollout.rest(scene.requested);
        let Some(SteadyTime(next)) = effects.reconcile_at.filter(|_| reason(&effects) == Some(Reason::OutsideWindow))
        else {
            break;
        };
        assert!(next > scene.rollout.millis && next <= opens);
        scene.rollout.millis = next;
        looks += 1;
    }
    assert_eq!((scene.rollout.millis, scene.rollout.assigned("2")), (opens, 1), "at once when it opens");
    assert!((168..=171).contains(&looks), "{looks}");
}

#[test]
fn outside_of_a_window_it_goes_back_and_takes_an_override() {
    let start = |nature| {
        let mut scene = sunday("02:00", "03:00", "2026-10-25T01:58:30Z");
        scene.nature = nature;
        until(&mut scene, "2026-10-25T02:00:00Z");
        assert!((1..8).contains(&scene.rollout.assigned("2")));
        scene
    };
    // A step that has gone out is watched all the same.
    let mut scene = start(Nature::Good);
    until(&mut scene, "2026-10-25T06:00:00Z");
    scene.nature = Nature::Crashes;
    while !scene.is_back() {
        second(&mut scene);
        assert!(scene.rollout.millis < millis("2026-10-25T06:10:00Z"));
    }
    assert!(matches!(scene.rollout.status.state(), ConfigState::RollingBack | ConfigState::Failed));
    // Somebody goes back.
    let mut scene = start(Nature::Good);
    scene.requested = "1";
    second(&mut scene);
    assert_eq!(scene.rollout.assigned("2"), 0);
    // Somebody cannot wait.
    let mut scene = start(Nature::Good);
    scene.rollout.override_reason = Some("outage");
    second(&mut scene);
    assert_eq!(scene.rollout.assigned("2"), 8);
}

#[test]
fn a_hold_ends_by_itself_at_its_second() {
    let mut scene = sunday("00:00", "24:00", "2026-10-25T10:00:00Z");
    let until_ = Time("2026-10-25T12:30:00Z".parse().unwrap());
    scene.rollout.spec.hold = Some(Hold { until_time: Some(until_), reason: "audit".to_owned(), protected: false });
    let effects = until(&mut scene, "2026-10-25T12:30:00Z");
    assert_eq!((reason(&effects), scene.exposed, effects.continuation.yields()), (Some(Reason::OnHold), 0, true));
    second(&mut scene);
    assert_eq!(scene.exposed, 1);
}
