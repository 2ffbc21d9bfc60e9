//! The selector of the pods that a step of a rollout is about.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Pods with all of these labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepSelector {
    /// The labels.
    #[schemars(extend("minProperties" = 1, "maxProperties" = 8, "additionalProperties" = {"type": "string", "maxLength": 63, "pattern": "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$"}))]
    pub match_labels: BTreeMap<String, String>,
}

impl StepSelector {
    /// The maximum number of different selectors in the steps of a config.
    pub const MAX_SELECTORS: usize = 8;
}
