//! Specs that break a rule that their schema can't express, and that no webhook has seen. No version begins by such a
//! spec, and the config reports that. A running version is still judged, and rolled back if it is bad.

use std::sync::Arc;

use nudge_api::{ConditionType, Reason, RolloutStage, VersionedConfigSpec, find_condition};
use nudge_protocol::{ConfigName, VersionName};
use serde_json::{Value, json};

use super::decide_tests::Fixture;
use crate::keys::PodUid;
use crate::pods::{PodPhase, PodState, Readiness, Report, ReportState};

/// Returns changes of `spec.rollout` that each break a rule, with the reason and a part of the message.
pub(super) fn broken() -> Vec<(Value, &'static str, &'static str)> {
    let step = |selector: Value| json!({"pods": 1, "selector": {"matchLabels": selector}});
    let zones: Vec<Value> = (0..9).map(|zone| step(json!({"zone": zone.to_string()}))).collect();
    let window = json!({"name": "mars", "days": ["Mon"], "from": "09:00", "to": "17:00", "timeZone": "Mars/Olympus"});
    let open = json!({"name": "day", "days": ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"], "from": "00:00", "to": "24:00", "timeZone": "UTC"});
    let analysis = |prometheus: Value, limits: Value| {
        let mut analysis = json!({"name": "errors", "prometheus": prometheus});
        analysis.as_object_mut().unwrap().extend(limits.as_object().unwrap().clone());
        json!({"analysis": [analysis]})
    };
    let asks = |address: &str, query: &str| json!({"address": address, "query": query});
    let (there, about) = ("http://prometheus:9090", "up{pod=~\"{{pods}}\"}");
    let at_once =
        |version: &str, until: &str| json!({"override": {"version": version, "reason": "r", "untilTime": until}});
    vec![
        (
            json!({"steps": [{"name": "one", "pods": 1}, {"name": "one", "pods": "50%"}]}),
            "InvalidSpec",
            "spec.rollout.steps: two of them have the name one; rename one",
        ),
        (
            json!({"steps": zones}),
            "InvalidSpec",
            "spec.rollout.steps: they have 9 different selectors, and at most 8 are allowed; use fewer",
        ),
        (
            json!({"steps": [step(json!({"a b": "c"}))]}),
            "InvalidSpec",
            "spec.rollout.steps: no pod can have a label with the key \"a b\"; correct the selector",
        ),
        (
            json!({"steps": [step(json!({"k".repeat(100_000): "c"}))]}),
            "InvalidSpec",
            "spec.rollout.steps: no pod can have a label with the key \"kkk",
        ),
        (
            json!({"windows": [window]}),
            "UnknownTimeZone",
            "spec.rollout.windows: window mars: time zone \"Mars/Olympus\"",
        ),
        (json!({"windows": [open, window]}), "UnknownTimeZone", "spec.rollout.windows: window mars: time zone"),
        (
            analysis(asks(there, about), json!({})),
            "InvalidSpec",
            "spec.rollout.analysis: errors: set max, or maxRatio, or both",
        ),
        (
            analysis(asks(there, about), json!({"maxRatio": "0.5"})),
            "InvalidSpec",
            "spec.rollout.analysis: errors: maxRatio",
        ),
        (
            analysis(asks(there, "up"), json!({"max": "1"})),
            "InvalidSpec",
            "spec.rollout.analysis: errors: the query must have",
        ),
        (
            analysis(asks(there, "rate(up{pod=~\"{{pods}}\"}[1d])"), json!({"max": "1"})),
            "InvalidSpec",
            "spec.rollout.analysis: errors: the query can't be used: it looks back",
        ),
        (
            analysis(asks("http://prometheus:0", about), json!({"max": "1"})),
            "InvalidSpec",
            "spec.rollout.analysis: errors: prometheus.address can't be used: its port",
        ),
        (
            at_once("2", "1970-01-02T01:00:00Z"),
            "InvalidSpec",
            "spec.rollout.override: its untilTime is 1970-01-02T01:00:00Z, and it may be at most 24 hours ahead; set an earlier time",
        ),
        (
            at_once("current", "1970-01-01T01:00:00Z"),
            "InvalidSpec",
            "spec.rollout.override: version \"current\" is not allowed",
        ),
    ]
}

/// A spec that requests this version, with this change of `spec.rollout`.
fn spec(version: &str, rollout: &Value) -> VersionedConfigSpec {
    serde_json::from_value(json!({"version": version, "rollout": rollout})).unwrap()
}

fn stalled(fixture: &Fixture) -> Option<(String, String)> {
    let conditions = &fixture.config.status.as_ref().unwrap().conditions;
    let stalled = find_condition(conditions, ConditionType::Stalled)?;
    Some((stalled.reason.clone(), stalled.message.clone()))
}

#[test]
fn nothing_new_begins_and_the_config_says_why() {
    for (rollout, reason, said) in broken() {
        let mut fixture = Fixture::new(Some("1")).with("1").with("2");
        fixture.step();
        // At rest the config reports the fault, too, and the requested version is current.
        fixture.config.spec = spec("1", &rollout);
        fixture.step();
        assert_eq!(fixture.ready().1, "Current", "{rollout}");
        let (why, message) = stalled(&fixture).unwrap_or_default();
        assert!(why == reason && message.contains(said), "{rollout}: {why}: {message}");
        fixture.config.spec = spec("2", &rollout);
        let held = fixture.step();
        assert_eq!(held.status.current_version.as_deref(), Some("1"), "{rollout}");
        let (ready, why, message) = fixture.ready();
        assert!(ready == "False" && why == reason && message.contains(said), "{rollout}: {why}: {message}");
        assert!(message.starts_with("no version begins or continues until this is corrected: "), "{message}");
        assert_eq!(stalled(&fixture), Some((why, message)), "somebody has to act");
        assert!(held.recheck_after.is_some(), "{rollout}");
        let warnings = held.events.iter().filter(|event| event.warning && event.explanation.reason.as_str() == reason);
        assert_eq!(warnings.count(), 1, "{rollout}");
        assert!(fixture.step().events.is_empty(), "it is said once");
        fixture.config.spec = spec("2", &json!({}));
        assert_eq!(fixture.step().status.current_version.as_deref(), Some("2"), "{rollout}");
        assert_eq!(stalled(&fixture), None);
    }
}

#[test]
fn the_first_version_waits_too() {
    for (rollout, reason, _) in broken() {
        let mut fixture = Fixture::new(None).with("1");
        fixture.config.spec = serde_json::from_value(json!({"rollout": rollout})).unwrap();
        assert_eq!(fixture.step().status.current_version, None, "{rollout}");
        assert_eq!(fixture.ready().1, reason, "{rollout}");
    }
}

#[test]
fn a_name_that_no_version_can_have_is_no_version_that_is_missing() {
    let mut fixture = Fixture::new(Some("1")).with("1");
    fixture.step();
    fixture.config.spec = spec("current", &json!({}));
    let status = fixture.step().status;
    assert_eq!(status.current_version.as_deref(), Some("1"));
    let (_, reason, message) = fixture.ready();
    assert!(
        reason == "InvalidSpec" && message.contains("spec.version: version \"current\" is not allowed"),
        "{message}"
    );
}

#[test]
fn the_way_back_waits_for_nothing() {
    for (rollout, ..) in broken() {
        let mut fixture = Fixture::new(Some("1")).with("1").with("2");
        fixture.step();
        fixture.config.spec = spec("2", &json!({}));
        assert_eq!(fixture.step().status.current_version.as_deref(), Some("2"));
        fixture.config.spec = spec("1", &rollout);
        assert_eq!(fixture.step().status.current_version.as_deref(), Some("1"), "{rollout}");
    }
}

/// Returns pods that run the versions; the first pod may have failed.
fn pods(runs: &[&str], failed: bool) -> Vec<Arc<PodState>> {
    let pod = |(number, runs): (usize, &&str)| {
        let versions = vec![(ConfigName::new("shop").unwrap(), VersionName::new(runs).ok())];
        let failed = failed && *runs == "2";
        let why = Reason::NoHandler.explained("it has none");
        let state = if failed { ReportState::Failed(why) } else { ReportState::Acknowledged };
        Arc::new(PodState {
            uid: PodUid::new(&format!("0af7651c-d43b-41d5-8e2f-{number:012x}")).unwrap(),
            name: format!("web-{number}"),
            workload: Some("Deployment/web".into()),
            readiness: Readiness::Ready,
            containers_ready: true,
            phase: PodPhase::Running,
            report: Some(Report { versions, state, reasons: Vec::new(), at: None }),
            ..PodState::default()
        })
    };
    runs.iter().enumerate().map(pod).collect()
}

#[test]
fn what_was_assigned_is_judged_and_goes_back() {
    for (rollout, reason, _) in broken() {
        let mut fixture = Fixture::new(Some("1")).with("1").with("2");
        fixture.pods = pods(&["1"; 8], false);
        fixture.step();
        fixture.config.spec = spec("2", &json!({}));
        let moving = fixture.step().status;
        assert_eq!(moving.rollout.stage, Some(RolloutStage::Moving));
        fixture.config.spec = spec("2", &rollout);
        fixture.now += 60;
        let held = fixture.step().status;
        assert_eq!(
            (held.rollout.stage, held.rollout.step),
            (Some(RolloutStage::Moving), moving.rollout.step),
            "{rollout}"
        );
        assert_eq!(stalled(&fixture).unwrap_or_default().0, reason, "{rollout}");
        fixture.pods = pods(&["2"; 8], true);
        let back = fixture.step().status;
        assert_eq!(back.rollout.stage, Some(RolloutStage::RollingBack), "{rollout}: {:?}", fixture.ready());
    }
}
