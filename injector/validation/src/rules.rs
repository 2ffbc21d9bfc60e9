//! The rules of a config, ready to judge contents.

use std::collections::BTreeMap;

use nudge_api::{ConfigMapKeyRef, SchemaSource, ValidationRule, ValueFormat};
use nudge_protocol::hex::hex;
use ring::digest::{SHA256, digest};

use crate::bounded::with_deep_stack;
use crate::dictionary::{Dictionary, Entry, Parsed};
use crate::expression::Expression;
use crate::finding::{Finding, MAX_FINDINGS, Place, Report, clip};
use crate::format;
use crate::meter::{self, Exhausted};
use crate::references::{SchemaTexts, references};
use crate::rule_error::RuleError;
use crate::schema::Schema;

/// Most rules of one config.
pub const MAX_RULES: usize = 32;
/// The maximum of bytes of the rules as the spec has them, as JSON: every replica keeps them in memory.
const MAX_OWN_BYTES: usize = 64 * 1024;
/// The maximum of bytes of the rules with all their schemas, as JSON.
const MAX_BYTES: usize = 256 * 1024;
/// Longest message of a rule.
const MAX_MESSAGE_BYTES: usize = 256;
/// Bytes of the hash.
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
    /// Makes the rules ready. `texts` has the schemas that they refer to.
    pub fn compile(rules: &[ValidationRule], texts: &SchemaTexts) -> Result<Self, RuleError> {
        if rules.len() > MAX_RULES {
            return Err(RuleError::TooMany { count: rules.len(), most: MAX_RULES });
        }
        let used: Vec<(&ConfigMapKeyRef, Option<&String>)> =
            references(rules).into_iter().map(|reference| (reference, texts.get(reference))).collect();
        let own = serde_json::to_vec(rules).map_err(|_| RuleError::Failed)?;
        if own.len() > MAX_OWN_BYTES {
            return Err(RuleError::TooLarge { bytes: own.len(), most: MAX_OWN_BYTES });
        }
        let all = serde_json::to_vec(&(rules, &used)).map_err(|_| RuleError::Failed)?;
        if all.len() > MAX_BYTES {
            return Err(RuleError::TooLarge { bytes: all.len(), most: MAX_BYTES });
        }
        let hash = hex(&digest(&SHA256, &all).as_ref()[..HASH_BYTES]);
        let compiled = with_deep_stack(|| {
            meter::begin(meter::STEPS);
            rules.iter().map(|rule| compiled(rule, texts)).collect::<Result<Vec<_>, _>>()
        });
        Ok(Self { rules: compiled.ok_or(RuleError::Failed)??, hash })
    }

    /// Stands for the rules with their schemas: 24 hex digits. Equal rules have the same.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// Judges a content.
    pub fn check(&self, dictionary: &Dictionary<'_>) -> Result<(), Report> {
        let findings = with_deep_stack(|| {
            meter::begin(meter::STEPS);
            let mut check = Check { dictionary, findings: Vec::new(), parsed: BTreeMap::new() };
            if check.all(&self.rules).is_err() {
                check.findings.push(Finding::of_all(
                    "the rules need more time for this version than they may have; make them, or the version, simpler",
                ));
            }
            check.findings
        });
        match findings.unwrap_or_else(|| vec![Finding::of_all("the rules could not be checked")]) {
            none if none.is_empty() => Ok(()),
            findings => Err(Report { findings }),
        }
    }
}

fn compiled(rule: &ValidationRule, texts: &SchemaTexts) -> Result<Rule, RuleError> {
    let wrong = |why: String| RuleError::Rule { name: rule.name.clone(), why };
    let ValidationRule { name, key, format, schema, required, rule: expression, message } = rule;
    let about_key = format.is_some() || schema.is_some();
    match (key, required, expression) {
        (Some(key), None, None) if about_key && message.is_none() => {
            let schema = schema.as_ref().map(|schema| compiled_schema(schema, name, texts)).transpose()?;
            Ok(Rule::Value { key: key.clone(), format: *format, schema: schema.map(Box::new) })
        }
        (None, Some(keys), None) if !about_key && message.is_none() && !keys.is_empty() => {
            Ok(Rule::Required(keys.clone()))
        }
        (None, None, Some(source)) if !about_key => {
            if message.as_ref().is_some_and(|message| message.len() > MAX_MESSAGE_BYTES) {
                return Err(wrong(format!("has a message of more than {MAX_MESSAGE_BYTES} bytes; shorten it")));
            }
            let expression = Expression::compile(source).map_err(|why| wrong(format!("can't be used: {why}")))?;
            Ok(Rule::Expression { name: name.clone(), expression, message: message.clone() })
        }
        (Some(_), None, None) if !about_key => Err(wrong("has a key, but neither format nor schema; add one".into())),
        (None, None, None) => Err(wrong("is empty; give it key, required or rule".to_owned())),
        _ => Err(wrong(
            "has fields that do not go together; give it key with format or schema, or required, or rule with message"
                .to_owned(),
        )),
    }
}

fn compiled_schema(source: &SchemaSource, name: &str, texts: &SchemaTexts) -> Result<Schema, RuleError> {
    let name = || name.to_owned();
    let wrong = |why: String| RuleError::Rule { name: name(), why };
    match (&source.inline, &source.config_map_key_ref) {
        (Some(inline), None) => {
            Schema::compile(inline.clone()).map_err(|why| wrong(format!("has a schema that can't be used: {why}")))
        }
        (None, Some(reference)) => {
            let reference = || reference.clone();
            let unknown = || RuleError::Unknown { name: name(), reference: reference() };
            let text = texts.get(&reference()).ok_or_else(unknown)?;
            let schema = format::schema_text(text).ok_or_else(|| "it is neither JSON nor YAML".to_owned());
            schema.and_then(Schema::compile).map_err(|why| RuleError::Schema {
                name: name(),
                reference: reference(),
                why,
            })
        }
        _ => Err(wrong("must have its schema either inline or in a ConfigMap (configMapKeyRef)".to_owned())),
    }
}

/// One check.
struct Check<'a> {
    dictionary: &'a Dictionary<'a>,
    findings: Vec<Finding>,
    /// The values that have a format, by key.
    parsed: BTreeMap<&'a str, (ValueFormat, Option<Parsed>)>,
}

impl<'a> Check<'a> {
    /// Expressions are about contents whose values have their formats: without those they would only repeat what is wrong.
    fn all(&mut self, rules: &[Rule]) -> Result<(), Exhausted> {
        for rule in rules {
            match rule {
                Rule::Required(keys) => {
                    let missing = keys.iter().filter(|key| !self.dictionary.contains_key(key.as_str()));
                    let missing: Vec<Finding> =
                        missing.map(|key| Finding::of_all(format!("key {} is missing", clip(key, 96)))).collect();
                    for finding in missing {
                        self.found(finding);
                    }
                }
                Rule::Value { key, format, schema } => self.value(key, *format, schema.as_deref())?,
                Rule::Expression { .. } => {}
            }
        }
        if !self.findings.is_empty() {
            return Ok(());
        }
        for rule in rules {
            let Rule::Expression { name, expression, message } = rule else { continue };
            let parsed = self.parsed.iter().filter_map(|(key, (_, parsed))| Some((*key, &parsed.as_ref()?.0)));
            let why = match expression.evaluate(self.dictionary, parsed)? {
                Ok(true) => continue,
                Ok(false) => String::new(),
                Err(why) => format!(" ({why})"),
            };
            let rule = message.clone().unwrap_or_else(|| format!("rule {name} of spec.validation is not true"));
            self.found(Finding::of_all(format!("{}{why}", clip(&rule, 150))));
        }
        Ok(())
    }

    fn found(&mut self, finding: Finding) {
        if self.findings.len() < MAX_FINDINGS && !self.findings.contains(&finding) {
            self.findings.push(finding);
        }
    }

    /// Checks all values that the rule is about.
    fn value(&mut self, pattern: &str, format: Option<ValueFormat>, schema: Option<&Schema>) -> Result<(), Exhausted> {
        let dictionary = self.dictionary;
        meter::charge(dictionary.len() as u64 / 8 + 1)?;
        for (&key, &entry) in dictionary.iter().filter(|(key, _)| matches(pattern, key)) {
            let format = format.unwrap_or_else(|| format::by_name(key));
            self.parse(key, format, entry)?;
            let Some((known, Some(parsed))) = self.parsed.get(key) else { continue };
            if *known == format
                && let Some(schema) = schema
            {
                for (pointer, rule) in schema.check(&parsed.0, entry.secret)? {
                    self.found(Finding::of(key, Some(Place::Pointer(pointer)), rule));
                }
            }
        }
        Ok(())
    }

    /// Reads a value in a format, unless it was read in this format before.
    fn parse(&mut self, key: &str, format: ValueFormat, entry: Entry<'a>) -> Result<(), Exhausted> {
        if self.parsed.get(key).is_some_and(|(known, _)| *known == format) {
            return Ok(());
        }
        let parsed = match format::parse(format, entry.value)? {
            Ok(parsed) => Some(parsed),
            Err((place, rule)) => {
                self.found(Finding::of(key, place, rule));
                None
            }
        };
        let Some((&key, _)) = self.dictionary.get_key_value(key) else { return Ok(()) };
        self.parsed.insert(key, (format, parsed));
        Ok(())
    }
}

/// Returns whether a key is one that a pattern means: `*` stands for any characters.
fn matches(pattern: &str, key: &str) -> bool {
    let mut pieces = pattern.split('*');
    let first = pieces.next().unwrap_or_default();
    let Some(mut rest) = key.strip_prefix(first) else { return false };
    let Some(last) = pieces.next_back() else { return rest.is_empty() };
    for piece in pieces {
        let Some(at) = rest.find(piece) else { return false };
        rest = &rest[at + piece.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
#[path = "rules_tests.rs"]
mod tests;
