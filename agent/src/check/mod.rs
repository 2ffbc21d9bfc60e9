//! Asks the containers whether they take a version, before the pod switches to it.
//!
//! A container that has a check gets a question by HTTP POST. It reads the candidate at the endpoint, which has it for
//! the time of the question only, or as files beside the others. `answer` decides what the answer means,
//! `refusal_reason` what is shown of a reason, and `question` asks all containers until each has answered.

mod answer;
mod question;
mod refusal_reason;

pub use question::{Candidate, Check, Checks, Question, Verdict};
pub use refusal_reason::displayable_reason;
