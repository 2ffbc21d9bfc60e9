use std::time::Instant;

use serde_json::json;

use super::*;
use crate::deep_stack::with_deep_stack;
use crate::dictionary::DictionaryEntry;

fn dictionary<'a>(pairs: &'a [(&'a str, &'a str)]) -> Dictionary<'a> {
    pairs.iter().map(|(key, value)| (*key, DictionaryEntry { value: value.as_bytes(), secret: false })).collect()
}

fn compiled(source: &str) -> Result<Expression, String> {
    with_deep_stack(|| Expression::compile(source)).unwrap()
}

fn evaluated(
    source: &str,
    pairs: &[(&str, &str)],
    parsed: &[(&str, Value)],
) -> Result<Result<bool, &'static str>, Exhausted> {
    let expression = compiled(source).unwrap_or_else(|why| panic!("{source}: {why}"));
    let evaluated = with_deep_stack(|| {
        meter::begin(meter::MAX_STEPS);
        expression.evaluate(&dictionary(pairs), parsed.iter().map(|(key, value)| (*key, value)))
    });
    evaluated.unwrap()
}

#[test]
fn expressions_see_values_and_what_they_say() {
    let pairs = [("min", "2"), ("max", "10"), ("a.json", "{\"lives\": 3}"), ("url", "https://x/")];
    let parsed = [("a.json", json!({"lives": 3, "names": ["a", "b"], "rate": 0.5, "on": true, "none": null}))];
    for source in [
        "int(data.min) < int(data.max)",
        "data.url.startsWith('https://') && size(data) == 4",
        "has(data.min) && !has(data.mid) && 'min' in data",
        "parsed['a.json'].lives >= int(data.min)",
        "parsed['a.json'].names.all(name, name.matches('^[a-z]$'))",
        "parsed['a.json'].names.map(name, name + '!') == ['a!', 'b!']",
        "data.filter(key, key.endsWith('.json')).size() == 1",
        "data.exists_one(key, data[key] == '2')",
        "parsed['a.json'].rate < 1.0 && parsed['a.json'].on && parsed['a.json'].none == null",
        "type(data.min) == string ? true : false",
        "'x' in ['x', 'y'] && {'a': 1}.a == 1 && 7 % 2 == 1",
    ] {
        assert_eq!(evaluated(source, &pairs, &parsed), Ok(Ok(true)), "{source}");
    }
    assert_eq!(evaluated("data.min == '3'", &pairs, &[]), Ok(Ok(false)));
}

#[test]
fn what_can_not_be_evaluated_says_so_without_a_value() {
    for (source, why) in [
        ("data.missing == ''", "a key that it reads is missing"),
        ("int(data.text) > 0", "a function can't use its argument"),
        ("data.text > 1", "it uses a value of another type"),
        ("1 / size(data.text.matches('x') ? 'a' : '') == 0", "it divides by zero"),
        ("data.text.matches(data.pattern)", "a function can't use its argument"),
        ("[1][size(data.text)] == 1", "a list is too short"),
        ("data.text", NOT_BOOL),
    ] {
        let pairs = [("text", "hunter2"), ("pattern", "(")];
        assert_eq!(evaluated(source, &pairs, &[]), Ok(Err(why)), "{source}");
    }
}

#[test]
fn what_can_never_be_evaluated_is_refused() {
    for (source, why) in [
        ("data.a ==", "it is not CEL: line 1, column 10: "),
        ("", "it is not CEL: "),
        ("dat.a == ''", "there is no variable dat; use data or parsed"),
        ("[1].all(x, y > 0)", "there is no variable y"),
        ("[1].all(x, x > 0) && x > 0", "there is no variable x"),
        ("lower(data.a) == ''", "there is no function lower; use bool, bytes, contains, "),
        ("data.a.split(',').size() > 1", "there is no function split"),
        ("all(data)", "there is no function all"),
        ("optional.none() == 1", "there is no function none"),
        ("data.?a == 1", "it is not CEL"),
        ("X{a: 1}.a == 1", "there is no type X"),
        ("1 + 1", "it must yield true or false"),
        ("'a'", "it must yield true or false"),
    ] {
        let refused = compiled(source).err().unwrap_or_default();
        assert!(refused.starts_with(why), "{source}: {refused}");
    }
    let long = format!("true {}", "&& true ".repeat(300));
    assert_eq!(compiled(&long).unwrap_err(), "it has 2405 bytes, and at most 2048 are allowed");
    let many = format!("1+1{} == 0", "+1".repeat(600));
    assert!(compiled(&many).is_err());
    for open in ["(", "[", "!", "-", "{1:", "a.b(", "true?"] {
        assert!(compiled(&open.repeat(2048 / open.len())).is_err(), "{open}");
    }
}

#[test]
fn what_runs_away_is_stopped() {
    let (value, keys): (String, Vec<String>) = ("x".repeat(1 << 20), (0..8000).map(|key| format!("k{key}")).collect());
    let mut pairs: Vec<(&str, &str)> = keys.iter().map(|key| (key.as_str(), "v")).collect();
    pairs.extend([("large", value.as_str()), ("large2", value.as_str()), ("pattern", "(x+x+)+y")]);
    let sum = format!("size(data.large{}) > 0", " + data.large".repeat(100));
    let list = "[data.large + 'x']".to_owned();
    let doubled = (0..6).fold(list, |inner, _| format!("({inner} + {inner})"));
    let parsed = [("p", json!((0..10_000).collect::<Vec<_>>()))];
    for source in [
        "data.all(a, data.all(b, data.all(c, a + b != c)))",
        "data.all(a, data.all(b, a != b || true))",
        "data.map(a, data.map(b, a + b)).size() > 0",
        "data.all(a, data.large != data.large2 + 'x')",
        "data.all(a, data[a].matches(data.pattern) || true)",
        "[1,2,3,4,5,6,7,8,9].all(a, data.large.matches('[a-z]{500}y') || true)",
        "parsed.p.all(a, parsed.p.exists(b, b == a))",
        "parsed.p.all(a, parsed.p == parsed.p)",
        "parsed.p.map(a, parsed.p).size() > 0",
        sum.as_str(),
        &format!("size({doubled}) > 0"),
    ] {
        let began = Instant::now();
        assert_eq!(evaluated(source, &pairs, &parsed), Err(Exhausted), "{}", &source[..source.len().min(60)]);
        println!("{:?} {}", began.elapsed(), &source[..source.len().min(60)]);
    }
    // Usual expressions are not too expensive, with as much data.
    for source in
        ["data.all(key, size(data[key]) < 2000000)", "data.large.contains('xxx') && data.large == data.large2"]
    {
        assert_eq!(evaluated(source, &pairs, &parsed), Ok(Ok(true)), "{source}");
    }
}
