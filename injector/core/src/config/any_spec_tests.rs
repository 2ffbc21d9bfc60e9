//! For any spec that a schema accepts, its readers do not panic, and report faults in one line.

use std::sync::LazyLock;

use jsonschema::Validator;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use nudge_api::{
    ConfigSource, ConfigSourceSpec, Explanation, RolloutPolicy, RolloutPolicySpec, VersionApproval,
    VersionApprovalSpec, VersionedConfig, VersionedConfigSpec, crd,
};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::string::string_regex;
use serde_json::{Value, json};

use super::config_faults;
use super::decide_tests::{Fixture, at};
use crate::governance::{PolicyReach, approval_faults, policy_faults, policy_status};
use crate::sources::{self, DebouncedVersion, SourceSnapshot, Upstream, source_faults};

/// Values that the schema describes; a few of them it does not let pass.
fn values(schema: &Value) -> BoxedStrategy<Value> {
    if let Some(all) = schema["enum"].as_array() {
        return proptest::sample::select(all.clone()).boxed();
    }
    let number = |name: &str| schema[name].as_i64();
    let size = |name: &str, least: i64| usize::try_from(number(name).unwrap_or(least)).unwrap();
    if schema["x-kubernetes-int-or-string"] == json!(true) {
        return prop_oneof![
            (1_u32..200).prop_map(|count| json!(count)),
            (1_u32..=100).prop_map(|share| json!(format!("{share}%")))
        ]
        .boxed();
    }
    match schema["type"].as_str() {
        Some("boolean") => any::<bool>().prop_map(|it| json!(it)).boxed(),
        Some("integer") => {
            let (least, most) = (number("minimum").unwrap_or(0), number("maximum").unwrap_or(i64::from(i32::MAX)));
            prop_oneof![least..=most, Just(least), Just(most)].prop_map(|it| json!(it)).boxed()
        }
        Some("array") => {
            let (least, most) = (size("minItems", 0), size("maxItems", 3));
            vec(values(&schema["items"]), least..=most.min(least + 3)).prop_map(|it| json!(it)).boxed()
        }
        Some("object") if schema["properties"].is_object() => object(schema),
        Some("object") if schema["additionalProperties"].is_object() => {
            let key = prop_oneof!["[a-z]{1,5}(/[a-z]{1,5})?", ".{0,20}"];
            btree_map(key, values(&schema["additionalProperties"]), 1..3).prop_map(|it| json!(it)).boxed()
        }
        Some("object") => Just(json!({"type": "object"})).boxed(),
        _ => text(schema, size("minLength", 0), size("maxLength", 40)),
    }
}

fn object(schema: &Value) -> BoxedStrategy<Value> {
    let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let fields = schema["properties"].as_object().unwrap().iter().map(|(name, schema)| {
        let (name, value) = (name.clone(), values(schema));
        let value = if required.contains(&name.as_str()) {
            value.prop_map(Some).boxed()
        } else {
            proptest::option::weighted(0.3, value).boxed()
        };
        value.prop_map(move |value| Some((name.clone(), value?)))
    });
    fields.collect::<Vec<_>>().prop_map(|fields| Value::Object(fields.into_iter().flatten().collect())).boxed()
}

fn text(schema: &Value, least: usize, most: usize) -> BoxedStrategy<Value> {
    if schema["format"] == json!("date-time") {
        let times = ["1970-01-01T00:30:00Z", "2026-11-26T10:00:00Z", "9999-12-30T22:00:00Z", "0000-01-01T00:00:00Z"];
        return proptest::sample::select(times.to_vec()).prop_map(|it| json!(it)).boxed();
    }
    let any = string_regex(&format!("(?s).{{{least},{}}}", most.min(least + 40))).unwrap();
    let known = [
        "UTC",
        "Europe/Berlin",
        "up{pod=~\"{{pods}}\"}",
        "rate(up{pod=~\"{{pods}}\"}[1d])",
        "current",
        "1",
        ">=1.2",
        "shop",
    ];
    let known = proptest::sample::select(known.to_vec()).prop_map(str::to_owned);
    match schema["pattern"].as_str().and_then(|pattern| string_regex(pattern.trim_matches(['^', '$'])).ok()) {
        Some(regular) => prop_oneof![4 => regular, 1 => known].prop_map(|it| json!(it)).boxed(),
        None => prop_oneof![any, known].prop_map(|it| json!(it)).boxed(),
    }
}

/// Specs of a kind, and the check whether its schema accepts them.
struct Kind {
    schema: Value,
    validator: Validator,
}

impl Kind {
    fn new(crd: &CustomResourceDefinition) -> Self {
        let crd = serde_json::to_value(crd).unwrap();
        let schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"].clone();
        let validator = jsonschema::validator_for(&schema).unwrap();
        Self { schema, validator }
    }

    fn specs(&'static self) -> impl Strategy<Value = Value> {
        values(&self.schema).prop_filter("the schema refuses it", |spec| self.validator.is_valid(spec))
    }
}

static CONFIG: LazyLock<Kind> = LazyLock::new(|| Kind::new(&crd::<VersionedConfig>()));
static SOURCE: LazyLock<Kind> = LazyLock::new(|| Kind::new(&crd::<ConfigSource>()));
static POLICY: LazyLock<Kind> = LazyLock::new(|| Kind::new(&crd::<RolloutPolicy>()));
static APPROVAL: LazyLock<Kind> = LazyLock::new(|| Kind::new(&crd::<VersionApproval>()));

/// Each is one line that names its field, and has no more than a condition can hold.
fn check(faults: &[Explanation]) -> Result<(), TestCaseError> {
    for Explanation { message, .. } in faults {
        let field = message.starts_with("spec.") || message.starts_with("metadata.name: ");
        prop_assert!(field && message.len() < 16_384 && !message.contains('\n'), "{message:?}");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { max_global_rejects: 100_000, max_local_rejects: 1_000_000, ..ProptestConfig::with_cases(64) })]

    #[test]
    fn any_config_is_decided_about(spec in CONFIG.specs(), seconds in 1_i64..2_000_000_000) {
        let spec: VersionedConfigSpec = serde_json::from_value(spec).unwrap();
        check(&config_faults("shop", &spec, Timestamp::from_second(seconds).unwrap()))?;
        let mut fixture = Fixture::new(Some("1")).with("1").with("2");
        fixture.now = seconds;
        fixture.step();
        fixture.config.spec = VersionedConfigSpec { version: Some("2".to_owned()), ..spec };
        for wait in [1, 60, 90_000] {
            fixture.now += wait;
            fixture.look();
        }
        let is_broken = !config_faults("shop", &fixture.config.spec, Timestamp::from_second(fixture.now).unwrap()).is_empty();
        let current = fixture.config.status.as_ref().unwrap().current_version.as_deref();
        let overridden = fixture.config.spec.rollout.overridden.is_some();
        prop_assert!(!is_broken || overridden || current == Some("1"), "{:?}", fixture.config.spec);
    }

    #[test]
    fn any_source_is_decided_about(spec in SOURCE.specs(), millis in 1_i64..2_000_000_000_000) {
        let spec: ConfigSourceSpec = serde_json::from_value(spec).unwrap();
        let faults = source_faults("shop", &spec);
        check(&faults)?;
        let (now, suspended) = (Timestamp::from_millisecond(millis).unwrap(), spec.suspend);
        let (source, newest) = (ConfigSource::new("shop", spec), DebouncedVersion::first("src-a".to_owned(), now));
        let upstream = Upstream::Content(&newest);
        let (refusal, config, last, rival, trouble) = (None, None, None, None, None);
        let decision = sources::decide(&SourceSnapshot { source: &source, upstream, refusal, config, last, rival, trouble, now });
        prop_assert!(decision.act.is_none() || (faults.is_empty() && !suspended), "{:?}", source.spec);
    }

    #[test]
    fn any_policy_has_a_status(spec in POLICY.specs()) {
        let spec: RolloutPolicySpec = serde_json::from_value(spec).unwrap();
        let faults = policy_faults(&spec);
        check(&faults)?;
        let status = policy_status(&RolloutPolicy::new("hours", spec), PolicyReach::default(), &at(1));
        prop_assert_eq!(status.conditions[0].status == "True", faults.is_empty());
    }

    #[test]
    fn any_approval_has_a_status(spec in APPROVAL.specs()) {
        let spec: VersionApprovalSpec = serde_json::from_value(spec).unwrap();
        let faults = approval_faults(&spec);
        check(&faults)?;
        let status = super::approval_status(&VersionApproval::new("a", spec), None, None, &Time(Timestamp::UNIX_EPOCH));
        let counted = &status.conditions[0];
        prop_assert_eq!((counted.status.as_str(), counted.reason == "InvalidSpec"), ("False", !faults.is_empty()));
    }
}
