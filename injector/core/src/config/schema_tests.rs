//! Whatever users write: each status that is decided is valid by the schema of the CRD, or the API server would refuse
//! it for ever.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use jsonschema::Validator;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use nudge_api::{
    OnFailure, Override, PartStatus, Reason, Step, StepSelector, VersionedConfig, VersionedConfigStatus, crd,
};
use nudge_protocol::{ConfigName, VersionName};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::decide_tests::Fixture;
use super::{StatusExtent, reduce_status};
use crate::keys::PodUid;
use crate::owners::WorkloadId;
use crate::pods::{PodPhase, PodState, Readiness, Report, ReportState};
use crate::requester::Requester;

/// The schema of the status as the API server reads it: with bounds of integers, which it takes from their formats.
static SCHEMA: LazyLock<Validator> = LazyLock::new(|| {
    let crd = serde_json::to_value(crd::<VersionedConfig>()).unwrap();
    let mut schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"].clone();
    bound(&mut schema);
    jsonschema::options().should_validate_formats(true).build(&schema).unwrap()
});

fn bound(schema: &mut Value) {
    let bounds = match schema["format"].as_str() {
        Some("int32") => Some((json!(i32::MIN), json!(i32::MAX))),
        Some("int64") => Some((json!(i64::MIN), json!(i64::MAX))),
        _ => None,
    };
    let Some(fields) = schema.as_object_mut() else { return };
    if let Some((least, most)) = bounds {
        fields.entry("minimum").or_insert(least);
        fields.entry("maximum").or_insert(most);
    }
    for (name, value) in fields {
        match name.as_str() {
            "properties" => value.as_object_mut().unwrap().values_mut().for_each(bound),
            "items" | "additionalProperties" => bound(value),
            _ => {}
        }
    }
}

fn check(status: &VersionedConfigStatus) -> Result<(), TestCaseError> {
    let json = serde_json::to_value(status).unwrap();
    let faults: Vec<String> =
        SCHEMA.iter_errors(&json).map(|fault| format!("{}: {fault}", fault.instance_path())).collect();
    prop_assert!(faults.is_empty(), "{faults:?}");
    Ok(())
}

/// The sealed and the deleted versions, with the digests of their parts.
fn known(status: &VersionedConfigStatus) -> BTreeMap<String, Vec<String>> {
    let digests = |parts: &[PartStatus]| parts.iter().map(|part| part.digest.clone()).collect();
    let sealed = status.versions.iter().map(|sealed| (sealed.version.clone(), digests(&sealed.parts)));
    let retired = status.internal.retired.iter().map(|retired| (retired.version.clone(), retired.digests.clone()));
    sealed.chain(retired).collect()
}

/// Generates a text that a user may write into an annotation, a reason or a name.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        ".{0,40}",
        "\\PC{0,40}",
        (1_usize..700).prop_map(|length| "x".repeat(length)),
        (1_usize..400).prop_map(|length| "\u{1f9e8}".repeat(length)),
    ]
}

/// An event of a config.
#[derive(Clone, Debug)]
enum Act {
    /// A version is created.
    Create,
    /// The object of the version with this index is deleted, or put back.
    Delete(usize),
    PutBack(usize),
    /// The API server takes this much of each status.
    Take(StatusExtent),
    /// A version is requested, by this user.
    Use(usize, String),
    /// And for all pods at once.
    Override(usize, String),
    /// A step has a selector with this label.
    Select(String),
    Hold(OnFailure),
    /// Pods report this about their assigned versions.
    Report(Option<Reason>, String),
    Wait(i64),
}

fn act() -> impl Strategy<Value = Act> {
    const REASONS: &[Reason] =
        &[Reason::CheckRefused, Reason::CantApply, Reason::NoHandler, Reason::NotFound, Reason::Pending];
    prop_oneof![
        3 => Just(Act::Create),
        1 => (0_usize..4).prop_map(Act::Delete),
        1 => (0_usize..4).prop_map(Act::PutBack),
        2 => proptest::sample::select(&[StatusExtent::Whole, StatusExtent::Short, StatusExtent::Plain][..]).prop_map(Act::Take),
        3 => (0_usize..4, text()).prop_map(|(version, user)| Act::Use(version, user)),
        1 => (0_usize..4, text()).prop_map(|(version, reason)| Act::Override(version, reason)),
        1 => "[a-z]{1,63}".prop_map(Act::Select),
        1 => prop_oneof![Just(OnFailure::Rollback), Just(OnFailure::Hold)].prop_map(Act::Hold),
        4 => (option::of(proptest::sample::select(REASONS)), text()).prop_map(|(reason, message)| Act::Report(reason, message)),
        3 => (1_i64..900).prop_map(Act::Wait),
    ]
}

/// Adds reports of the pods' versions, with the outcome.
fn report(fixture: &mut Fixture, reason: Option<Reason>, message: &str) {
    let target = fixture
        .config
        .status
        .as_ref()
        .and_then(|status| status.target_version.clone().or_else(|| status.current_version.clone()));
    let versions = vec![(ConfigName::new("shop").unwrap(), target.and_then(|version| VersionName::new(&version).ok()))];
    let state = reason.map_or(ReportState::Acknowledged, |reason| ReportState::of(reason.explained(message)));
    fixture.pods = (0..24)
        .map(|number| {
            Arc::new(PodState {
                uid: PodUid::new(&format!("0af7651c-d43b-41d5-8e2f-{number:012x}")).unwrap(),
                name: format!("web-{number}"),
                workload: Some(WorkloadId::new("StatefulSet", message.get(..40).unwrap_or("web"))),
                readiness: if reason.is_none() { Readiness::Ready } else { Readiness::Lost { since: 0 } },
                phase: PodPhase::Running,
                report: Some(Report {
                    versions: versions.clone(),
                    state: state.clone(),
                    reasons: Vec::new(),
                    at: None,
                }),
                ..PodState::default()
            })
        })
        .collect();
}

fn done(fixture: &mut Fixture, act: &Act, created: &mut usize) {
    let name = |number: usize| format!("v{number}");
    match act {
        Act::Create => {
            *created += 1;
            fixture.add(&name(*created));
        }
        Act::Delete(number) => fixture.parts.retain(|part| part.version != name(*number)),
        Act::PutBack(number) => {
            if (0..=*created).contains(number) && !fixture.parts.iter().any(|part| part.version == name(*number)) {
                fixture.add(&name(*number));
            }
        }
        Act::Take(_) => {}
        Act::Use(number, user) => {
            fixture.config.spec.version = Some(name(*number));
            let requester = Requester::new(user, Timestamp::from_second(1_790_000_000).unwrap());
            (fixture.requesters.current, fixture.requesters.overridden) = (Some(requester.clone()), Some(requester));
        }
        Act::Override(number, reason) => {
            let reason = reason.chars().take(256).collect();
            let until_time = Time(Timestamp::from_second(fixture.now + 3600).unwrap());
            fixture.config.spec.rollout.overridden = Some(Override { version: name(*number), reason, until_time });
        }
        Act::Select(value) => {
            let selector = StepSelector { match_labels: [("zone".to_owned(), value.clone())].into() };
            let pods = nudge_api::Pods::Share("50%".to_owned());
            fixture.config.spec.rollout.steps.insert(0, Step { selector: Some(selector), ..Step::of(pods) });
            fixture.config.spec.rollout.steps.truncate(8);
        }
        Act::Hold(on_failure) => fixture.config.spec.rollout.on_failure = *on_failure,
        Act::Report(reason, message) => report(fixture, *reason, message),
        Act::Wait(seconds) => fixture.now += seconds,
    }
    let generation = fixture.config.metadata.generation.get_or_insert_default();
    *generation += 1;
}

proptest! {
    #[test]
    fn every_status_is_valid_by_the_schema(acts in vec(act(), 1..25)) {
        let mut fixture = Fixture::new(None).with("v0");
        report(&mut fixture, None, "");
        let (mut created, mut extent) = (0, StatusExtent::Whole);
        let mut sealed = BTreeMap::new();
        for act in &acts {
            if let Act::Take(taken) = act {
                extent = *taken;
            }
            done(&mut fixture, act, &mut created);
            let stored = fixture.config.status.clone().unwrap_or_default();
            let decided = fixture.step().status;
            check(&decided)?;
            let written = reduce_status(extent, &stored, &decided, "refused", &super::decide_tests::at(fixture.now));
            check(&written)?;
            sealed.extend(known(&written));
            prop_assert_eq!(&known(&written), &sealed, "no version is forgotten, nor comes back with other content");
            fixture.config.status = Some(written);
        }
    }
}

#[test]
fn the_schema_refuses_what_the_api_server_refuses() {
    let refused = |status: Value| SCHEMA.iter_errors(&status).next().is_some();
    assert!(!refused(json!({"publishTime": "2026-11-26T10:00:00Z", "internal": {"threshold": 1_u64 << 32}})));
    assert!(refused(json!({"publishTime": "-000001-01-01T00:00:00Z"})));
    assert!(refused(json!({"internal": {"threshold": (1_u64 << 32) + 1}})));
    assert!(refused(json!({"internal": {"identity": "not 32 hex digits"}})));
    assert!(refused(json!({"observedGeneration": "1"})));
}
