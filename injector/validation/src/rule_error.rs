//! Why rules can't be used.

use nudge_api::ConfigMapKeyRef;

/// A rule that can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// There are too many.
    #[error("there are {count} rules, and at most {most} are allowed; use fewer")]
    TooMany {
        /// The number of rules.
        count: usize,
        /// The bound.
        most: usize,
    },
    /// The rules and their schemas are too large.
    #[error("the rules and their schemas have {bytes} bytes, and at most {most} are allowed; make them smaller")]
    TooLarge {
        /// So large.
        bytes: usize,
        /// The bound.
        most: usize,
    },
    /// A rule is malformed.
    #[error("rule {name} {why}")]
    Rule {
        /// Its name.
        name: String,
        /// What is wrong.
        why: String,
    },
    /// Its schema, which a ConfigMap holds, can't be used. What is wrong is no part of the message: it may quote the ConfigMap.
    #[error(
        "rule {name}: key {} of ConfigMap {} can't be used as a schema; kubectl nudge validate says what is wrong with it",
        .reference.key,
        .reference.name
    )]
    Schema {
        /// Its name.
        name: String,
        /// Where its schema is.
        reference: ConfigMapKeyRef,
        /// What is wrong.
        why: String,
    },
    /// Its schema is not known.
    #[error("rule {name}: its schema, key {} of ConfigMap {}, is not known", .reference.key, .reference.name)]
    Unknown {
        /// Its name.
        name: String,
        /// Where its schema is.
        reference: ConfigMapKeyRef,
    },
    /// Compiling failed for a reason that is not in the rules.
    #[error("the rules could not be made ready")]
    Failed,
}

impl RuleError {
    /// With all that is wrong, for who has read the schemas.
    pub fn detailed(&self) -> String {
        match self {
            Self::Schema { name, reference: ConfigMapKeyRef { name: object, key }, why } => {
                format!("rule {name}: key {key} of ConfigMap {object} can't be used as a schema: {why}")
            }
            other => other.to_string(),
        }
    }
}
