//! The faults of a `VersionApproval` beyond its schema.

use nudge_api::{Explanation, VersionApprovalSpec};
use nudge_protocol::VersionName;

use crate::faults::invalid;

/// Returns all faults of a user's decision.
pub fn approval_faults(spec: &VersionApprovalSpec) -> Vec<Explanation> {
    VersionName::new(&spec.version).err().map(|error| invalid("spec.version", error)).into_iter().collect()
}
