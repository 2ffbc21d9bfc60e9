//! The endpoint's bounds: requests beyond them are refused, and no slow, greedy or broken client costs other clients
//! anything or delays the notification of a change.

mod common;
mod crowds;
mod foreign;
mod namespace;
mod requests;
mod slow;
mod times;
