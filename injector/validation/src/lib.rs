//! The validation of a version's content by `spec.validation` of its config: formats, JSON Schema, required keys, CEL.
//!
//! [`Rules::compile`] compiles the rules or says why they can't be used; [`Rules::check`] checks one dictionary. Both
//! do no I/O, are bounded in time and memory for any input, and put no value into a message. Sealing, admission,
//! `kubectl nudge` and everything else that makes versions call the same two functions.

mod deep_stack;
mod dictionary;
mod expression;
mod finding;
mod format;
mod meter;
mod references;
mod rule_error;
mod rules;
mod schema;

pub use dictionary::{Dictionary, DictionaryEntry, dictionary_of};
pub use finding::{Finding, Place, Report};
pub use format::line_after_document;
pub use references::{SchemaTexts, references, schema_of};
pub use rule_error::RuleError;
pub use rules::{MAX_RULES, Rules};
