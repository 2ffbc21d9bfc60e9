//! The memory of a config's rules, and of the verdicts by them about versions that are not sealed.

use std::sync::Arc;
use std::time::Instant;

use nudge_core::versions::{Judging, RulesState, Verdicts};
use nudge_validation::Rules;

/// The rules and verdicts of a config.
#[derive(Clone, Default)]
pub(crate) struct ValidationMemory {
    /// The uid and the generation of the config that has these rules.
    pub(crate) spec: (Option<String>, Option<i64>),
    /// Whether the config has no rules.
    pub(crate) has_none: bool,
    /// The rules, or why and since when they can't be used.
    pub(crate) rules: Option<Result<Arc<Rules>, (String, Instant)>>,
    pub(crate) verdicts: Verdicts,
}

impl ValidationMemory {
    /// Returns the inputs of the decision about versions.
    pub(crate) fn judging(&self) -> Judging<'_> {
        let rules = match &self.rules {
            _ if self.has_none => RulesState::None,
            None => RulesState::NotReady(None),
            Some(Err((cause, _))) => RulesState::NotReady(Some(cause)),
            Some(Ok(rules)) => RulesState::Ready(rules.hash()),
        };
        Judging { rules, verdicts: &self.verdicts }
    }
}
