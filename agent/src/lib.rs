//! Nudge's agent: serves a pod's configuration as one flat dictionary over HTTPS and tells the containers when it changes.
//!
//! The parts, from the outside in: [`cli`] reads settings, [`assembly`] wires, [`pipeline`] follows a [`source`] and feeds what it finds to the
//! endpoint ([`serve`]), the [`files`] and the subscribers ([`notify`], over [`proc`]). [`content`] is the data itself and
//! knows none of them; decisions are functions over plain data, I/O is a thin shell around them.

pub mod assembly;
pub mod child;
pub mod cli;
pub mod client;
pub mod content;
pub mod files;
pub mod identity;
pub mod memory;
pub mod notify;
pub mod pipeline;
pub mod private_file;
pub mod proc;
pub mod publish;
pub mod readiness;
pub mod serve;
pub mod source;
pub mod status;
