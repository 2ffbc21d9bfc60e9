//! Asks the containers whether they take a version, before the pod switches to it.
//!
//! A container that has a check gets a question by HTTP POST. It reads the candidate at the endpoint, which has it for the time of the
//! question only, or as files beside the others. `answer` says what its answer means, `text` what is shown of its reason, and `question`
//! asks all containers until each has answered.

mod answer;
mod question;
mod text;

pub use question::{Candidate, Check, Checks, Question, Verdict};
pub use text::shown;
