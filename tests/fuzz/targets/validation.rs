//! Rules and contents of any kind: a check ends soon, panics nowhere, and says nothing of a value.
#![cfg_attr(fuzzing, no_main)]

use std::time::{Duration, Instant};

use libfuzzer_sys::{Corpus, fuzz_target};
use nudge_api::{SchemaSource, ValidationRule, ValueFormat};
use nudge_validation::{Dictionary, DictionaryEntry, Rules, SchemaTexts};

/// What stands in every value, and in no message.
const CANARY: &str = "QXZJ";

fuzz_target!(|bytes: &[u8]| -> Corpus {
    // The first byte chooses the format, the next line is the expression, the one after it the schema, and the rest the
    // value.
    let Some((&first, rest)) = bytes.split_first() else { return Corpus::Reject };
    let format = ValueFormat::ALL[usize::from(first) % ValueFormat::ALL.len()];
    let mut lines = rest.splitn(3, |byte| *byte == b'\n');
    let [Some(expression), Some(schema), Some(value)] = [lines.next(), lines.next(), lines.next()] else {
        return Corpus::Reject;
    };
    let (Ok(expression), schema) = (str::from_utf8(expression), serde_json::from_slice(schema).ok()) else {
        return Corpus::Reject;
    };
    // The rules may say what they like, as users do.
    if expression.contains(CANARY)
        || schema.as_ref().is_some_and(|schema: &serde_json::Value| schema.to_string().contains(CANARY))
    {
        return Corpus::Reject;
    }
    let schema = schema.map(|inline| SchemaSource { inline: Some(inline), ..SchemaSource::default() });
    let named = |name: &str| ValidationRule { name: name.to_owned(), ..ValidationRule::default() };
    let about = ValidationRule { key: Some("k".to_owned()), format: Some(format), schema, ..named("value") };
    let cel = ValidationRule { rule: Some(expression.to_owned()), ..named("all") };
    let with = [value, CANARY.as_bytes(), value].concat();
    for rules in [vec![about.clone()], vec![cel.clone()], vec![about, cel]] {
        let began = Instant::now();
        let compiled = Rules::compile(&rules, &SchemaTexts::new());
        if let Ok(compiled) = &compiled {
            for (value, secret) in [(value, false), (&with[..], false), (&with[..], true)] {
                let dictionary: Dictionary<'_> = [("k", DictionaryEntry { value, secret })].into();
                if let Err(report) = compiled.check(&dictionary) {
                    let report = report.to_string();
                    assert!(report.len() <= 300, "{report}");
                    // Names in a value that is no Secret's are places.
                    assert!(!secret || !report.contains(CANARY), "{report}");
                    assert!(!report.contains("could not be checked"), "it has panicked");
                }
            }
        } else if let Err(error) = compiled {
            let error = error.to_string();
            assert!(error.len() < 600 && !error.contains("could not be made ready"), "{error}");
        }
        assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    }
    Corpus::Keep
});
