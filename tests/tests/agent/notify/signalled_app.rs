//! Applications that are notified by a signal, with a handler or without.

use nudge_protocol::status::{NotificationStatus, Outcome};

/// The application of these tests.
pub(super) const APP: &str = env!("CARGO_BIN_EXE_app");

pub(super) const USR1: [&str; 2] = ["--notify", "SIGUSR1"];
pub(super) const CATCHES: [&str; 3] = [APP, "--catch", "SIGUSR1"];
pub(super) const FETCHES: [&str; 4] = [APP, "--catch", "SIGUSR1", "--fetch"];

pub(super) fn was_delivered(notified: &NotificationStatus) -> bool {
    notified.outcome == Outcome::Delivered
}
