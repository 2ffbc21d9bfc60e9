//! What is wrong with a `VersionApproval` beyond its schema.

use nudge_api::{Explanation, VersionApprovalSpec};
use nudge_protocol::VersionName;

use crate::faults::invalid;

/// All that is wrong with what a user has decided.
pub fn approval_faults(spec: &VersionApprovalSpec) -> Vec<Explanation> {
    VersionName::new(&spec.version).err().map(|error| invalid("spec.version", error)).into_iter().collect()
}
