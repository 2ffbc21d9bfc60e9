//! The reasons why rules can't be used.

use nudge_api::ConfigMapKeyRef;

/// A rule that can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// There are too many rules.
    #[error("there are {count} rules, and at most {most} are allowed; use fewer")]
    TooMany {
        /// The number of rules.
        count: usize,
        /// The limit.
        most: usize,
    },
    /// The rules and their schemas are too large.
    #[error("the rules and their schemas have {bytes} bytes, and at most {most} are allowed; make them smaller")]
    TooLarge {
        /// The size of all texts.
        bytes: usize,
        /// The limit.
        most: usize,
    },
    /// A rule is malformed.
    #[error("rule {name} {cause}")]
    Rule {
        /// The rule, by its name in `spec.validation`.
        name: String,
        /// The fault.
        cause: String,
    },
    /// The schema of a rule is in a ConfigMap and can't be used. The message leaves out the fault, which may quote the
    /// ConfigMap.
    #[error(
        "rule {name}: key {} of ConfigMap {} can't be used as a schema; kubectl nudge validate says what is wrong with it",
        .reference.key,
        .reference.name
    )]
    Schema {
        /// The rule, by its name in `spec.validation`.
        name: String,
        /// The place of the schema.
        reference: ConfigMapKeyRef,
        /// The fault.
        cause: String,
    },
    /// The schema of a rule was not read.
    #[error("rule {name}: its schema, key {} of ConfigMap {}, is not known", .reference.key, .reference.name)]
    Unknown {
        /// The rule, by its name in `spec.validation`.
        name: String,
        /// The place of the schema.
        reference: ConfigMapKeyRef,
    },
    /// Compiling failed for a reason that is not in the rules.
    #[error("the rules could not be made ready")]
    Failed,
}

impl RuleError {
    /// Returns the message with the fault, for a user who may read the schemas.
    pub fn detailed_message(&self) -> String {
        match self {
            Self::Schema { name, reference: ConfigMapKeyRef { name: object, key }, cause } => {
                format!("rule {name}: key {key} of ConfigMap {object} can't be used as a schema: {cause}")
            }
            other => other.to_string(),
        }
    }
}
