//! The compiled rules of a config. They judge contents.

use std::collections::BTreeMap;

use nudge_api::{ConfigMapKeyRef, SchemaSource, ValidationRule, ValueFormat};
use nudge_protocol::hex::hex;
use nudge_protocol::matches_pattern;
use ring::digest::{SHA256, digest};

use crate::deep_stack::with_deep_stack;
use crate::dictionary::{Dictionary, DictionaryEntry, Parsed};
use crate::expression::Expression;
use crate::finding::{Finding, MAX_FINDINGS, Place, Report, clip};
use crate::format;
use crate::meter::{self, Exhausted};
use crate::references::{SchemaTexts, references};
use crate::rule_error::RuleError;
use crate::schema::Schema;

/// The maximum number of rules of a config.
pub const MAX_RULES: usize = 32;
/// The maximum length of the rules in the spec, as JSON. Every replica keeps them in memory.
const MAX_RULES_BYTES: usize = 64 * 1024;
/// The maximum length of the rules with all their schemas, as JSON.
const MAX_TOTAL_BYTES: usize = 256 * 1024;
/// The maximum length of the message of a rule.
const MAX_MESSAGE_BYTES: usize = 256;
/// The length of the hash.
const HASH_BYTES: usize = 12;

/// The rules of a config. They can be shared between threads.
#[derive(Debug)]
pub struct Rules {
    rules: Vec<Rule>,
    hash: String,
}

#[derive(Debug)]
enum Rule {
    Value { key: String, format: Option<ValueFormat>, schema: Option<Box<Schema>> },
    Required(Vec<String>),
    Expression { name: String, expression: Expression, message: Option<String> },
}

impl Rules {
    /// Compiles the rules. `texts` has the schemas that the rules refer to.
    pub fn compile(rules: &[ValidationRule], texts: &SchemaTexts) -> Result<Self, RuleError> {
        if rules.len() > MAX_RULES {
            return Err(RuleError::TooMany { count: rules.len(), most: MAX_RULES });
        }
        let schemas: Vec<(&ConfigMapKeyRef, Option<&String>)> =
            references(rules).into_iter().map(|reference| (reference, texts.get(reference))).collect();
        let json = serde_json::to_vec(rules).map_err(|_| RuleError::Failed)?;
        if json.len() > MAX_RULES_BYTES {
            return Err(RuleError::TooLarge { bytes: json.len(), most: MAX_RULES_BYTES });
        }
        let json = serde_json::to_vec(&(rules, &schemas)).map_err(|_| RuleError::Failed)?;
        if json.len() > MAX_TOTAL_BYTES {
            return Err(RuleError::TooLarge { bytes: json.len(), most: MAX_TOTAL_BYTES });
        }
        let hash = hex(&digest(&SHA256, &json).as_ref()[..HASH_BYTES]);
        let compiled = with_deep_stack(|| {
            meter::begin(meter::MAX_STEPS);
            rules.iter().map(|rule| compile_rule(rule, texts)).collect::<Result<Vec<_>, _>>()
        });
        Ok(Self { rules: compiled.ok_or(RuleError::Failed)??, hash })
    }

    /// Returns the hash of the rules with their schemas, in 24 hex digits.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// Judges a content.
    pub fn check(&self, dictionary: &Dictionary<'_>) -> Result<(), Report> {
        let findings = with_deep_stack(|| {
            meter::begin(meter::MAX_STEPS);
            let mut check = Check { dictionary, findings: Vec::new(), parsed: BTreeMap::new() };
            if check.check_rules(&self.rules).is_err() {
                check.findings.push(Finding::of_version(
                    "the rules need more time for this version than they may have; make them, or the version, simpler",
                ));
            }
            check.findings
        });
        match findings.unwrap_or_else(|| vec![Finding::of_version("the rules could not be checked")]) {
            findings if findings.is_empty() => Ok(()),
            findings => Err(Report { findings }),
        }
    }
}

fn compile_rule(rule: &ValidationRule, texts: &SchemaTexts) -> Result<Rule, RuleError> {
    let rule_error = |cause: String| RuleError::Rule { name: rule.name.clone(), cause };
    let ValidationRule { name, key, format, schema, required, rule: expression, message } = rule;
    let is_about_key = format.is_some() || schema.is_some();
    match (key, required, expression) {
        (Some(key), None, None) if is_about_key && message.is_none() => {
            let schema = schema.as_ref().map(|schema| compile_schema(schema, name, texts)).transpose()?;
            Ok(Rule::Value { key: key.clone(), format: *format, schema: schema.map(Box::new) })
        }
        (None, Some(keys), None) if !is_about_key && message.is_none() && !keys.is_empty() => {
            Ok(Rule::Required(keys.clone()))
        }
        (None, None, Some(source)) if !is_about_key => {
            if message.as_ref().is_some_and(|message| message.len() > MAX_MESSAGE_BYTES) {
                return Err(rule_error(format!("has a message of more than {MAX_MESSAGE_BYTES} bytes; shorten it")));
            }
            let expression =
                Expression::compile(source).map_err(|cause| rule_error(format!("can't be used: {cause}")))?;
            Ok(Rule::Expression { name: name.clone(), expression, message: message.clone() })
        }
        (Some(_), None, None) if !is_about_key => {
            Err(rule_error("has a key, but neither format nor schema; add one".into()))
        }
        (None, None, None) => Err(rule_error("is empty; give it key, required or rule".to_owned())),
        _ => Err(rule_error(
            "has fields that do not go together; give it key with format or schema, or required, or rule with message"
                .to_owned(),
        )),
    }
}

fn compile_schema(source: &SchemaSource, name: &str, texts: &SchemaTexts) -> Result<Schema, RuleError> {
    let name = || name.to_owned();
    let rule_error = |cause: String| RuleError::Rule { name: name(), cause };
    match (&source.inline, &source.config_map_key_ref) {
        (Some(inline), None) => Schema::compile(inline.clone())
            .map_err(|cause| rule_error(format!("has a schema that can't be used: {cause}"))),
        (None, Some(reference)) => {
            let reference = || reference.clone();
            let unknown = || RuleError::Unknown { name: name(), reference: reference() };
            let text = texts.get(&reference()).ok_or_else(unknown)?;
            let schema = format::parse_schema(text).ok_or_else(|| "it is neither JSON nor YAML".to_owned());
            schema.and_then(Schema::compile).map_err(|cause| RuleError::Schema {
                name: name(),
                reference: reference(),
                cause,
            })
        }
        _ => Err(rule_error("must have its schema either inline or in a ConfigMap (configMapKeyRef)".to_owned())),
    }
}

/// The state of one check.
struct Check<'a> {
    dictionary: &'a Dictionary<'a>,
    findings: Vec<Finding>,
    /// The values that were read in a format, by key; `None` if the value does not have the format.
    parsed: BTreeMap<&'a str, (ValueFormat, Option<Parsed>)>,
}

impl<'a> Check<'a> {
    /// Checks all rules, and expressions last. On values without their formats, expressions would only repeat the
    /// findings.
    fn check_rules(&mut self, rules: &[Rule]) -> Result<(), Exhausted> {
        for rule in rules {
            match rule {
                Rule::Required(keys) => {
                    let missing = keys.iter().filter(|key| !self.dictionary.contains_key(key.as_str()));
                    let missing: Vec<Finding> =
                        missing.map(|key| Finding::of_version(format!("key {} is missing", clip(key, 96)))).collect();
                    for finding in missing {
                        self.add_finding(finding);
                    }
                }
                Rule::Value { key, format, schema } => self.check_values(key, *format, schema.as_deref())?,
                Rule::Expression { .. } => {}
            }
        }
        if !self.findings.is_empty() {
            return Ok(());
        }
        for rule in rules {
            let Rule::Expression { name, expression, message } = rule else { continue };
            let parsed = self.parsed.iter().filter_map(|(key, (_, parsed))| Some((*key, &parsed.as_ref()?.0)));
            let cause = match expression.evaluate(self.dictionary, parsed)? {
                Ok(true) => continue,
                Ok(false) => String::new(),
                Err(cause) => format!(" ({cause})"),
            };
            let rule = message.clone().unwrap_or_else(|| format!("rule {name} of spec.validation is not true"));
            self.add_finding(Finding::of_version(format!("{}{cause}", clip(&rule, 150))));
        }
        Ok(())
    }

    fn add_finding(&mut self, finding: Finding) {
        if self.findings.len() < MAX_FINDINGS && !self.findings.contains(&finding) {
            self.findings.push(finding);
        }
    }

    /// Checks all values that the rule applies to.
    fn check_values(
        &mut self,
        pattern: &str,
        format: Option<ValueFormat>,
        schema: Option<&Schema>,
    ) -> Result<(), Exhausted> {
        let dictionary = self.dictionary;
        meter::charge(dictionary.len() as u64 / 8 + 1)?;
        for (&key, &entry) in dictionary.iter().filter(|(key, _)| matches_pattern(pattern, key)) {
            let format = format.unwrap_or_else(|| format::format_of_key(key));
            self.parse(key, format, entry)?;
            let Some((parsed_format, Some(parsed))) = self.parsed.get(key) else { continue };
            if *parsed_format == format
                && let Some(schema) = schema
            {
                for (pointer, rule) in schema.check(&parsed.0, entry.secret)? {
                    self.add_finding(Finding::of_key(key, Some(Place::Pointer(pointer)), rule));
                }
            }
        }
        Ok(())
    }

    /// Reads a value in a format, unless it was already read in this format.
    fn parse(&mut self, key: &str, format: ValueFormat, entry: DictionaryEntry<'a>) -> Result<(), Exhausted> {
        if self.parsed.get(key).is_some_and(|(parsed_format, _)| *parsed_format == format) {
            return Ok(());
        }
        let parsed = match format::parse(format, entry.value)? {
            Ok(parsed) => Some(parsed),
            Err((place, rule)) => {
                self.add_finding(Finding::of_key(key, place, rule));
                None
            }
        };
        let Some((&key, _)) = self.dictionary.get_key_value(key) else { return Ok(()) };
        self.parsed.insert(key, (format, parsed));
        Ok(())
    }
}

#[cfg(test)]
#[path = "rules_tests.rs"]
mod tests;
