//! YAML and TOML.

use serde_json::Value;

use super::{FormatRefusal, end_of};
use crate::dictionary::Parsed;
use crate::finding::Place;

/// The maximum number of nodes of a YAML document, including those that aliases repeat.
const MAX_YAML_NODES: usize = 100_000;
/// The maximum number of aliases.
const MAX_YAML_ALIASES: usize = 1000;

pub(super) fn yaml(text: &str) -> Result<Parsed, FormatRefusal> {
    use serde_saphyr::Error;
    use serde_saphyr::budget::BudgetBreach;
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: 4 * MAX_YAML_NODES,
            max_nodes: MAX_YAML_NODES,
            max_aliases: MAX_YAML_ALIASES,
            max_anchors: MAX_YAML_ALIASES,
            max_recorded_anchor_events: MAX_YAML_NODES,
            max_recorded_anchor_bytes: 4 * 1024 * 1024,
            max_total_scalar_bytes: 4 * 1024 * 1024,
            max_merge_keys: MAX_YAML_ALIASES,
            max_documents: 2,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: MAX_YAML_NODES,
            max_replay_stack_depth: 16,
        },
        with_snippet: false,
    };
    let read = serde_saphyr::from_str_with_options::<Value>(text, options);
    if let (Ok(_), Some(line)) = (&read, line_after_document(text)) {
        return Err((Some(Place::Line { line, column: 1 }), "must be one YAML document, and another follows it"));
    }
    read.map(Parsed).map_err(|error| {
        let location = error.location().filter(|location| location.line() > 0);
        let place = location.map(|location| Place::Line {
            line: number(location.line()),
            column: number(location.column()).max(1),
        });
        let mut cause = error.without_snippet();
        while let Error::AliasError { error, .. } = cause {
            cause = error.without_snippet();
        }
        let rule = match cause {
            Error::DuplicateMappingKey { .. } => "must be YAML in which no mapping has a key twice",
            Error::MultipleDocuments { .. } | Error::Budget { breach: BudgetBreach::Documents { .. }, .. } => "must be one YAML document, and another follows it",
            Error::UnknownAnchor { .. } => "must be YAML, and an alias has no anchor",
            Error::Budget { .. }
            | Error::AliasReplayLimitExceeded { .. }
            | Error::AliasReplayStackDepthExceeded { .. }
            | Error::AliasExpansionLimitExceeded { .. } => {
                "must be YAML with at most 100,000 nodes, 1,000 aliases and a depth of 64, those that aliases repeat included"
            }
            _ => "must be YAML",
        };
        (place, rule)
    })
}

/// Returns the line of the first text after the end of a document (`...`), which the parser ignores.
pub fn line_after_document(text: &str) -> Option<usize> {
    let is_end = |line: &str| {
        line.strip_prefix("...").is_some_and(|suffix| suffix.is_empty() || suffix.starts_with([' ', '\t']))
    };
    let has_text = |line: &str| !matches!(line.trim_start().chars().next(), None | Some('#')) && !is_end(line);
    let after = text.lines().zip(1..).skip_while(|(line, _)| !is_end(line));
    after.skip_while(|(line, _)| !has_text(line)).map(|(_, number)| number).next()
}

fn number(position: impl TryInto<usize>) -> usize {
    position.try_into().unwrap_or(usize::MAX)
}

pub(super) fn toml(text: &str) -> Result<Parsed, FormatRefusal> {
    toml::from_str::<Value>(text).map(Parsed).map_err(|error| {
        let place = error.span().and_then(|span| Some(end_of(text.get(..span.start)?)));
        let rule = match error.message() {
            message if message.starts_with("duplicate key") => "must be TOML in which no table has a key twice",
            _ => "must be TOML",
        };
        (place, rule)
    })
}
