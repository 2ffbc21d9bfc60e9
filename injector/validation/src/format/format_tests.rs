use std::fmt::Write as _;

use nudge_api::ValueFormat as Format;
use serde_json::json;

use super::*;
use crate::meter;

fn refused(format: Format, value: &[u8]) -> String {
    meter::begin(meter::MAX_STEPS);
    match read(format, value) {
        Ok(_) => "accepted".to_owned(),
        Err((place, rule)) => crate::finding::Finding::of_key("k", place, rule).to_string(),
    }
}

fn parsed(format: Format, value: &str) -> Value {
    meter::begin(meter::MAX_STEPS);
    read(format, value.as_bytes()).unwrap().0.clone()
}

#[test]
fn documents_are_read() {
    let expected = json!({"a": 1, "b": ["x", true, null]});
    assert_eq!(parsed(Format::Json, "{\"a\": 1,\r\n \"b\": [\"x\", true, null]}\r\n"), expected);
    assert_eq!(parsed(Format::Yaml, "a: 1\r\nb:\r\n- x\r\n- true\r\n- null\r\n"), expected);
    assert_eq!(parsed(Format::Toml, "a = 1\r\n[b]\r\nc = \"x\"\r\n"), json!({"a": 1, "b": {"c": "x"}}));
    assert_eq!(
        parsed(Format::Properties, "# c\r\na = 1\n! c\n\nb\\:c:2 \\\n   3\nd\ne\\u00e9=\\ud83d\\ude00\\t"),
        json!({"a": "1", "b:c": "2 3", "d": "", "eé": "😀\t"})
    );
    assert_eq!(
        parsed(Format::Yaml, "base: &b {a: 1}\nother: {<<: *b, c: 2}"),
        json!({"base": {"a": 1}, "other": {"a": 1, "c": 2}})
    );
}

#[test]
fn what_is_wrong_with_a_document_is_named_with_its_place() {
    for (format, value, message) in [
        (
            Format::Json,
            "{\"a\": 1\n \"b\": 2}",
            "k, line 2, column 2: must be JSON; a comma or a closing bracket is missing",
        ),
        (Format::Json, "{\"a\": 1,}", "k, line 1, column 9: must be JSON, which has no comma before a closing bracket"),
        (Format::Json, "{\"a\": 1} x", "k, line 1, column 10: must be one JSON value, and more follows it"),
        (Format::Json, "{\"a\": [1", "k, line 1, column 8: must be JSON, and ends too early"),
        (Format::Json, "", "k, line 1, column 1: must be JSON, and ends too early"),
        (
            Format::Json,
            "{\"a\": 1, \"a\": 2}",
            "k, line 1, column 12: must be JSON in which no object has a name twice",
        ),
        (Format::Json, "{a: 1}", "k, line 1, column 2: must be JSON, where names have double quotes"),
        (Format::Json, "NaN", "k, line 1, column 1: must be JSON"),
        (Format::Yaml, "a: 1\na: 2", "k, line 2, column 1: must be YAML in which no mapping has a key twice"),
        (Format::Yaml, "a: [1", "k, line 1, column 4: must be YAML"),
        (Format::Yaml, "a: *b", "k, line 1, column 4: must be YAML, and an alias has no anchor"),
        (Format::Yaml, "a: 1\n---\nb: 2\n", "k, line 3, column 1: must be one YAML document, and another follows it"),
        (Format::Yaml, "a: 1\n...\n{b", "k, line 3, column 1: must be one YAML document, and another follows it"),
        (
            Format::Yaml,
            "a: |\n  ...\n... # end\n\n}",
            "k, line 5, column 1: must be one YAML document, and another follows it",
        ),
        (Format::Toml, "a = 1\na = 2", "k, line 2, column 1: must be TOML in which no table has a key twice"),
        (Format::Toml, "a = \n", "k, line 1, column 5: must be TOML"),
        (
            Format::Properties,
            "a=1\nb=\\u12",
            "k, line 2, column 1: must be properties, where \\u is followed by four hexadecimal digits",
        ),
        (Format::Properties, "a=1\na=2", "k, line 2, column 1: must be properties in which no key occurs twice"),
        (Format::Properties, "=1", "k, line 1, column 1: must be properties, where each line begins with a key"),
        (Format::Text, "a\u{7}", "k, line 1, column 2: must be text without control characters"),
    ] {
        assert_eq!(refused(format, value.as_bytes()), format!("key {message}"), "{format:?} {value}");
    }
}

#[test]
fn no_format_takes_binary_or_a_byte_order_mark() {
    for format in Format::ALL {
        let binary = refused(format, b"a\n\xff");
        assert_eq!(binary, "key k, line 2, column 1: must be text in UTF-8, and is binary", "{format:?}");
        let mark = refused(format, "\u{feff}{}".as_bytes());
        assert!(mark.contains("line 1, column 1: must not begin with a byte order mark"), "{format:?} {mark}");
    }
}

#[test]
fn bombs_are_refused_at_once() {
    let mut laughs = "a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]\n".to_owned();
    for level in 1..10 {
        let before = vec![format!("*a{}", level - 1); 9].join(", ");
        writeln!(laughs, "a{level}: &a{level} [{before}]").unwrap();
    }
    assert!(refused(Format::Yaml, laughs.as_bytes()).contains("at most 100,000 nodes"));
    assert!(refused(Format::Yaml, "[".repeat(100_000).as_bytes()).contains("must be YAML"));
    assert!(refused(Format::Yaml, "- ".repeat(10_000).as_bytes()).contains("must be YAML"));
    assert!(refused(Format::Json, "[".repeat(100_000).as_bytes()).contains("at most 127 deep"));
    assert!(refused(Format::Toml, format!("a = {}", "[".repeat(100_000)).as_bytes()).contains("must be TOML"));
    let tables = format!("{}x = 1", "[a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a]\n".repeat(10_000));
    assert!(refused(Format::Toml, tables.as_bytes()).contains("must be TOML"));
}

#[test]
fn single_values_are_what_programs_read() {
    for (format, good, bad) in [
        (
            Format::Int,
            &["0", "-5", "42", "18446744073709551615"][..],
            &["", "+1", "01", "1.0", "1e3", "0x1", " 1", "1\n", "1_000"][..],
        ),
        (Format::Float, &["0", "-5.25", "1e9", "0.5"], &["", ".5", "inf", "NaN", "1,5", "+1"]),
        (Format::Bool, &["true", "false"], &["True", "yes", "1", "true\r\n", ""]),
        (
            Format::Duration,
            &["0", "1h30m", "500ms", "1.5s", "2µs"],
            &["", "1", "1d", "h", "1h30", "-1s", "PT1M", "1h0"],
        ),
        (
            Format::Timestamp,
            &["2026-11-23T12:00:00Z", "2026-11-23T12:00:00.5+01:00"],
            &["2026-11-23", "2026-13-01T00:00:00Z", "2026-11-23T12:00:00", "2026-11-23T12:00:00+01[Europe/Paris]"],
        ),
        (
            Format::Url,
            &["https://example.com/", "postgres://a:b@db_1:5432/x?y=%20", "http://[::1]:80", "http://10.0.0.1"],
            &["example.com", "https://", "http://a b", "http://a:x/", "http://%zz/", "https:///x", "http://[::g]/"],
        ),
        (Format::Ip, &["10.0.0.1", "::1"], &["10.0.0", "10.0.0.256", ""]),
        (Format::Cidr, &["10.0.0.0/8", "::/0"], &["10.0.0.0", "10.0.0.0/33", "10.0.0.0/-1", "::/129", "10.0.0.0/08"]),
        (Format::Hostname, &["db", "db.example.com", "db."], &["", "-a", "a..b", "a_b", "a b"]),
        (Format::Port, &["1", "65535"], &["0", "65536", "http", "-1"]),
        (Format::Base64, &["", "aGk="], &["aGk", "a", "aGk=\n", "?"]),
        (
            Format::Pem,
            &[
                "-----BEGIN X-----\r\naGk=\r\n-----END X-----\r\n",
                "-----BEGIN X-----\naGk=\n-----END X-----\n-----BEGIN Y-----\naGk=\n-----END Y-----",
            ],
            &[
                "",
                "aGk=",
                "-----BEGIN X-----\n?\n-----END X-----\n",
                "-----BEGIN X-----\naGk=\n",
                "-----BEGIN X-----\naGk=\n-----END Y-----\n",
            ],
        ),
    ] {
        for value in good {
            assert_eq!(refused(format, value.as_bytes()), "accepted", "{format:?} {value:?}");
        }
        for value in bad {
            assert!(refused(format, value.as_bytes()).starts_with("key k: must "), "{format:?} {value:?}");
        }
    }
    assert_eq!((parsed(Format::Int, "-5"), parsed(Format::Bool, "true")), (json!(-5), json!(true)));
    assert_eq!(parsed(Format::Float, "0.5"), json!(0.5));
}
