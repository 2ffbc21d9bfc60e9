//! The denial of an object that breaks a rule of its kind.

use nudge_api::Explanation;

use super::verdict::Denial;

/// Denies an object for the first fault that the stored object does not have: stored faults may stay.
pub(super) fn check_faults(title: &str, stored: &[Explanation], new: &[Explanation]) -> Result<(), Denial> {
    match new.iter().find(|fault| !stored.contains(fault)) {
        Some(fault) => Err(Denial::invalid(format!("{title}: {}", fault.message))),
        None => Ok(()),
    }
}
