//! What is known of a config's rules and of versions that are not sealed.

use std::sync::Arc;
use std::time::Instant;

use nudge_core::versions::{Judging, RulesState, Verdicts};
use nudge_validation::Rules;

/// The rules of a config, and the verdicts by them about versions that are not sealed.
#[derive(Clone, Default)]
pub(super) struct Gate {
    /// The uid and the generation of the config.
    pub(super) of: (Option<String>, Option<i64>),
    /// The config has no rules.
    pub(super) none: bool,
    /// The rules, or why they can't be used, and since when.
    pub(super) rules: Option<Result<Arc<Rules>, (String, Instant)>>,
    pub(super) verdicts: Verdicts,
}

impl Gate {
    /// For the function that decides.
    pub(super) fn judging(&self) -> Judging<'_> {
        let rules = match &self.rules {
            _ if self.none => RulesState::None,
            None => RulesState::NotReady(None),
            Some(Err((why, _))) => RulesState::NotReady(Some(why)),
            Some(Ok(rules)) => RulesState::Ready(rules.hash()),
        };
        Judging { rules, verdicts: &self.verdicts }
    }
}
