//! The callers of the hub: the pod behind each token, the number of polls held for it, and the audit trail of its
//! requests.

mod audit;
#[cfg(test)]
mod audit_tests;
mod authentication;
#[cfg(test)]
mod authentication_tests;
mod claims;
mod gone_uids;
mod poll_slots;
mod reviewer;
mod session;
mod token_hash;
mod token_reviews;

pub(crate) use self::authentication::Authentication;
pub(crate) use self::claims::Claims;
pub(crate) use self::poll_slots::PollSlots;
pub use self::reviewer::{Caller, ReviewError, Reviewer};
pub(crate) use self::session::{ConnectionOrigin, Session};
