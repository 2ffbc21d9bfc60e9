//! Requests to addresses that users write down: what of a URL is used, whom a credential is for, and where nothing is sent.
// What others send is computed with: nothing overflows.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod address;
mod guarded;
mod range;

pub use address::{Address, AddressError};
pub use guarded::{Guarded, METADATA, refusal};
pub use range::{Range, RangeError};
