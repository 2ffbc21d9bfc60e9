//! All changes that weaken a guard, and similar changes that do not.

use k8s_openapi::jiff::Timestamp;
use nudge_api::{RolloutSpec, VersionedConfigSpec};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::weakened_guards::{describe_override, guard_fields, weakened_guards};

fn spec(guards: &Value) -> RolloutSpec {
    serde_json::from_value(guards.clone()).unwrap()
}

/// At the beginning of 2026.
fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn said(old: &Value, new: &Value) -> Vec<String> {
    weakened_guards(&spec(old), &spec(new), now())
}

fn window(days: &[&str], from: &str, to: &str) -> Value {
    json!({"name": "shop", "days": days, "from": from, "to": to, "timeZone": "Europe/Berlin"})
}

fn analysis(change: &Value) -> Value {
    let mut one = json!({
        "name": "errors", "prometheus": {"address": "http://prometheus:9090", "query": "errors"},
        "max": "0.01", "maxRatio": "1.5", "periodSeconds": 30, "failures": 2
    });
    json_patch::merge(&mut one, change);
    json!({"analysis": [one]})
}

#[test]
fn guards_are_four_fields() {
    assert_eq!(guard_fields(&RolloutSpec::default()), Vec::<&str>::new());
    let mut all = analysis(&json!({}));
    all["approval"] = json!({});
    all["windows"] = json!([window(&["Mon"], "09:00", "17:00")]);
    all["hold"] = json!({"reason": "sale", "protected": true});
    assert_eq!(guard_fields(&spec(&all)), ["approval", "windows", "hold", "analysis"]);
    assert_eq!(said(&json!({}), &all), ["protects spec.rollout.hold"], "anybody may add the others");
    assert_eq!(said(&json!({}), &json!({"hold": {"reason": "sale"}})), Vec::<String>::new());
    assert_eq!(said(&all, &all), Vec::<String>::new());
    // How pods are moved is no guard.
    let mut fast = all.clone();
    fast["steps"] = json!([{"pods": "100%"}]);
    (fast["minReadySeconds"], fast["bakeSeconds"]) = (json!(0), json!(0));
    assert_eq!(said(&all, &fast), Vec::<String>::new());
    let removed = said(&all, &json!({}));
    assert_eq!(
        removed,
        [
            "removes spec.rollout.approval",
            "removes spec.rollout.windows",
            "removes spec.rollout.hold, which is protected",
            "removes errors from spec.rollout.analysis"
        ]
    );
}

#[test]
fn fewer_approvals_those_of_authors_and_older_ones_are_less() {
    let approval =
        |required: u32, not_author: bool| json!({"approval": {"required": required, "notAuthor": not_author}});
    assert_eq!(said(&approval(2, true), &approval(1, true)), ["requires 1 approval instead of 2"]);
    assert_eq!(said(&approval(1, true), &approval(1, false)), ["lets authors approve (notAuthor: false)"]);
    assert_eq!(said(&approval(3, true), &approval(2, false)).len(), 2);
    assert_eq!(said(&approval(1, false), &approval(2, true)), Vec::<String>::new());
    let valid = |seconds: u32| json!({"approval": {"validSeconds": seconds}});
    assert_eq!(said(&valid(3600), &valid(3601)), ["lets approvals count for 3601 s instead of 3600 (validSeconds)"]);
    assert_eq!(said(&valid(3601), &valid(3600)), Vec::<String>::new());
    // An empty object has the defaults.
    assert_eq!(said(&json!({"approval": {}}), &approval(1, true)), Vec::<String>::new());
}

#[test]
fn a_window_may_only_become_narrower() {
    let windows = |all: &[Value]| json!({"windows": all});
    let (weekdays, office) = (["Mon", "Tue", "Wed", "Thu", "Fri"], || window(&["Mon", "Tue"], "09:00", "17:00"));
    let before = windows(&[window(&weekdays, "09:00", "17:00"), window(&["Sat"], "22:00", "04:00")]);
    let narrower = [
        window(&["Fri", "Mon"], "09:00", "17:00"),
        window(&weekdays, "10:00", "12:00"),
        window(&["Sat"], "23:00", "04:00"),
        window(&["Sat"], "22:30", "24:00"),
        window(&["Sat"], "22:00", "23:00"),
    ];
    for new in &narrower {
        assert_eq!(said(&before, &windows(&[new.clone(), office()])), Vec::<String>::new(), "{new}");
    }
    let mut elsewhere = office();
    elsewhere["timeZone"] = json!("Europe/Paris");
    let wider = [
        window(&["Sun"], "10:00", "11:00"),
        window(&["Mon", "Sun"], "10:00", "11:00"),
        window(&["Mon"], "08:59", "17:00"),
        window(&["Mon"], "09:00", "17:01"),
        window(&["Mon"], "09:00", "08:00"),
        window(&["Mon"], "09:00", "09:00"),
        window(&["Sat"], "21:59", "04:00"),
        window(&["Sat"], "22:00", "04:01"),
        window(&["Sat"], "00:00", "04:00"),
        elsewhere,
    ];
    for new in &wider {
        assert_eq!(said(&before, &windows(&[office(), new.clone()])).len(), 1, "{new}");
    }
    let sunday = said(&before, &windows(&[window(&["Sun"], "10:00", "11:00")]));
    assert_eq!(sunday, ["adds a window that no earlier window contains (Sun 10:00-11:00 Europe/Berlin)"]);
}

#[test]
fn a_protected_hold_ends_no_earlier_unless_it_is_over() {
    let hold = |until: Option<&str>| json!({"hold": {"untilTime": until, "reason": "sale", "protected": true}});
    let (past, soon, later) =
        (Some("2025-12-31T23:59:59Z"), Some("2026-01-02T00:00:00Z"), Some("2026-02-01T00:00:00Z"));
    for (old, new, earlier) in [
        (None, soon, true),
        (later, soon, true),
        (later, past, true),
        (soon, later, false),
        (soon, None, false),
        (past, soon, true),
        (past, Some("2020-01-01T00:00:00Z"), true),
    ] {
        let said = said(&hold(old), &hold(new));
        assert_eq!(!said.is_empty(), earlier, "{old:?} {new:?}: {said:?}");
    }
    assert_eq!(said(&hold(past), &hold(past)), Vec::<String>::new(), "a change of something else");
    for (old, held) in [(None, true), (soon, true), (past, false), (Some("2026-01-01T00:00:00Z"), false)] {
        assert_eq!(said(&hold(old), &json!({})).len(), usize::from(held), "{old:?}");
    }
}

#[test]
fn a_number_is_judged_by_no_less() {
    let changed = |change: Value| said(&analysis(&json!({})), &analysis(&change));
    for stricter in [json!({"max": "0.001"}), json!({"max": "0"}), json!({"maxRatio": "1.50"})] {
        assert_eq!(changed(stricter.clone()), Vec::<String>::new(), "{stricter}");
    }
    for weaker in [
        json!({"max": "0.011"}),
        json!({"max": null}),
        json!({"maxRatio": null}),
        json!({"maxRatio": "2"}),
        json!({"failures": 3}),
        // The first step would be measured for less time.
        json!({"failures": 1}),
        json!({"periodSeconds": 5}),
        json!({"periodSeconds": 31}),
        json!({"periodSeconds": u32::MAX}),
        json!({"prometheus": {"query": "vector(0)"}}),
        json!({"prometheus": {"address": "http://mine:9090"}}),
        json!({"prometheus": {"secretRef": {"name": "mine"}}}),
    ] {
        assert_eq!(changed(weaker.clone()).len(), 1, "{weaker}");
    }
    assert!(changed(json!({"name": "other"}))[0].contains("removes errors"));
}

#[test]
fn who_overrides_sets_it_or_requests_what_it_names() {
    let spec = |version: Option<&str>, overridden: Option<(&str, &str)>| {
        let overridden = overridden.map(
            |(version, reason)| json!({"version": version, "reason": reason, "untilTime": "2026-01-01T12:00:00Z"}),
        );
        let spec = json!({"version": version, "rollout": {"override": overridden}});
        serde_json::from_value::<VersionedConfigSpec>(spec).unwrap()
    };
    let (none, of_two) = (spec(Some("1"), None), spec(Some("2"), Some(("2", "outage"))));
    let set = Some("set spec.rollout.override".to_owned());
    assert_eq!(describe_override(None, &of_two), set);
    assert_eq!(describe_override(Some(&none), &of_two), set);
    assert_eq!(describe_override(Some(&of_two), &spec(Some("2"), Some(("2", "another")))), set);
    assert_eq!(describe_override(Some(&of_two), &spec(Some("2"), Some(("3", "outage")))), set);
    let left = spec(Some("3"), Some(("2", "outage")));
    for (old, new) in [(&of_two, &of_two), (&of_two, &left), (&of_two, &none), (&left, &left), (&none, &none)] {
        assert_eq!(describe_override(Some(old), new), None);
    }
    let again = describe_override(Some(&left), &of_two);
    assert_eq!(again.as_deref(), Some("request version 2, which spec.rollout.override names"));
}

prop_compose! {
    fn any_window()(days in proptest::sample::subsequence(vec!["Mon", "Tue", "Wed"], 1..=3), from in 0..24_u32, to in 0..=24_u32) -> Value {
        window(&days, &format!("{from:02}:00"), &format!("{to:02}:00"))
    }
}

/// Returns the hours of a week with an open window.
fn open(windows: &[Value]) -> Vec<u32> {
    let hour = |text: &Value| text.as_str().unwrap()[..2].parse::<u32>().unwrap();
    let mut hours: Vec<u32> = Vec::new();
    for window in windows {
        let (from, mut to) = (hour(&window["from"]), hour(&window["to"]));
        if to <= from {
            to += 24;
        }
        for day in window["days"].as_array().unwrap() {
            let midnight = ["Mon", "Tue", "Wed"].iter().zip([0, 24, 48]).find(|(name, _)| day == *name).unwrap().1;
            hours.extend((from..to).map(|hour| midnight + hour));
        }
    }
    hours
}

proptest! {
    /// A change that passes opens no hour that was closed.
    #[test]
    fn windows_that_pass_open_nothing(old in prop::collection::vec(any_window(), 1..4), new in prop::collection::vec(any_window(), 1..4)) {
        let passes = said(&json!({"windows": old}), &json!({"windows": new})).is_empty();
        let before = open(&old);
        if passes {
            prop_assert!(open(&new).iter().all(|hour| before.contains(hour)));
        }
    }

    /// Two successive changes that pass also pass as one change: small steps lead no further.
    #[test]
    fn small_steps_lead_no_further(all in prop::collection::vec(prop::collection::vec(any_window(), 1..3), 3), required in prop::collection::vec(1..4_u32, 3)) {
        let of = |at: usize| json!({"windows": all[at], "approval": {"required": required[at]}});
        if said(&of(0), &of(1)).is_empty() && said(&of(1), &of(2)).is_empty() {
            prop_assert_eq!(said(&of(0), &of(2)), Vec::<String>::new());
        }
    }
}
