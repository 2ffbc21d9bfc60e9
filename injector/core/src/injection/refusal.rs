//! The refusal of a pod that opts in. The message names the problem and the remedy.

use std::fmt;

use nudge_protocol::bounded_text::clip;

/// The maximum length of a user's value in a message.
const MAX_SHOWN_BYTES: usize = 80;

/// The reason why a pod can't be injected, with the message for the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InjectionRefusal {
    /// An annotation has a value that is not allowed.
    #[error("annotation {annotation}: {value:?} is not allowed: {allowed}")]
    Value {
        /// The annotation, with its prefix and its container.
        annotation: String,
        /// The value of the annotation, shortened.
        value: String,
        /// The rule for allowed values.
        allowed: String,
    },
    /// An annotation names a container that the pod does not have.
    #[error("annotation {annotation} names container {named:?}, which this pod does not have; it has {has}")]
    Container {
        /// The annotation, with its prefix and its container.
        annotation: String,
        /// The name in the annotation, shortened.
        named: String,
        /// The pod's containers.
        has: String,
    },
    /// Two annotations exclude each other.
    #[error("annotations {one} and {other} exclude each other: {message}")]
    Both {
        /// The name of the first annotation, with its value if it matters.
        one: String,
        /// The name of the second annotation, with its value if it matters.
        other: String,
        /// The user's choice.
        message: String,
    },
    /// The pod itself can't be injected.
    #[error("{0}")]
    Pod(String),
}

impl InjectionRefusal {
    pub(super) fn value(annotation: &str, value: &str, allowed: impl fmt::Display) -> Self {
        Self::Value { annotation: shorten(annotation), value: shorten(value), allowed: allowed.to_string() }
    }

    pub(super) fn both(one: &str, other: &str, message: &str) -> Self {
        Self::Both { one: shorten(one), other: shorten(other), message: message.to_owned() }
    }

    pub(super) fn container<'a>(annotation: &str, named: &str, containers: impl IntoIterator<Item = &'a str>) -> Self {
        let containers = clip(containers.into_iter().collect::<Vec<_>>().join(", "), 10 * MAX_SHOWN_BYTES);
        Self::Container { annotation: shorten(annotation), named: shorten(named), has: containers }
    }
}

/// Shortens a user's text for a message.
pub(super) fn shorten(value: &str) -> String {
    let mut cut = clip(value.to_owned(), MAX_SHOWN_BYTES);
    if cut.len() < value.len() {
        cut.push('…');
    }
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_short_however_long_the_value() {
        let refusal = InjectionRefusal::value("nudge.dev/agent-port", &"9".repeat(100_000), "a port").to_string();
        assert!(
            refusal.len() < 200 && refusal.contains("nudge.dev/agent-port") && refusal.ends_with("a port"),
            "{refusal}"
        );
        let names = vec!["container"; 10_000];
        assert!(InjectionRefusal::container("nudge.dev/notify.x", "x", names).to_string().len() < 1200);
    }
}
