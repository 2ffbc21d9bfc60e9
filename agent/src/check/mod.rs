//! Asks the containers whether they take a version, before the pod switches to it.
//!
//! A container with a check gets a question by HTTP POST. The container reads the candidate as files in a folder of
//! their own, or at the endpoint, which has the candidate during the question only. `answer` decides whether the answer
//! accepts the candidate, `refusal_reason` how a reason is shown, and `question` asks all containers until each has
//! answered.

mod answer;
mod question;
mod refusal_reason;

pub use question::{Candidate, Check, CheckVerdict, Checks, Question};
pub use refusal_reason::displayable_reason;
