//! Whether the content of a version follows `spec.validation` of its config: formats, JSON Schema, required keys, CEL.
//!
//! [`Rules::compile`] makes the rules ready or says why they can't be used; [`Rules::check`] judges one dictionary. Both are pure,
//! bounded in time and memory whatever they are given, and no message holds a value. Sealing, admission, `kubectl nudge` and whatever
//! else makes versions call the same two functions.

mod bounded;
mod dictionary;
mod expression;
mod finding;
mod format;
mod meter;
mod references;
mod rule_error;
mod rules;
mod schema;

pub use dictionary::{Dictionary, Entry, dictionary_of};
pub use finding::{Finding, Place, Report};
pub use format::behind_document;
pub use references::{SchemaTexts, references, schema_of};
pub use rule_error::RuleError;
pub use rules::{MAX_RULES, Rules};
