//! The agent in pod mode against a hub that the test controls.

mod asking;
mod changes;
mod checks;
mod contact;
mod containers;
mod files;
mod in_place;
mod keys;
mod port;
mod ready;
mod refused;
mod reports;
mod restart;
mod verified;

/// The application of these tests.
const APP: &str = env!("CARGO_BIN_EXE_app");
/// What it is given to catch the signal.
const CATCHES: [&str; 2] = ["--catch", "SIGUSR1"];
/// What the agent is given to send it.
const USR1: [&str; 2] = ["--notify", "app=SIGUSR1"];
/// Two configs in this order.
const TWO: &str = "shop,keys";
