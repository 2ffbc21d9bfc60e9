//! JSON Schema: compiled without any access to files or the network, and checked in bounded time.

mod cost;
mod message;
mod shape;

use std::collections::BTreeSet;

use jsonschema::{PatternOptions, Validator};
use serde_json::Value;

use crate::finding::clip;
use crate::meter::{Exhausted, charge};

/// Largest schema, as JSON.
const MAX_BYTES: usize = 64 * 1024;
/// The maximum of bytes of a compiled regular expression.
const MAX_REGEX_BYTES: usize = 32 * 1024;
/// Most findings about one value.
const MAX_ERRORS: usize = 4;
/// Longest text of the library about a schema in a message.
const MAX_WHY_BYTES: usize = 160;

/// A schema that can be used.
#[derive(Debug)]
pub(crate) struct Schema {
    source: Value,
    validator: Validator,
    /// Names of properties that the schema itself has: these are no secret.
    names: BTreeSet<String>,
}

impl Schema {
    /// Compiles it, or says what is wrong with it.
    pub(crate) fn compile(source: Value) -> Result<Self, String> {
        let bytes = source.to_string().len();
        if bytes > MAX_BYTES {
            return Err(format!("it has {bytes} bytes, and at most {MAX_BYTES} are allowed"));
        }
        shape::check(&source)?;
        let patterns = PatternOptions::regex().size_limit(MAX_REGEX_BYTES).dfa_size_limit(8 * MAX_REGEX_BYTES);
        let options = jsonschema::options().offline().with_pattern_options(patterns).should_validate_formats(true);
        // It would compile what values say.
        let options = options.with_format("regex", |_: &str| true);
        let validator = options.build(&source).map_err(|error| {
            let place = error.instance_path().as_str();
            let at = if place.is_empty() { String::new() } else { format!("at {}: ", clip(place, 96)) };
            format!("{at}{}", clip(&error.to_string(), MAX_WHY_BYTES))
        })?;
        let names = shape::names(&source);
        Ok(Self { source, validator, names })
    }

    /// What is wrong with a value: JSON pointers and rules. Of a secret value, pointers have only what the schema names.
    pub(crate) fn check(&self, instance: &Value, secret: bool) -> Result<Vec<(String, String)>, Exhausted> {
        charge(cost::steps(&self.source, instance)?)?;
        if self.validator.is_valid(instance) {
            return Ok(Vec::new());
        }
        let errors = self.validator.iter_errors(instance).take(MAX_ERRORS);
        let may_be_shown = |name: &str| !secret || self.names.contains(name);
        let findings = errors.map(|error| {
            (message::pointer(error.instance_path().as_str(), may_be_shown), message::rule(&error, may_be_shown))
        });
        Ok(findings.collect())
    }
}

#[cfg(test)]
#[path = "schema_tests.rs"]
mod tests;
