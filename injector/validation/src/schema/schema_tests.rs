use std::time::Instant;

use serde_json::json;

use super::*;
use crate::deep_stack::with_deep_stack;
use crate::meter;

fn said(schema: &Value, instance: &Value, secret: bool) -> Vec<String> {
    let found = with_deep_stack(|| {
        meter::begin(meter::MAX_STEPS);
        Schema::compile(schema.clone()).unwrap().check(instance, secret).unwrap()
    });
    found.unwrap().into_iter().map(|(pointer, rule)| format!("{pointer}: {rule}")).collect()
}

fn refused(schema: Value) -> String {
    Schema::compile(schema).err().unwrap_or_else(|| "accepted".to_owned())
}

fn exhausts(schema: &Value, instance: &Value) -> bool {
    let schema = with_deep_stack(|| Schema::compile(schema.clone()).unwrap()).unwrap();
    let began = Instant::now();
    let check = || {
        meter::begin(meter::MAX_STEPS);
        schema.check(instance, false).is_err()
    };
    let exhausted = with_deep_stack(check).unwrap();
    println!("{:?} {exhausted}", began.elapsed());
    exhausted
}

#[test]
fn what_is_wrong_is_said_with_its_place_and_rule() {
    let schema = json!({
        "type": "object", "required": ["lives"], "additionalProperties": false,
        "properties": {
            "lives": {"type": "integer", "minimum": 1, "maximum": 9},
            "name": {"type": ["string", "null"], "minLength": 2, "pattern": "^[a-z]+$"},
            "mode": {"enum": ["easy", "hard"]}, "tags": {"type": "array", "items": {"type": "string"}, "uniqueItems": true},
            "mail": {"format": "email"}, "any": {"anyOf": [{"type": "string"}, {"minimum": 3}]},
        }
    });
    for (instance, message) in [
        (json!({"lives": 0}), "/lives: must be at least 1"),
        (json!({"lives": "3"}), "/lives: must be integer"),
        (json!({}), ": lives is missing"),
        (json!({"lives": 1, "lvies": 2}), ": lvies is not allowed"),
        (json!({"lives": 1, "name": 5}), "/name: must be null or string"),
        (json!({"lives": 1, "name": "A1"}), "/name: must match ^[a-z]+$"),
        (json!({"lives": 1, "mode": "medium"}), "/mode: must be one of [\"easy\",\"hard\"]"),
        (json!({"lives": 1, "tags": ["a", 7]}), "/tags/1: must be string"),
        (json!({"lives": 1, "tags": ["a", "a"]}), "/tags: must not have an item twice"),
        (json!({"lives": 1, "mail": "hunter2"}), "/mail: must have the format email"),
        (json!({"lives": 1, "any": 2}), "/any: breaks the rule anyOf of its schema"),
        (json!([1]), ": must be object"),
    ] {
        assert_eq!(said(&schema, &instance, false), [message], "{instance}");
    }
    assert!(said(&schema, &json!({"lives": 3, "name": null}), false).is_empty());
}

#[test]
fn of_a_secret_only_what_the_schema_names_is_said() {
    let schema = json!({
        "properties": {"users": {"additionalProperties": {"properties": {"age": {"type": "integer"}}, "additionalProperties": false}}},
    });
    let instance = json!({"users": {"hunter2": {"age": "x"}}});
    assert_eq!(said(&schema, &instance, true), ["/users/*/age: must be integer"]);
    assert_eq!(said(&schema, &instance, false), ["/users/hunter2/age: must be integer"]);
    let instance = json!({"users": {"hunter2": {"hunter3": 1, "hunter4": 2}}});
    assert_eq!(said(&schema, &instance, true), ["/users/*: has 2 properties that are not allowed"]);
}

#[test]
fn nothing_is_fetched() {
    for target in ["https://example.com/a.json", "file:///etc/passwd", "other.json#/a", "//example.com/a"] {
        let message = refused(json!({"properties": {"a": {"$ref": target}}}));
        assert!(message.starts_with(&format!("it refers to {target}, and only references within")), "{message}");
    }
    for schema in [json!({"$schema": "https://example.com/own"}), json!({"$ref": "#/nowhere"})] {
        assert_ne!(refused(schema.clone()), "accepted", "{schema}");
    }
    let local = json!({"$id": "https://example.com/a", "$defs": {"a": {"type": "integer"}}, "properties": {"x": {"$ref": "#/$defs/a"}}});
    assert_eq!(said(&local, &json!({"x": "1"}), false), ["/x: must be integer"]);
    assert!(
        refused(json!({"properties": {"a": {"$id": "https://example.com/b"}}}))
            .contains("a schema within it has an $id")
    );
    // A property of that name is no keyword.
    assert!(
        said(&json!({"properties": {"$ref": {"type": "string"}, "$id": {}}}), &json!({"$ref": "x"}), false).is_empty()
    );
}

#[test]
fn what_can_not_be_compiled_is_refused() {
    for schema in [
        json!({"type": "strin"}),
        json!({"minimum": "1"}),
        json!({"pattern": "("}),
        json!({"pattern": "(?=a)b"}),
        json!({"pattern": "\\w{900}"}),
        json!([1]),
        json!({"$dynamicRef": "#a"}),
        json!({"description": "x".repeat(70_000)}),
        json!({"allOf": (0..51).map(|number| json!({"pattern": format!("a{number}")})).collect::<Vec<_>>()}),
        (0..70).fold(json!({}), |inner, _| json!({"not": inner})),
    ] {
        let message = refused(schema.clone());
        assert!(message != "accepted" && message.len() < 300, "{message} {}", &schema.to_string()[..40]);
    }
}

#[test]
fn what_would_take_for_ever_is_not_begun() {
    let level = |keyword: &str, next: usize| json!({keyword: [{"$ref": format!("#/$defs/d{next}")}, {"$ref": format!("#/$defs/d{next}")}]});
    for keyword in ["allOf", "anyOf", "oneOf"] {
        let mut defs: serde_json::Map<String, Value> =
            (0..40).map(|at| (format!("d{at}"), level(keyword, at + 1))).collect();
        defs.insert("d40".to_owned(), json!({"type": "string"}));
        assert!(exhausts(&json!({"$defs": defs, "$ref": "#/$defs/d0"}), &json!(1)), "{keyword}");
    }
    let twice = json!({"items": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}, {"type": "string"}]}});
    let deep = (0..100).fold(json!(1), |inner, _| json!([inner]));
    assert!(exhausts(&twice, &deep));
    let values: Vec<Value> = (0..100_000).map(|number| json!(format!("{number:0>8}"))).collect();
    assert!(exhausts(&json!({"items": {"pattern": "^(a|b|ab)*c{0,200}$"}}), &json!(values)));
    assert!(exhausts(&json!({"enum": (0..6000).collect::<Vec<_>>()}), &json!(values)));
    let next = |at: usize| (format!("d{at}"), json!({"$ref": format!("#/$defs/d{}", at + 1)}));
    let mut chain: serde_json::Map<String, Value> = (0..1000).map(next).collect();
    chain.insert("d1000".to_owned(), json!({"properties": {"a": {"$ref": "#/$defs/d0"}}}));
    let schema = json!({"$defs": chain, "$ref": "#/$defs/d0"});
    assert!(!exhausts(&schema, &json!(1)) && exhausts(&schema, &json!({"a": {"a": 1}})), "it goes too deep");
}

#[test]
fn schemas_that_hold_themselves_are_fine() {
    for schema in [json!({"$ref": "#"}), json!({"allOf": [{"$ref": "#"}]}), json!({"not": {"not": {"$ref": "#"}}})] {
        assert!(!exhausts(&schema, &json!({"a": 1})), "{schema}");
    }
    let tree = json!({"type": "object", "properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}, "value": {"type": "integer"}}});
    let deep = (0..100).fold(json!({"value": "x"}), |inner, _| json!({"left": inner, "right": {"value": 1}}));
    let found = said(&tree, &deep, false);
    assert!(found.len() == 1 && found[0].ends_with("/left/value: must be integer"), "{found:?}");
}

#[test]
fn usual_schemas_have_room_for_large_values() {
    let properties = json!({"id": {"type": "integer"}, "name": {"type": "string", "maxLength": 40}});
    let schema = json!({"type": "array", "items": {"type": "object", "required": ["id"], "properties": properties}});
    let rows: Vec<Value> = (0..20_000).map(|id| json!({"id": id, "name": format!("name {id}")})).collect();
    assert!(!exhausts(&schema, &json!(rows)));
}
