//! Admission policies of `deploy/`, judged without an API server that knows them: requests that a current API server has got, and what it
//! said to each, are replayed to the same expressions.

mod evaluator;
mod recorder;

pub use evaluator::{Policy, Verdict};
pub use recorder::{Recorded, Recorder};
