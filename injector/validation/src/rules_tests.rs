use std::time::{Duration, Instant};

use nudge_api::ValidationRule;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// Each rule gets a name.
fn rules(mut all: Value) -> Vec<ValidationRule> {
    for (rule, number) in all.as_array_mut().unwrap().iter_mut().zip(1..) {
        rule["name"] = json!(format!("r{number}"));
    }
    serde_json::from_value(all).unwrap()
}

fn compiled(all: Value) -> Rules {
    Rules::compile(&rules(all), &SchemaTexts::new()).unwrap()
}

fn refused(all: Value) -> String {
    Rules::compile(&rules(all), &SchemaTexts::new()).unwrap_err().to_string()
}

fn said(rules: &Rules, content: &[(&str, &str)]) -> String {
    let dictionary: Dictionary<'_> =
        content.iter().map(|(key, value)| (*key, DictionaryEntry { value: value.as_bytes(), secret: false })).collect();
    rules.check(&dictionary).err().map_or_else(String::new, |report| report.to_string())
}

#[test]
fn a_version_is_judged_by_all_rules() {
    let rules = compiled(json!([
        {"required": ["game.json", "lives"]},
        {"key": "*.json", "format": "json"},
        {"key": "game.json", "schema": {"inline": {"required": ["name"], "properties": {"level": {"minimum": 1}}}}},
        {"key": "lives", "format": "int"},
        {"rule": "parsed.lives <= 9", "message": "lives must be at most 9"},
        {"rule": "parsed['game.json'].level <= parsed.lives"},
    ]));
    let game = |game: &str, lives: &str| said(&rules, &[("game.json", game), ("lives", lives)]);
    assert_eq!(game("{\"name\": \"x\", \"level\": 1}", "3"), "");
    assert_eq!(
        game("{\"name\": \"x\", \"level\": 1", "3"),
        "key game.json, line 1, column 24: must be JSON, and ends too early"
    );
    assert_eq!(
        game("{\"level\": 0}", "x"),
        "key game.json: name is missing; key game.json at /level: must be at least 1; \
         key lives: must be a decimal number without fraction (int)"
    );
    assert_eq!(game("{\"name\": \"x\", \"level\": 1}", "10"), "lives must be at most 9");
    assert_eq!(game("{\"name\": \"x\", \"level\": 5}", "3"), "rule r6 of spec.validation is not true");
    assert_eq!(
        game("{\"name\": \"x\"}", "3"),
        "rule r6 of spec.validation is not true (a key that it reads is missing)"
    );
    assert_eq!(
        said(&rules, &[("other.json", "{")]),
        "key game.json is missing; key lives is missing; \
        key other.json, line 1, column 1: must be JSON, and ends too early"
    );
}

#[test]
fn a_rule_that_can_not_be_used_is_named() {
    for (all, message) in [
        (json!([{"required": ["a"]}, {}]), "rule r2 is empty; give it key, required or rule"),
        (json!([{"key": "a"}]), "rule r1 has a key, but neither format nor schema; add one"),
        (
            json!([{"key": "a", "format": "int", "rule": "true"}]),
            "rule r1 has fields that do not go together; give it ",
        ),
        (json!([{"required": ["a"], "message": "m"}]), "rule r1 has fields that do not go together; give it "),
        (json!([{"rule": "data.a =="}]), "rule r1 can't be used: it is not CEL: line 1, column 10: "),
        (json!([{"rule": "true", "message": "m".repeat(257)}]), "rule r1 has a message of more than 256 bytes"),
        (json!([{"key": "a", "schema": {}}]), "rule r1 must have its schema either inline or in a ConfigMap"),
        (
            json!([{"key": "a", "schema": {"inline": {"type": "strin"}}}]),
            "rule r1 has a schema that can't be used: at /type: ",
        ),
        (
            json!([{"key": "a", "schema": {"configMapKeyRef": {"name": "s", "key": "k"}}}]),
            "rule r1: its schema, key k of ConfigMap s, is not known",
        ),
        (json!(vec![json!({"required": ["a"]}); 33]), "there are 33 rules, and at most 32 are allowed; use fewer"),
        (
            json!(
                (0..2)
                    .map(|_| json!({"key": "a", "schema": {"inline": {"description": "x".repeat(60_000)}}}))
                    .collect::<Vec<_>>()
            ),
            "the rules and their schemas have 120",
        ),
    ] {
        let refusal = refused(all);
        assert!(refusal.starts_with(message) && refusal.len() < 400, "{refusal}");
    }
}

#[test]
fn schemas_of_config_maps_count_too() {
    let reference =
        |at: usize| json!({"key": "a", "schema": {"configMapKeyRef": {"name": format!("s{at}"), "key": "k"}}});
    let all = rules(json!((0..5).map(reference).collect::<Vec<_>>()));
    let text = json!({"description": "x".repeat(60_000)}).to_string();
    let texts: SchemaTexts = references(&all).into_iter().map(|one| (one.clone(), text.clone())).collect();
    let refused = Rules::compile(&all, &texts).unwrap_err().to_string();
    assert!(refused.starts_with("the rules and their schemas have 300"), "{refused}");
    assert!(Rules::compile(&all[..4], &texts).is_ok());
}

#[test]
fn schemas_of_config_maps_are_json_or_yaml_and_count_for_the_hash() {
    let all = rules(json!([{"key": "a", "schema": {"configMapKeyRef": {"name": "s", "key": "k"}}}]));
    let reference = references(&all).into_iter().next().unwrap().clone();
    let with = |text: &str| Rules::compile(&all, &[(reference.clone(), text.to_owned())].into());
    let (json, yaml) = (with("{\"type\": \"integer\"}").unwrap(), with("type: integer").unwrap());
    assert_eq!(said(&json, &[("a", "\"x\"")]), "key a: must be integer");
    assert_eq!(said(&yaml, &[("a", "\"x\"")]), "key a: must be integer");
    assert!(json.hash() != yaml.hash() && json.hash() == with("{\"type\": \"integer\"}").unwrap().hash());
    assert_eq!(json.hash().len(), 24);
    assert_eq!(
        with("{").unwrap_err().detailed_message(),
        "rule r1: key k of ConfigMap s can't be used as a schema: it is neither JSON nor YAML"
    );
    let quoting = with("type: CANARY").unwrap_err();
    assert!(quoting.detailed_message().contains("CANARY") && !quoting.to_string().contains("CANARY"), "{quoting}");
}

/// A name, rules, and a dictionary: the most expensive cases within all bounds, one for each way to spend the meter's
/// allowance. In a release build each takes less than a second; the test prints the time, and fails if it is many times
/// as long.
type Case<'a> = (&'a str, Value, Vec<(&'a str, &'a str)>);

#[test]
fn the_worst_check_is_short() {
    let million = "x".repeat(1 << 20);
    let numbers = format!("[{}1]", "1,".repeat((1 << 19) - 2));
    let short = format!("[{}1]", "1,".repeat(90_000));
    let words = format!("[{}\"x\"]", "\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab\",".repeat(29_000));
    let lines = (0..40_000).map(|at| format!("k{at}: {at}")).collect::<Vec<_>>().join("\n");
    let tables = (0..60_000).map(|at| format!("k{at} = {at}")).collect::<Vec<_>>().join("\n");
    let properties = "a\\u0041".repeat(100_000);
    let schema = |schema: Value| json!([{"key": "*", "schema": {"inline": schema}}]);
    let keys: Vec<String> = (0..8192).map(|at| format!("k{at}")).collect();
    let many: Vec<(&str, &str)> = keys.iter().map(|key| (key.as_str(), "1")).collect();
    let cases: Vec<Case<'_>> = vec![
        ("json", json!([{"key": "*", "format": "json"}]), vec![("a", &numbers), ("b", &numbers), ("c", &numbers)]),
        ("yaml", json!([{"key": "*", "format": "yaml"}]), vec![("a", &lines), ("b", &lines), ("c", &lines)]),
        ("flow", json!([{"key": "*", "format": "yaml"}]), vec![("a", &numbers[..200_000])]),
        ("toml", json!([{"key": "*", "format": "toml"}]), vec![("a", &tables), ("b", &tables), ("c", &tables)]),
        ("properties", json!([{"key": "*", "format": "properties"}]), vec![("a", &properties), ("b", &properties)]),
        ("base64", json!([{"key": "*", "format": "base64"}]), vec![("a", &million), ("b", &million), ("c", &million)]),
        ("rules", json!(vec![json!({"key": "*", "format": "int"}); 32]), many.clone()),
        ("items", schema(json!({"items": {"type": "integer"}})), vec![("a", &short)]),
        (
            "any",
            schema(json!({"items": {"anyOf": [{"minimum": 5}, {"minimum": 6}, {"type": "string"}]}})),
            vec![("a", "[1,1,1,1,1,1]")],
        ),
        ("pattern", schema(json!({"items": {"pattern": "^(a|aa|a{1,10}){10}$"}})), vec![("a", &words[..35_001])]),
        ("unique", schema(json!({"uniqueItems": true})), vec![("a", &words)]),
        ("cel", json!([{"rule": "data.all(a, data.filter(b, a == b).size() == 1)"}]), many[..700].to_vec()),
        (
            "text",
            json!([{"rule": "[1,2,3].all(x, data.a.matches('^(x|xx|x{1,10}){10}$') || true)"}]),
            vec![("a", &million[..100_000])],
        ),
    ];
    for (name, all, content) in cases {
        let rules = compiled(all);
        let began = Instant::now();
        let report = said(&rules, &content);
        let took = began.elapsed();
        println!("{name}: {took:?} {}", &report[..report.len().min(120)]);
        assert!(took < Duration::from_mins(1), "{name}: {took:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Whatever is checked by whatever rule, no message has a value, and each stays within its bound.
    #[test]
    fn no_message_has_a_value(format in 0..17_usize, before in ".{0,8}", after in ".{0,8}", secret in any::<bool>()) {
        let format = nudge_api::ValueFormat::ALL[format];
        let all = rules(json!([
            {"key": "k", "format": format, "schema": {"inline": {"type": "null"}}},
            {"rule": "data.k == 'x'"},
        ]));
        let rules = Rules::compile(&all, &SchemaTexts::new()).unwrap();
        for value in [format!("{before}CANARY{after}"), format!("{before}\"CANARY{after}"), format!("[CANARY, {before}")] {
            let dictionary: Dictionary<'_> = [("k", DictionaryEntry { value: value.as_bytes(), secret })].into();
            let report = rules.check(&dictionary).unwrap_err().to_string();
            prop_assert!(!report.contains("CANARY") && report.len() <= 300, "{}", report);
        }
    }
}
