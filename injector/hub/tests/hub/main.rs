//! The hub behind real TLS: with stand-ins for the API server, and with a real one.

mod accounts;
mod bounds;
mod cluster;
mod front;
mod memory;
mod reports;
mod stand_in;
