//! Why a call of the API server failed: the cause that a condition has.

use nudge_cluster::call::CallError;
use nudge_protocol::bounded_text::one_line;

/// Maximum of bytes that a message has of the API server's answer.
const ANSWER_BYTES: usize = 320;

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FailureCause {
    /// Whether the API server refuses it: the next attempt would get the same answer.
    pub(super) refused: bool,
    /// The HTTP status of the answer, or 0 where there was none.
    pub(super) code: u16,
    /// What follows "because" in a message.
    pub(super) text: String,
}

impl FailureCause {
    /// Reads the error. The answer of the API server is repeated only where it can quote no value of a Secret. An error of the parser quotes
    /// values, too, and is never repeated.
    pub(super) fn of(error: &CallError, quotes: bool) -> Self {
        let (refused, code) = (error.refusal().is_some(), error.code());
        let source = match error {
            CallError::Timeout { .. } => {
                return Self { refused, code, text: "the API server does not answer".to_owned() };
            }
            CallError::Api { source, .. } => source,
        };
        let text = match &**source {
            kube::Error::Api(status) => {
                let does = if refused { "refuses it" } else { "answers" };
                let answer =
                    if quotes { format!(": {}", one_line(&status.message, ANSWER_BYTES)) } else { String::new() };
                format!("the API server {does} with code {code}{answer}")
            }
            kube::Error::SerdeError(_) => "the answer of the API server is damaged".to_owned(),
            _ => "the API server can't be reached, or broke off its answer".to_owned(),
        };
        Self { refused, code, text }
    }
}
