//! The endpoint's bounds: what is out of them is refused, and no client, however slow, greedy or broken, is paid for by
//! the others or delays the notification of a change.

mod common;
mod crowds;
mod foreign;
mod namespace;
mod requests;
mod slow;
mod times;
