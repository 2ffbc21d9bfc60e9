//! A source with its config, step by step and at random.

use std::collections::BTreeMap;
use std::time::Duration;

use nudge_api::{ConditionType, InvalidVersion, Reason, VersionState, find_condition};
use proptest::prelude::*;
use serde_json::json;

use super::Act;
use super::test_scene::{Scene, running, sealed};

#[test]
fn content_becomes_a_version_that_is_requested() {
    let mut scene = Scene::new();
    scene.settle();
    assert_eq!(scene.source.status.as_ref().unwrap().conditions.len(), 0);
    scene.changes("a");
    scene.settle();
    assert_eq!(scene.acts, [(scene.now, Act::CreateConfig)]);
    scene.is(false, "Settling");
    scene.passes(1999);
    assert_eq!(scene.acts.len(), 1);
    scene.passes(1);
    assert_eq!(
        scene.acts[1..].iter().map(|(_, act)| act).collect::<Vec<_>>(),
        [&Act::Make, &Act::Activate("src-a".into())]
    );
    scene.is(true, "Activated");
    let status = scene.source.status.as_ref().unwrap();
    assert_eq!((status.observed_version.as_deref(), status.version.as_deref()), (Some("src-a"), Some("src-a")));
}

#[test]
fn only_the_newest_content_comes_after_a_rollout() {
    let mut scene = running();
    scene.changes("b");
    scene.passes(2000);
    assert_eq!(scene.activated(), ["src-a", "src-b"]);
    for content in ["c", "d", "e"] {
        scene.passes(100_000);
        scene.changes(content);
        scene.passes(2000);
        scene.is(false, "Progressing");
        assert!(!scene.stalled());
    }
    assert_eq!(scene.source.status.as_ref().unwrap().waiting.as_ref().unwrap().version, "src-e");
    scene.rollout_ends(true);
    assert_eq!(scene.activated(), ["src-a", "src-b", "src-e"]);
    assert!(scene.source.status.as_ref().unwrap().waiting.is_none());
}

#[test]
fn versions_are_a_minute_apart_unless_somebody_asks() {
    let mut scene = running();
    for (content, after) in [("b", 60_000), ("c", 58_000)] {
        scene.changes(content);
        scene.passes(2000);
        if content == "c" {
            scene.is(false, "TooSoon");
            scene.passes(after - 1);
            scene.is(false, "TooSoon");
            scene.passes(1);
        }
        scene.is(true, "Activated");
        scene.rollout_ends(true);
    }
    scene.changes("d");
    scene.sync();
    assert_eq!(scene.activated().last(), Some(&"src-d"));
    scene.rollout_ends(true);
    scene.changes("e");
    scene.passes(2000);
    scene.is(false, "TooSoon");
}

#[test]
fn a_failed_version_is_not_tried_again() {
    let mut scene = running();
    scene.changes("bad");
    scene.passes(2000);
    scene.rollout_ends(false);
    scene.is(false, "Failed");
    assert!(scene.stalled());
    scene.passes(1_000_000);
    scene.changes("good");
    scene.passes(2000);
    scene.rollout_ends(true);
    scene.is(true, "Activated");
    // The bad content comes again. Other content meanwhile does not make it better.
    scene.passes(1_000_000);
    scene.changes("bad");
    scene.passes(2000);
    scene.is(false, "Failed");
    assert_eq!(scene.activated(), ["src-a", "src-bad", "src-good"]);
    scene.sync();
    assert_eq!(scene.activated().last(), Some(&"src-bad"));
}

#[test]
fn a_sync_tries_the_version_that_failed_again_and_once() {
    let mut scene = running();
    scene.changes("bad");
    scene.passes(2000);
    scene.rollout_ends(false);
    scene.is(false, "Failed");
    // The config names it still, so only another attempt is requested.
    scene.sync();
    assert_eq!((scene.activated().len(), scene.retried()), (2, 1));
    scene.is(true, "Activated");
    assert_eq!(scene.status().target_version.as_deref(), Some("src-bad"), "it moves");
    scene.rollout_ends(false);
    scene.passes(1_000_000);
    scene.is(false, "Failed");
    assert_eq!(scene.retried(), 1, "once");
    // Or somebody has named another one since, and given the field back.
    scene.config().spec.version = Some("src-a".to_owned());
    scene.settle();
    scene.is(false, "Failed");
    scene.sync();
    assert_eq!((scene.activated().last(), scene.retried()), (Some(&"src-bad"), 2));
    scene.rollout_ends(true);
    scene.is(true, "Activated");
}

#[test]
fn failed_versions_are_remembered_up_to_a_bound() {
    let mut scene = running();
    for number in 0..12 {
        scene.passes(100_000);
        scene.changes(&number.to_string());
        scene.passes(2000);
        scene.rollout_ends(false);
    }
    let failed = &scene.source.status.as_ref().unwrap().failed_versions;
    assert_eq!((failed.len(), failed[0].as_str(), failed[7].as_str()), (8, "src-4", "src-11"));
}

#[test]
fn somebody_else_pauses_the_source() {
    let mut scene = running();
    scene.taken_by("nudge-cli", "1.0.0");
    scene.is(false, "FieldConflict");
    scene.changes("b");
    scene.passes(100_000);
    scene.is(false, "FieldConflict");
    assert!(scene.stalled());
    assert_eq!(scene.activated(), ["src-a"]);
    scene.config().metadata.managed_fields = None;
    scene.settle();
    assert_eq!(scene.activated(), ["src-a", "src-b"]);
}

#[test]
fn content_that_is_gone_changes_nothing() {
    let mut scene = running();
    scene.gone = true;
    scene.passes(1_000_000);
    scene.is(false, "SourceGone");
    scene.changes("a");
    scene.settle();
    scene.is(true, "Activated");
    assert_eq!(scene.activated(), ["src-a"]);
}

#[test]
fn the_last_version_is_spoken_of_where_there_is_one() {
    for (mut scene, has_one) in [(running(), true), (Scene::new(), false)] {
        scene.gone = true;
        scene.settle();
        let conditions = &scene.source.status.as_ref().unwrap().conditions;
        for kind in [nudge_api::ConditionType::Ready, nudge_api::ConditionType::Fetched] {
            let message = &nudge_api::find_condition(conditions, kind).unwrap().message;
            assert_eq!(message.ends_with("the last version stays as it is"), has_one, "{message}");
            assert_eq!(message.contains("last version"), has_one, "{message}");
        }
    }
}

#[test]
fn older_secrets_go_when_their_source_is_gone_for_long() {
    let hour = 3_600_000;
    let auth = json!({"kubernetes": {"role": "shop", "serviceAccount": "shop"}});
    let vault = json!({"vault": {"address": "https://vault:8200", "auth": auth, "kv": {"path": "shop"}}});
    for (from, goes) in [(vault, true), (json!({"git": {"url": "https://git.example.com/shop"}}), false)] {
        let mut scene = running();
        scene.source.spec.from = serde_json::from_value(from).unwrap();
        let before = scene.acts.len();
        scene.gone = true;
        scene.settle();
        let since = scene.source.status.as_ref().unwrap().gone_time.clone().unwrap();
        scene.passes(24 * hour - 1);
        assert_eq!(scene.acts.len(), before);
        scene.passes(1);
        scene.passes(hour);
        let keep_only = |last: Option<&str>| Act::KeepOnly(last.map(str::to_owned));
        let acts = |scene: &Scene| scene.acts[before..].iter().map(|(_, act)| act.clone()).collect::<Vec<_>>();
        let said = if goes { vec![keep_only(Some("src-a"))] } else { Vec::new() };
        assert_eq!(acts(&scene), said);
        let status = scene.source.status.as_ref().unwrap();
        assert!(status.gone_time.as_ref() == Some(&since), "{status:?}");
        // While it does not work, and when it is back.
        scene.source.spec.suspend = true;
        scene.settle();
        assert_eq!(acts(&scene), said);
        scene.source.spec.suspend = false;
        scene.changes("a");
        scene.settle();
        assert_eq!(acts(&scene)[said.len()..], if goes { vec![keep_only(None)] } else { Vec::new() });
        assert_eq!(scene.source.status.as_ref().unwrap().gone_time, None);
    }
}

#[test]
fn a_source_whose_config_another_has_does_nothing() {
    let mut scene = running();
    scene.rival = Some("older");
    scene.changes("b");
    scene.passes(100_000);
    scene.is(false, "ConfigTaken");
    assert!(scene.stalled());
    scene.rival = None;
    scene.settle();
    assert_eq!(scene.activated(), ["src-a", "src-b"]);
}

#[test]
fn a_suspended_source_does_nothing() {
    let mut scene = running();
    scene.source.spec.suspend = true;
    scene.changes("b");
    scene.passes(100_000);
    scene.is(false, "Suspended");
    assert!(!scene.stalled());
    scene.source.spec.suspend = false;
    scene.settle();
    assert_eq!(scene.activated(), ["src-a", "src-b"]);
}

#[test]
fn near_a_bound_no_version_is_made() {
    let mut scene = running();
    let more = (1..45).map(|number| sealed(&number.to_string()));
    scene.status().versions.extend(more);
    scene.changes("b");
    scene.passes(2000);
    scene.is(false, "HistoryFull");
    scene.status().versions.truncate(44);
    scene.settle();
    assert_eq!(scene.activated(), ["src-a", "src-b"]);
}

#[test]
fn content_that_breaks_a_rule_becomes_no_version_until_it_or_the_rules_change() {
    let mut scene = running();
    scene.refusal = Some(Reason::Invalid.explained("key a.json: it is not JSON"));
    scene.changes("wrong");
    scene.passes(5_000);
    let status = scene.source.status.clone().unwrap();
    for (kind, value) in
        [(ConditionType::Valid, "False"), (ConditionType::Ready, "False"), (ConditionType::Stalled, "True")]
    {
        let found = find_condition(&status.conditions, kind).unwrap();
        assert_eq!((found.status.as_str(), found.reason.as_str()), (value, "Invalid"));
    }
    assert_eq!(scene.activated(), ["src-a"]);
    // Other rules.
    scene.refusal = None;
    scene.passes(60_000);
    assert_eq!(scene.config().spec.version.as_deref(), Some("src-wrong"));
    let status = scene.source.status.clone().unwrap();
    assert_eq!(find_condition(&status.conditions, ConditionType::Valid).unwrap().status, "True");
}

#[test]
fn what_those_who_seal_refuse_is_not_made_again() {
    let mut scene = running();
    scene.status().invalid.push(InvalidVersion {
        version: "src-wrong".into(),
        reason: Reason::Invalid,
        message: "key a.json: it is not JSON".into(),
        rules: String::new(),
        content: String::new(),
    });
    scene.changes("wrong");
    scene.passes(100_000);
    assert_eq!(scene.activated(), ["src-a"]);
    let status = scene.source.status.clone().unwrap();
    let ready = find_condition(&status.conditions, ConditionType::Ready).unwrap();
    assert!(ready.reason == "Invalid" && ready.message.contains("it is not JSON"), "{ready:?}");
}

#[test]
fn by_hand_a_version_is_made_and_not_requested() {
    let mut scene = Scene::new();
    scene.source.spec.activate = nudge_api::Activate::Manual;
    scene.changes("a");
    scene.settle();
    scene.passes(2000);
    scene.is(true, "Made");
    assert!(scene.activated().is_empty());
    scene.taken_by("nudge-cli", "src-a");
    scene.is(true, "Activated");
}

#[test]
fn a_version_whose_objects_are_gone_is_made_again() {
    let mut scene = running();
    scene.status().versions[0].state = VersionState::Broken;
    scene.settle();
    assert_eq!(scene.acts.iter().filter(|(_, act)| *act == Act::Make).count(), 2);
    scene.is(true, "Activated");
}

#[derive(Clone, Debug)]
enum Event {
    Changes(u8),
    Gone,
    Ends(bool),
    Taken,
    Released,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (0_u8..6).prop_map(Event::Changes),
        1 => Just(Event::Gone),
        3 => any::<bool>().prop_map(Event::Ends),
        1 => Just(Event::Taken),
        2 => Just(Event::Released),
    ]
}

proptest! {
    #[test]
    fn a_source_never_interrupts_hurries_or_repeats(events in proptest::collection::vec((event(), 0_i64..40_000), 1..80)) {
        let mut scene = Scene::new();
        let (mut failed, mut made): (BTreeMap<String, i64>, Option<i64>) = (BTreeMap::new(), None);
        for (event, gap) in events {
            let before = scene.acts.len();
            let moving = |scene: &Scene| {
                scene.config.as_ref().and_then(|config| config.status.as_ref()).is_some_and(|status| status.rollout.stage.is_some())
            };
            let (was_moving, ended) = (moving(&scene), matches!(event, Event::Ends(_)));
            match event {
                Event::Changes(content) => scene.changes(&content.to_string()),
                Event::Gone => scene.gone = scene.newest.is_some(),
                Event::Ends(good) if scene.config.is_some() => {
                    if let Some(target) = scene.status().target_version.clone().filter(|_| !good) {
                        failed.insert(target, scene.now);
                    }
                    scene.rollout_ends(good);
                }
                Event::Taken if scene.config.is_some() => scene.taken_by("flux", "1.0.0"),
                Event::Released if scene.config.is_some() => {
                    scene.config().metadata.managed_fields = None;
                    scene.settle();
                }
                _ => {}
            }
            scene.passes(gap);
            for (time, act) in &scene.acts[before..] {
                match act {
                    Act::CreateConfig => {}
                    Act::Make => {
                        prop_assert!(!was_moving || ended);
                        prop_assert!(made.is_none_or(|made| time - made >= 60_000), "{:?}", scene.acts);
                        made = Some(*time);
                    }
                    Act::Activate(version) => {
                        prop_assert!(!failed.contains_key(version), "{} failed", version);
                        prop_assert!(!was_moving || ended);
                    }
                    Act::Retry(_) => prop_assert!(false, "nobody has asked"),
                    Act::KeepOnly(_) => prop_assert!(false, "no Secret"),
                }
            }
            if let Some(status) = &scene.source.status {
                prop_assert!(status.failed_versions.len() <= 8 && status.conditions.len() <= 4);
            }
        }
    }

    /// Whatever came before, the last content becomes current, unless it failed.
    #[test]
    fn the_last_content_is_requested_in_the_end(contents in proptest::collection::vec((0_u8..6, 0_i64..30_000), 1..40)) {
        let mut scene = Scene::new();
        for (content, gap) in &contents {
            scene.changes(&content.to_string());
            scene.passes(*gap);
        }
        for _ in 0..3 {
            scene.passes(Duration::from_secs(70).as_millis().try_into().unwrap());
            if scene.config.is_some() {
                scene.rollout_ends(true);
            }
        }
        let last = format!("src-{}", contents.last().unwrap().0);
        prop_assert_eq!(scene.config().spec.version.as_deref(), Some(last.as_str()));
        scene.is(true, "Activated");
    }
}
