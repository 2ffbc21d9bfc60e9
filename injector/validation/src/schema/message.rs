//! The messages about values that break their schema. The library's own messages quote values.

use jsonschema::ValidationError;
use jsonschema::error::{TypeKind, ValidationErrorKind as Kind};
use nudge_protocol::plural::{agreeing, counted};
use serde_json::Value;

use crate::finding::clip;

/// The maximum length of a part of a schema, or of the name of a property, in a message.
const MAX_PART_BYTES: usize = 64;
/// The maximum number of names in one message.
const MAX_NAMES: usize = 3;

/// Returns the pointer, with `*` for each name that must not be shown. Positions in lists are always shown.
pub(super) fn mask_pointer(pointer: &str, may_be_shown: impl Fn(&str) -> bool) -> String {
    let mask = |segment: &str| {
        let name = segment.replace("~1", "/").replace("~0", "~");
        let is_index = !segment.is_empty() && segment.len() < 8 && segment.bytes().all(|byte| byte.is_ascii_digit());
        if is_index || may_be_shown(&name) { segment.to_owned() } else { "*".to_owned() }
    };
    pointer.split('/').skip(1).flat_map(|segment| ["/".to_owned(), mask(segment)]).collect()
}

/// Returns the broken rule with its text from the schema. Of the value, it shows only names of properties that may be
/// shown.
pub(super) fn describe_rule(error: &ValidationError<'_>, may_be_shown: impl Fn(&str) -> bool) -> String {
    let limit = |value: &Value| clip(&value.to_string(), MAX_PART_BYTES);
    match error.kind() {
        Kind::Type { kind } => format!("must be {}", list_types(kind)),
        Kind::Required { property } => {
            format!(
                "{} is missing",
                property.as_str().map_or_else(|| limit(property), |name| clip(name, MAX_PART_BYTES))
            )
        }
        Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
            let names: Vec<String> = unexpected
                .iter()
                .filter(|name| may_be_shown(name))
                .take(MAX_NAMES)
                .map(|name| clip(name, MAX_PART_BYTES))
                .collect();
            match (names.is_empty(), unexpected.len()) {
                (true, 1) => "has a property that is not allowed".to_owned(),
                (true, count) => format!("has {count} properties that are not allowed"),
                (false, count) if count == names.len() => format!("{} is not allowed", names.join(", ")),
                (false, count) => format!("{} and {} more are not allowed", names.join(", "), count - names.len()),
            }
        }
        Kind::Minimum { limit: least } => format!("must be at least {}", limit(least)),
        Kind::Maximum { limit: most } => format!("must be at most {}", limit(most)),
        Kind::ExclusiveMinimum { limit: bound } => format!("must be more than {}", limit(bound)),
        Kind::ExclusiveMaximum { limit: above } => format!("must be less than {}", limit(above)),
        Kind::MultipleOf { multiple_of } => format!("must be a multiple of {multiple_of}"),
        Kind::MinLength { limit } => format!("must have at least {}", counted(*limit, "character")),
        Kind::MaxLength { limit } => format!("must have at most {}", counted(*limit, "character")),
        Kind::MinItems { limit } => format!("must have at least {}", counted(*limit, "item")),
        Kind::MaxItems { limit } => format!("must have at most {}", counted(*limit, "item")),
        Kind::MinProperties { limit } => format!("must have at least {limit} {}", properties(*limit)),
        Kind::MaxProperties { limit } => format!("must have at most {limit} {}", properties(*limit)),
        Kind::Enum { options } => format!("must be one of {}", limit(options)),
        Kind::Constant { expected_value } => format!("must be {}", limit(expected_value)),
        Kind::Pattern { pattern } => format!("must match {}", clip(pattern, MAX_PART_BYTES)),
        Kind::Format { format } => format!("must have the format {}", clip(format, MAX_PART_BYTES)),
        Kind::UniqueItems => "must not have an item twice".to_owned(),
        Kind::FalseSchema => "is not allowed".to_owned(),
        Kind::PropertyNames { .. } => "has a property whose name is not allowed".to_owned(),
        kind => format!("breaks the rule {} of its schema", clip(kind.keyword(), MAX_PART_BYTES)),
    }
}

fn properties(count: u64) -> &'static str {
    agreeing(count, "property", "properties")
}

fn list_types(kind: &TypeKind) -> String {
    match kind {
        TypeKind::Single(kind) => kind.to_string(),
        TypeKind::Multiple(kinds) => kinds.iter().map(|kind| kind.to_string()).collect::<Vec<_>>().join(" or "),
    }
}
