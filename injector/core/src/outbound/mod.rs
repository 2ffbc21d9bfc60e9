//! Requests to addresses that users choose: the parts of a URL that are used, the hosts that a credential is for, and
//! the addresses that are never asked.
// This module computes with numbers that others send, so nothing may overflow.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod address;
mod address_range;
mod guarded_addresses;

pub use address::{Address, AddressError};
pub use address_range::{AddressRange, RangeError};
pub use guarded_addresses::{GuardedAddresses, METADATA, refusal};
