//! What is wrong with an object, as a refusal.

use nudge_api::Explanation;

use super::verdict::Denial;

/// Refuses an object for the first fault that the stored one does not have: what is stored already may stay.
pub(super) fn refuse_new(title: &str, stored: &[Explanation], asked: &[Explanation]) -> Result<(), Denial> {
    match asked.iter().find(|fault| !stored.contains(fault)) {
        Some(fault) => Err(Denial::invalid(format!("{title}: {}", fault.message))),
        None => Ok(()),
    }
}
