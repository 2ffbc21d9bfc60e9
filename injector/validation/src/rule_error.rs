//! Why rules can't be used.

use nudge_api::ConfigMapKeyRef;

/// A rule that can't be used. The numbers of rules begin with 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// There are too many.
    #[error("there are {count} rules, and {most} are allowed; use fewer")]
    TooMany {
        /// So many.
        count: usize,
        /// The bound.
        most: usize,
    },
    /// They are too large.
    #[error("the rules and their schemas have {bytes} bytes, and {most} are allowed; make them smaller")]
    TooLarge {
        /// So large.
        bytes: usize,
        /// The bound.
        most: usize,
    },
    /// It is no rule.
    #[error("rule {number} {why}")]
    Rule {
        /// Which one.
        number: usize,
        /// What is wrong.
        why: String,
    },
    /// Its schema is not known.
    #[error("rule {number}: its schema, key {} of ConfigMap {}, is not known", .reference.key, .reference.name)]
    Unknown {
        /// Which one.
        number: usize,
        /// Where its schema is.
        reference: ConfigMapKeyRef,
    },
    /// It is not the fault of a rule.
    #[error("the rules could not be made ready")]
    Failed,
}
