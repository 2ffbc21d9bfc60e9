//! The state of a config in one word, which commands, metrics and the page show.

use crate::variant_names::impl_as_str;
use crate::{ConditionType, Reason, RolloutStage, VersionedConfigStatus, find_condition};

/// The state of a config, in one word for commands, metrics and the page. The object has conditions instead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ConfigState {
    /// Nothing moves, and what is requested is not current; the condition Ready says why.
    #[default]
    Waiting,
    /// All is as the spec says.
    Current,
    /// Pods are being moved to the target.
    Progressing,
    /// Pods are being moved back.
    RollingBack,
    /// The target failed and everything is back on the version before.
    Failed,
}

impl_as_str!(ConfigState: Waiting Current Progressing RollingBack Failed);

impl VersionedConfigStatus {
    /// Returns where the config stands, in one word.
    pub fn state(&self) -> ConfigState {
        let ready = find_condition(&self.conditions, ConditionType::Ready);
        match (self.rollout.stage, ready) {
            (Some(RolloutStage::RollingBack | RolloutStage::Returning), _) => ConfigState::RollingBack,
            (Some(_), _) => ConfigState::Progressing,
            (None, Some(ready)) if ready.status == "True" => ConfigState::Current,
            (None, Some(ready)) if ready.reason == Reason::Failed.as_str() && self.rollout.failure.is_some() => {
                ConfigState::Failed
            }
            (None, _) => ConfigState::Waiting,
        }
    }
}
