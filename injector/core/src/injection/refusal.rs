//! The refusal of a pod that opts in. The message names the problem and the remedy.

use std::fmt;

use nudge_protocol::bounded_text::clip;

/// The maximum length of a user's value in a message.
const MAX_SHOWN_BYTES: usize = 80;

/// The reason why a pod can't be injected, with the message for the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InjectionRefusal(pub(super) String);

impl InjectionRefusal {
    pub(super) fn value(annotation: &str, value: &str, allowed: impl fmt::Display) -> Self {
        let (annotation, value) = (shorten(annotation), shorten(value));
        Self(format!("annotation {annotation}: {value:?} is not allowed: {allowed}"))
    }

    pub(super) fn both(one: &str, other: &str, message: &str) -> Self {
        Self(format!("annotations {} and {} exclude each other: {message}", shorten(one), shorten(other)))
    }

    pub(super) fn container<'a>(annotation: &str, named: &str, containers: impl IntoIterator<Item = &'a str>) -> Self {
        let containers = clip(containers.into_iter().collect::<Vec<_>>().join(", "), 10 * MAX_SHOWN_BYTES);
        Self(format!(
            "annotation {} names container {:?}, which this pod does not have; it has {containers}",
            shorten(annotation),
            shorten(named)
        ))
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
