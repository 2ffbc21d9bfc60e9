//! Requests to addresses that users choose: the parsed parts of a URL, the hosts allowed to get a credential, and the
//! forbidden addresses.
// This module computes with numbers from outside, so nothing may overflow.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod address;
mod address_range;
mod guarded_addresses;

pub use address::{Address, AddressError};
pub use address_range::{AddressRange, RangeError};
pub use guarded_addresses::{GuardedAddresses, METADATA, refusal};
