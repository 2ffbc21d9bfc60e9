//! The cause that a condition has if a call of the API server failed.

use nudge_api::PartKind;
use nudge_cluster::call::CallError;
use nudge_protocol::bounded_text::one_line;

/// The maximum size of the part of the API server's answer that a message has.
const MAX_ANSWER_BYTES: usize = 320;

/// The cause of a call's failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FailureCause {
    /// Whether the API server refuses the call, so that the next attempt would get the same answer.
    pub(super) refused: bool,
    /// The HTTP status of the answer; `None` if no answer came.
    pub(super) code: Option<u16>,
    /// The text that follows "because" in a message.
    pub(super) text: String,
}

impl FailureCause {
    /// Returns the cause of an error, with the answer of the API server.
    pub(super) fn of(error: &CallError) -> Self {
        Self::new(error, true)
    }

    /// Returns the cause of an error about an object of this kind, without an answer that can quote a value of a
    /// Secret.
    pub(super) fn of_object(kind: PartKind, error: &CallError) -> Self {
        Self::new(error, kind.is_quotable())
    }

    /// Returns the cause. It never repeats an error of the parser, since such errors quote values.
    fn new(error: &CallError, quotes: bool) -> Self {
        let (refused, code) = (error.refusal().is_some(), error.code());
        let source = match error {
            CallError::Timeout { .. } => {
                return Self { refused, code, text: "the API server does not answer".to_owned() };
            }
            CallError::TooMany { max_objects, .. } => {
                return Self { refused, code, text: format!("there are more than {max_objects} objects") };
            }
            CallError::Api { source, .. } => source,
        };
        let text = match &**source {
            kube::Error::Api(status) => {
                let verb = if refused { "refuses it" } else { "answers" };
                let text =
                    if quotes { format!(": {}", one_line(&status.message, MAX_ANSWER_BYTES)) } else { String::new() };
                format!("the API server {verb} with code {}{text}", status.code)
            }
            kube::Error::SerdeError(_) => "the answer of the API server is damaged".to_owned(),
            _ => "the API server can't be reached, or broke off its answer".to_owned(),
        };
        Self { refused, code, text }
    }
}
