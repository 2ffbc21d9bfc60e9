//! The agent's identity for the pod's containers: one token and one certificate authority for the pod's life.

mod authority;
mod handout;
mod share;
mod stored_identity;
mod token;

pub use authority::{Authority, AuthorityError, serving_addresses};
pub use handout::{Handout, endpoint_url};
pub use share::Share;
pub use stored_identity::{Identity, StateError};
pub use token::{Token, TokenError};
