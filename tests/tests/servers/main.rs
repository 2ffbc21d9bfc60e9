//! Servers and replicas that are killed, cut off, attacked or removed, and accounts whose every request is counted:
//! each test has a cluster of its own. And what that cluster does itself.

mod cluster;
mod first_contact;
mod removal;
mod replicas;
mod rights;
mod starving;
