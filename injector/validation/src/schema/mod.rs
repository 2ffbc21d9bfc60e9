//! JSON Schema: compiled without any access to files or the network, and checked in bounded time.

mod cost;
mod message;
mod shape;

use std::collections::BTreeSet;

use jsonschema::{PatternOptions, Validator};
use serde_json::Value;

use crate::finding::clip;
use crate::meter::{Exhausted, charge};

/// The maximum length of a schema, as JSON.
const MAX_BYTES: usize = 64 * 1024;
/// The maximum size of a compiled regular expression.
const MAX_REGEX_BYTES: usize = 32 * 1024;
/// The maximum number of findings about one value.
const MAX_ERRORS: usize = 4;
/// The maximum length of the library's text about a schema in a message.
const MAX_WHY_BYTES: usize = 160;

/// A schema that can be used.
#[derive(Debug)]
pub(crate) struct Schema {
    source: Value,
    validator: Validator,
    /// The names of properties in the schema itself. They are not secret.
    names: BTreeSet<String>,
}

impl Schema {
    /// Compiles a schema, or returns its fault.
    pub(crate) fn compile(source: Value) -> Result<Self, String> {
        let bytes = source.to_string().len();
        if bytes > MAX_BYTES {
            return Err(format!("it has {bytes} bytes, and at most {MAX_BYTES} are allowed"));
        }
        shape::check_shape(&source)?;
        let patterns = PatternOptions::regex().size_limit(MAX_REGEX_BYTES).dfa_size_limit(8 * MAX_REGEX_BYTES);
        let options = jsonschema::options().offline().with_pattern_options(patterns).should_validate_formats(true);
        // The format `regex` would compile regular expressions from values.
        let options = options.with_format("regex", |_: &str| true);
        let validator = options.build(&source).map_err(|error| {
            let place = error.instance_path().as_str();
            let prefix = if place.is_empty() { String::new() } else { format!("at {}: ", clip(place, 96)) };
            format!("{prefix}{}", clip(&error.to_string(), MAX_WHY_BYTES))
        })?;
        let names = shape::property_names(&source);
        Ok(Self { source, validator, names })
    }

    /// Checks a value, and returns the broken rules, each with the JSON pointer of its place. For a secret value,
    /// pointers have only names from the schema.
    pub(crate) fn check(&self, instance: &Value, secret: bool) -> Result<Vec<(String, String)>, Exhausted> {
        charge(cost::count_steps(&self.source, instance)?)?;
        if self.validator.is_valid(instance) {
            return Ok(Vec::new());
        }
        let errors = self.validator.iter_errors(instance).take(MAX_ERRORS);
        let may_be_shown = |name: &str| !secret || self.names.contains(name);
        let findings = errors.map(|error| {
            (
                message::mask_pointer(error.instance_path().as_str(), may_be_shown),
                message::describe_rule(&error, may_be_shown),
            )
        });
        Ok(findings.collect())
    }
}

#[cfg(test)]
#[path = "schema_tests.rs"]
mod tests;
