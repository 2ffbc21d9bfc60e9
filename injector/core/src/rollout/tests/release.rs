//! The records of releases.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use nudge_api::{OnFailure, Reason, Release, ReleaseOutcome, ReleaseStep};

use super::TestRollout;
use super::scene::{Nature, Scene, USUAL};
use crate::requester::{Requester, Requesters};
use crate::rollout::{fit_releases, newly_ended_releases, release_summary};

fn last(rollout: &TestRollout) -> &Release {
    rollout.status.releases.last().unwrap()
}

fn outcomes(rollout: &TestRollout) -> Vec<(&str, Option<&str>, Option<ReleaseOutcome>)> {
    let all = rollout.status.releases.iter();
    all.map(|release| (release.version.as_str(), release.from_version.as_deref(), release.outcome)).collect()
}

fn ask(rollout: &mut TestRollout, user: &str) {
    let at = Timestamp::from_millisecond(rollout.millis).unwrap();
    rollout.requesters = Requesters { current: Some(Requester::new(user, at)), overridden: None, retry: None };
}

#[test]
fn a_good_version_is_recorded_with_its_steps_and_numbers() {
    let mut scene = Scene::new(&[("web", 8)], Nature::Good);
    ask(&mut scene.rollout, "alice");
    let began = scene.rollout.millis / 1000;
    scene.passes(USUAL);
    assert_eq!(outcomes(&scene.rollout), [("2", Some("1"), Some(ReleaseOutcome::Current))]);
    let release = last(&scene.rollout);
    assert_eq!(release.steps.iter().map(|step| step.pods).collect::<Vec<_>>(), [1, 2, 4, 8]);
    assert!(release.steps.is_sorted_by_key(|step| step.start_time.0));
    assert_eq!(release.steps[0].start_time.0.as_second(), began);
    assert_eq!(release.requested_by.as_deref(), Some("alice"));
    assert_eq!((release.start_time.0.as_second(), release.reason), (began, None));
    let evidence = release.evidence.as_ref().unwrap();
    assert_eq!((evidence.assigned, evidence.harmed), (8, 0));
    assert!(release.end_time.is_some());
}

#[test]
fn a_bad_version_is_recorded_with_what_was_found() {
    for nature in [Nature::Unready, Nature::Crashes] {
        let mut scene = Scene::new(&[("web", 8)], nature);
        let reason = scene.is_stopped(USUAL);
        let open = last(&scene.rollout).clone();
        assert_eq!((open.reason, open.end_time.clone(), open.outcome), (Some(reason), None, None), "pods still return");
        scene.watch(60);
        assert_eq!(outcomes(&scene.rollout), [("2", Some("1"), Some(ReleaseOutcome::RolledBack))]);
        let release = last(&scene.rollout);
        assert_eq!((&release.message, release.reason), (&open.message, Some(reason)));
        assert!(release.evidence.as_ref().is_some_and(|evidence| evidence.harmed >= 1), "{release:?}");
        assert_eq!(release.steps.len(), 1);
        assert_eq!(release.requested_by, None, "nobody knows");
        // The version is not tried again, so nothing more is recorded.
        scene.watch(60);
        assert_eq!(scene.rollout.status.releases.len(), 1);
    }
}

#[test]
fn a_failure_that_holds_the_move_is_open_until_somebody_acts() {
    let mut scene = Scene::new(&[("web", 8)], Nature::Crashes);
    scene.rollout.spec.on_failure = OnFailure::Hold;
    scene.watch(USUAL);
    assert_eq!(outcomes(&scene.rollout), [("2", Some("1"), Some(ReleaseOutcome::Held))]);
    let held = last(&scene.rollout).clone();
    assert!(held.end_time.is_none() && held.reason.is_some() && held.message.is_some());
    scene.nature = Nature::Good;
    scene.rollout.pods.iter_mut().for_each(crate::rollout::Subject::recover);
    scene.rollout.retry();
    scene.passes(2 * USUAL);
    let two = [ReleaseOutcome::Held, ReleaseOutcome::Current].map(|outcome| ("2", Some("1"), Some(outcome)));
    assert_eq!(outcomes(&scene.rollout), two);
    let [first, again] = &scene.rollout.status.releases[..] else { panic!() };
    assert_eq!((&first.evidence, &first.message), (&held.evidence, &held.message));
    assert_eq!(first.end_time.as_ref(), Some(&again.start_time));
    assert_eq!((again.reason, &again.message), (None, &None));
    assert_eq!((&first.requested_by, again.requested_by.as_deref()), (&None, Some("joe")));
}

#[test]
fn a_failure_that_held_the_move_may_be_rolled_back_or_left() {
    for (requested, on_failure, expected) in
        [("2", OnFailure::Rollback, ReleaseOutcome::RolledBack), ("1", OnFailure::Hold, ReleaseOutcome::Left)]
    {
        let mut scene = Scene::new(&[("web", 8)], Nature::Crashes);
        scene.rollout.spec.on_failure = OnFailure::Hold;
        scene.watch(USUAL);
        let held = last(&scene.rollout).clone();
        (scene.requested, scene.rollout.spec.on_failure) = (requested, on_failure);
        scene.rollout.generation += 1;
        scene.watch(60);
        let release = last(&scene.rollout);
        assert_eq!(outcomes(&scene.rollout), [("2", Some("1"), Some(expected))]);
        assert_eq!((release.reason, &release.message), (held.reason, &held.message), "why it was held");
    }
}

#[test]
fn a_target_that_is_left_is_a_release_that_ended() {
    let mut scene = Scene::new(&[("web", 8)], Nature::Good);
    scene.watch(60);
    scene.requested = "3";
    scene.watch(60);
    let [left, open] = &scene.rollout.status.releases[..] else { panic!("{:?}", scene.rollout.status.releases) };
    assert_eq!((left.outcome, left.reason), (Some(ReleaseOutcome::Left), Some(Reason::Leaving)));
    assert_eq!(left.message.as_deref(), Some("version 2 is not requested any more"));
    assert_eq!((open.version.as_str(), open.from_version.as_deref(), open.outcome), ("3", Some("1"), None));
    assert!(left.end_time.as_ref().is_some_and(|end| end.0 <= open.start_time.0));
}

#[test]
fn a_return_to_the_previous_version_is_a_release_of_its_own() {
    let mut scene = Scene::new(&[("web", 8)], Nature::Good);
    scene.passes(USUAL);
    scene.requested = "1";
    ask(&mut scene.rollout, "bob");
    scene.watch(1);
    let open = last(&scene.rollout);
    assert_eq!((open.version.as_str(), open.from_version.as_deref(), open.outcome), ("1", Some("2"), None));
    scene.watch(60);
    let release = last(&scene.rollout);
    assert_eq!(outcomes(&scene.rollout)[1..], [("1", Some("2"), Some(ReleaseOutcome::Returned))]);
    assert_eq!(release.requested_by.as_deref(), Some("bob"));
    assert_eq!(release.steps, [ReleaseStep { start_time: release.start_time.clone(), pods: 8 }]);
}

#[test]
fn a_return_while_a_target_is_moved_to_leaves_that_one() {
    let mut scene = Scene::new(&[("web", 8)], Nature::Good);
    scene.passes(USUAL);
    scene.requested = "3";
    scene.watch(60);
    scene.requested = "1";
    scene.watch(60);
    let expected =
        [("2", "1", ReleaseOutcome::Current), ("3", "2", ReleaseOutcome::Left), ("1", "2", ReleaseOutcome::Returned)];
    assert_eq!(outcomes(&scene.rollout), expected.map(|(version, from, outcome)| (version, Some(from), Some(outcome))));
}

#[test]
fn an_override_says_why_and_who_did_it() {
    let mut scene = Scene::new(&[("web", 8)], Nature::Good);
    ask(&mut scene.rollout, "alice");
    scene.watch(20);
    scene.rollout.override_reason = Some("outage");
    let at = Timestamp::from_millisecond(scene.rollout.millis).unwrap();
    scene.rollout.requesters.overridden = Some(Requester::new("bob", at));
    scene.watch(1);
    let release = last(&scene.rollout);
    let by = release.overridden.as_ref().unwrap();
    assert_eq!((release.requested_by.as_deref(), by.requested_by.as_deref()), (Some("alice"), Some("bob")));
    assert_eq!(by.reason, "outage");
    assert_eq!(release.steps.iter().map(|step| step.pods).collect::<Vec<_>>(), [1, 8]);
}

/// Somebody writes back an old object while admission is away: its requester is older than a later release.
#[test]
fn an_older_requester_than_one_that_was_recorded_is_none() {
    let mut scene = Scene::new(&[("web", 8)], Nature::Good);
    ask(&mut scene.rollout, "alice");
    let old = scene.rollout.requesters.clone();
    scene.passes(USUAL);
    ask(&mut scene.rollout, "bob");
    scene.requested = "3";
    scene.watch(20);
    assert_eq!(last(&scene.rollout).requested_by.as_deref(), Some("bob"));
    scene.rollout.requesters = old.clone();
    scene.requested = "2";
    scene.watch(300);
    scene.requested = "4";
    scene.watch(20);
    assert_eq!((last(&scene.rollout).version.as_str(), &last(&scene.rollout).requested_by), ("4", &None));
    assert!(old.current.is_some());
}

#[test]
fn a_clock_that_was_ahead_makes_nobody_unknown() {
    let mut scene = Scene::new(&[("web", 2)], Nature::Good);
    let ahead = Timestamp::from_millisecond(scene.rollout.millis + 86_400_000).unwrap();
    scene.rollout.requesters.current = Some(Requester::new("alice", ahead));
    scene.watch(5);
    assert_eq!(last(&scene.rollout).requested_by.as_deref(), Some("alice"));
    scene.requested = "3";
    ask(&mut scene.rollout, "bob");
    scene.watch(5);
    assert_eq!(
        (last(&scene.rollout).version.as_str(), last(&scene.rollout).requested_by.as_deref()),
        ("3", Some("bob"))
    );
}

#[test]
fn what_a_leader_finds_open_it_continues_with() {
    for hand_over_at in (0..USUAL).step_by(20) {
        let mut scene = Scene::new(&[("web", 8)], Nature::Good);
        ask(&mut scene.rollout, "alice");
        scene.watch(hand_over_at);
        scene.hand_over();
        scene.passes(2 * USUAL);
        assert_eq!(outcomes(&scene.rollout), [("2", Some("1"), Some(ReleaseOutcome::Current))]);
        assert_eq!(last(&scene.rollout).steps.len(), 4);
    }
    // One that began under a release without records.
    let mut scene = Scene::new(&[("web", 8)], Nature::Good);
    scene.watch(60);
    let start_time = last(&scene.rollout).start_time.clone();
    scene.rollout.status.releases.clear();
    scene.passes(USUAL);
    assert_eq!((outcomes(&scene.rollout).len(), &last(&scene.rollout).start_time), (1, &start_time));
}

#[test]
fn twenty_are_kept_and_the_oldest_go() {
    let mut scene = Scene::new(&[("web", 2)], Nature::Good);
    scene.rollout.spec.bake_seconds = 0;
    let names: Vec<String> = (10..35).map(|number| number.to_string()).collect();
    for name in &names {
        scene.requested = name.clone().leak();
        scene.watch(120);
        assert_eq!(scene.rollout.status.current_version.as_deref(), Some(name.as_str()));
    }
    let kept: Vec<&str> = scene.rollout.status.releases.iter().map(|release| release.version.as_str()).collect();
    assert_eq!(kept, names[5..]);
}

fn large(number: usize) -> Release {
    let at = || Time(Timestamp::from_second(1_790_000_000).unwrap());
    let mut release = Release::new(format!("1.0.{number}"), Some("1.0.0".to_owned()), at());
    (release.end_time, release.outcome) = (Some(at()), Some(ReleaseOutcome::RolledBack));
    (release.requested_by, release.message) = (Some("u".repeat(253)), Some("m".repeat(512)));
    release.steps = vec![ReleaseStep { start_time: at(), pods: u32::MAX }; Release::MAX_STEPS];
    release
}

#[test]
fn older_ones_lose_details_before_any_is_forgotten() {
    let all: Vec<Release> = (0..20).map(large).collect();
    let bytes = |releases: &[Release]| serde_json::to_string(releases).unwrap().len();
    assert_eq!(fit_releases(all.clone(), usize::MAX), all);
    for room in (0..bytes(&all) + 1000).step_by(500) {
        let kept = fit_releases(all.clone(), room);
        assert!(kept.len() == 1 || bytes(&kept) <= room + 2, "{room}: {}", bytes(&kept));
        let newest = kept.last().unwrap();
        assert!(newest.version == "1.0.19" && (bytes(&all[19..]) > room || *newest == all[19]), "{room}");
        assert!(newest.steps.is_empty() == (bytes(&all[19..]) > room + 1), "{room}");
        let whole = kept.iter().rev().take_while(|release| !release.steps.is_empty()).count();
        assert!(kept[..kept.len() - whole].iter().all(|release| release.steps.is_empty() && release.message.is_none()));
        assert!(kept.len() == 20 || whole <= 1, "{room}: details go first");
    }
}

#[test]
fn an_end_is_said_once() {
    let mut scene = Scene::new(&[("web", 8)], Nature::Good);
    ask(&mut scene.rollout, "alice");
    scene.watch(60);
    let before = scene.rollout.status.releases.clone();
    scene.passes(USUAL);
    let after = scene.rollout.status.releases.clone();
    let said: Vec<String> = newly_ended_releases(&before, &after).map(release_summary).collect();
    let took = after[0].end_time.as_ref().unwrap().0.duration_since(after[0].start_time.0).as_secs();
    assert_eq!(said, [format!("release 2 from 1, which alice requested, ended after {took} s: Current")]);
    assert_eq!(newly_ended_releases(&after, &after).count() + newly_ended_releases(&[], &before).count(), 0);
}
