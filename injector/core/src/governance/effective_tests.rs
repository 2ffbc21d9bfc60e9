//! Rules of configs and policies together.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use nudge_api::{Approval, Reason, RolloutPolicy, RolloutSpec};
use serde_json::{Value, json};

use super::{EffectiveRules, Policies, rules_gate};
use crate::rollout::{Now, SteadyTime};

const ALWAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

fn policy(name: &str, mut spec: Value) -> Arc<RolloutPolicy> {
    spec["namespaceSelector"] = json!({});
    let policy =
        json!({"apiVersion": "nudge.dev/v1alpha1", "kind": "RolloutPolicy", "metadata": {"name": name}, "spec": spec});
    Arc::new(serde_json::from_value(policy).unwrap())
}

fn window(from: &str, to: &str) -> Value {
    json!([{"name": "always", "days": ALWAYS, "from": from, "to": to, "timeZone": "UTC"}])
}

/// Returns why nothing may continue at this time of 25 November 2026, and the number of seconds until the next check.
fn said(spec: Value, policies: &Policies, time: &str) -> Option<(Reason, String, Option<i64>)> {
    let spec: RolloutSpec = serde_json::from_value(spec).unwrap();
    let time: Timestamp = format!("2026-11-25T{time}Z").parse().unwrap();
    let now = Now { time: &Time(time), steady: SteadyTime(5_000) };
    let rules_gate = rules_gate(&EffectiveRules::of(&spec, policies), now)?;
    Some((
        rules_gate.why.reason,
        rules_gate.why.message,
        rules_gate.recheck_at.map(|until| (until - now.steady) / 1000),
    ))
}

fn known(policies: &[Arc<RolloutPolicy>]) -> Policies {
    Policies::Known(policies.to_vec())
}

#[test]
fn without_rules_nothing_is_withheld() {
    assert_eq!(said(json!({}), &Policies::default(), "12:00:00"), None);
    assert_eq!(said(json!({}), &known(&[policy("empty", json!({}))]), "12:00:00"), None);
}

#[test]
fn outside_of_a_window_the_message_says_when_it_opens() {
    let spec = json!({"windows": [
        {"name": "office", "days": ["Mon", "Tue", "Wed"], "from": "09:00", "to": "17:00", "timeZone": "Europe/Berlin"}
    ]});
    assert_eq!(said(spec.clone(), &Policies::default(), "08:00:00"), None);
    assert_eq!(said(spec.clone(), &Policies::default(), "15:59:59"), None);
    let (reason, message, wait) = said(spec.clone(), &Policies::default(), "07:59:59").unwrap();
    assert_eq!((reason, wait), (Reason::OutsideWindow, Some(1)));
    assert_eq!(
        message,
        "no version continues outside of the windows of spec.rollout; the next window opens at 2026-11-25 09:00 Europe/Berlin (08:00 UTC)"
    );
    let (_, message, wait) = said(spec, &Policies::default(), "16:00:00").unwrap();
    assert!(message.ends_with("2026-11-30 09:00 Europe/Berlin (08:00 UTC)"), "{message}");
    assert_eq!(wait, Some(3600), "clocks may be set anew");
}

#[test]
fn of_each_rule_the_stricter_one_counts_both_ways() {
    let (narrow, wide) = (window("10:00", "11:00"), window("08:00", "18:00"));
    let strict = |spec: &Value, of: &Value, time: &str| {
        let policies = known(&[policy("hours", json!({"windows": of}))]);
        said(json!({"windows": spec}), &policies, time).map(|(_, message, _)| message)
    };
    for (spec, of) in [(&narrow, &wide), (&wide, &narrow)] {
        assert_eq!(strict(spec, of, "10:30:00"), None);
        let message = strict(spec, of, "12:00:00").unwrap();
        assert!(message.ends_with("all windows are open together at 2026-11-26 10:00 UTC"), "{message}");
    }
    assert!(strict(&narrow, &wide, "12:00:00").unwrap().contains("windows of spec.rollout;"));
    assert!(strict(&wide, &narrow, "12:00:00").unwrap().contains("windows of RolloutPolicy hours;"));
    let never = strict(&window("00:00", "12:00"), &window("12:00", "24:00"), "13:00:00").unwrap();
    assert_eq!(
        never,
        "the windows of spec.rollout and RolloutPolicy hours are not open together within two months; change them"
    );
}

#[test]
fn approval_is_the_most_that_any_rule_requests() {
    let approval = |required, not_author| Approval { required, not_author, ..Approval::default() };
    let merged = |own: Option<Approval>, others: &[Approval]| {
        let policies = others.iter().map(|one| policy("p", json!({"approval": one})));
        let (spec, policies) =
            (RolloutSpec { approval: own, ..RolloutSpec::default() }, Policies::Known(policies.collect()));
        EffectiveRules::of(&spec, &policies).approval
    };
    assert_eq!(merged(None, &[]), None);
    assert_eq!(merged(Some(approval(2, false)), &[]), Some(approval(2, false)));
    assert_eq!(merged(None, &[approval(1, true)]), Some(approval(1, true)));
    assert_eq!(merged(Some(approval(1, false)), &[approval(3, false), approval(2, true)]), Some(approval(3, true)));
    let hours = |hours: u32| Approval { valid_seconds: hours * 3600, ..approval(1, true) };
    for (own, other) in [(2, 5), (5, 2)] {
        assert_eq!(merged(Some(hours(own)), &[hours(other)]), Some(hours(2)), "the shortest time");
    }
}

#[test]
fn a_hold_says_whose_it_is_why_and_until_when() {
    let own = json!({"hold": {"reason": "audit"}, "windows": window("00:00", "24:00")});
    let (reason, message, wait) = said(own.clone(), &Policies::default(), "12:00:00").unwrap();
    assert_eq!((reason, wait), (Reason::OnHold, None));
    assert_eq!(message, "the config is on hold until spec.rollout.hold is removed (kubectl nudge unhold): audit");
    let sale = policy("sale", json!({"hold": {"reason": "black friday", "untilTime": "2026-11-25T12:30:00Z"}}));
    let (reason, message, wait) = said(json!({}), &known(&[Arc::clone(&sale)]), "12:00:00").unwrap();
    assert_eq!((reason, wait), (Reason::OnHold, Some(1800)));
    assert_eq!(
        message,
        "RolloutPolicy sale holds the configs of this namespace until 2026-11-25T12:30:00Z: black friday"
    );
    assert_eq!(said(json!({}), &known(&[Arc::clone(&sale)]), "12:30:00"), None, "it has ended");
    let later = policy("later", json!({"hold": {"reason": "x", "untilTime": "2026-11-26T00:00:00.5Z"}}));
    let (_, message, wait) = said(json!({}), &known(&[Arc::clone(&sale), later]), "12:00:00").unwrap();
    assert!(
        message.starts_with("RolloutPolicy later holds") && message.contains("until 2026-11-26T00:00:01Z"),
        "{message}"
    );
    assert_eq!(wait, Some(3600));
    // Outside of a window, too. The last reason has no end.
    let (reason, ..) =
        said(json!({"hold": {"reason": "y"}, "windows": window("00:00", "01:00")}), &known(&[sale]), "12:00:00")
            .unwrap();
    assert_eq!(reason, Reason::OnHold);
}

#[test]
fn a_window_that_can_not_be_used_is_closed() {
    let windows = json!([{"name": "mars", "days": ALWAYS, "from": "00:00", "to": "24:00", "timeZone": "Mars/Olympus"}]);
    let (reason, message, wait) =
        said(json!({}), &known(&[policy("space", json!({"windows": windows}))]), "12:00:00").unwrap();
    assert_eq!((reason, wait), (Reason::OutsideWindow, None));
    assert!(
        message.starts_with(
            "a window of RolloutPolicy space can't be used, so no version continues: time zone \"Mars/Olympus\""
        ),
        "{message}"
    );
}

#[test]
fn a_window_that_can_not_be_used_does_not_count_against_others() {
    let mut windows = window("09:00", "17:00");
    let mars = json!({"name": "mars", "days": ALWAYS, "from": "00:00", "to": "24:00", "timeZone": "Mars/Olympus"});
    windows.as_array_mut().unwrap().push(mars);
    let space = policy("space", json!({"windows": windows}));
    assert_eq!(said(json!({}), &known(&[Arc::clone(&space)]), "12:00:00"), None);
    let (reason, message, _) = said(json!({}), &known(&[space]), "18:00:00").unwrap();
    assert_eq!(reason, Reason::OutsideWindow);
    assert!(message.contains("the next window opens at 2026-11-26 09:00 UTC"), "{message}");
}

#[test]
fn where_policies_are_not_known_nothing_continues() {
    let unknown = Policies::Unknown("RolloutPolicies can't be read: forbidden".to_owned());
    let (reason, message, _) = said(json!({}), &unknown, "12:00:00").unwrap();
    assert_eq!(
        (reason, message.as_str()),
        (Reason::PoliciesUnknown, "no version continues, because RolloutPolicies can't be read: forbidden")
    );
}
