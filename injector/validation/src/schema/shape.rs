//! The rules for the shape of a schema that the library does not check.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::finding::clip;

/// The maximum number of regular expressions in a schema.
const MAX_PATTERNS: usize = 50;
/// The maximum depth of a schema.
const MAX_DEPTH: usize = 64;

/// Checks references, regular expressions and depth. A property may have the name of a keyword, so only keywords with a
/// value of the right type count.
pub(super) fn check_shape(schema: &Value) -> Result<(), String> {
    let mut patterns = 0;
    walk(schema, 0, &mut patterns)?;
    if patterns > MAX_PATTERNS {
        return Err(format!("it has {patterns} regular expressions, and at most {MAX_PATTERNS} are allowed"));
    }
    Ok(())
}

fn walk(schema: &Value, depth: usize, patterns: &mut usize) -> Result<(), String> {
    if depth > MAX_DEPTH {
        return Err(format!("it is nested more than {MAX_DEPTH} deep"));
    }
    match schema {
        Value::Array(items) => items.iter().try_for_each(|item| walk(item, depth + 1, patterns)),
        Value::Object(entries) => {
            for (name, value) in entries {
                match (name.as_str(), value) {
                    ("$ref", Value::String(target)) if !target.starts_with('#') => {
                        return Err(format!(
                            "it refers to {}, and only references within the schema itself (#/...) are allowed; nothing is fetched",
                            clip(target, 96)
                        ));
                    }
                    ("$dynamicRef" | "$recursiveRef", Value::String(_)) => {
                        return Err(format!("{name} is not supported; use $ref"));
                    }
                    ("$id" | "id", Value::String(_)) if depth > 0 => {
                        return Err(format!("a schema within it has an {name}, which is not supported; remove it"));
                    }
                    ("pattern", Value::String(_)) => *patterns += 1,
                    ("patternProperties", Value::Object(entries)) => *patterns += entries.len(),
                    _ => {}
                }
                // The values of these keywords are not schemas.
                if !matches!(name.as_str(), "enum" | "const" | "default" | "examples") {
                    walk(value, depth + 1, patterns)?;
                }
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Returns the names of properties anywhere in the schema.
pub(super) fn property_names(schema: &Value) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    collect(schema, &mut names);
    names
}

fn collect(schema: &Value, names: &mut BTreeSet<String>) {
    match schema {
        Value::Array(items) => items.iter().for_each(|item| collect(item, names)),
        Value::Object(entries) => {
            for (name, value) in entries {
                if let ("properties", Value::Object(properties)) = (name.as_str(), value) {
                    names.extend(properties.keys().cloned());
                }
                collect(value, names);
            }
        }
        _ => {}
    }
}
