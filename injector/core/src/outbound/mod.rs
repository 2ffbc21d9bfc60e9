//! Requests to addresses that users write down: what of a URL is used, whom a credential is for, and where nothing is sent.

mod address;
mod guarded;

pub use address::{Address, AddressError};
pub use guarded::{Guarded, refusal};
