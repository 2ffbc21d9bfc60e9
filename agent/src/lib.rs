//! Nudge's agent: serves a pod's configuration as one flat dictionary over HTTPS and notifies the containers when it
//! changes.
//!
//! - [`cli`]: a file for each command; each reads its settings, and [`assembly`] wires the parts.
//! - [`source`]: the sources of versions: a folder ([`source::dir`]) or the hub ([`source::hub`]). [`source::Store`]
//!   holds the last good content of every config.
//! - [`content`]: versions and the dictionary as plain data, independent of the other parts.
//! - [`pipeline`]: follows a source and delivers its contents: first to the endpoint, then to the files, then to the
//!   containers. It also reports to the hub.
//! - [`serve`]: the endpoint. [`publish`] hands it the dictionary; [`identity`] holds the pod's token and certificates.
//! - [`files`]: the values as files, swapped in one step if they fit, and the agent's own files.
//! - [`notify`]: notifies containers by signal or webhook. `notify/targets.rs` decides which processes get a signal.
//! - [`check`]: asks containers whether they take a version, before it is served.
//! - [`restart`]: restarts all containers of the pod in place, with variables from files.
//! - [`proc`]: other processes: their entries in `/proc`, signals to them, and the command under `exec`.
//! - [`status`]: the status of the agent's own work, for `/status` and the reports.
//! - [`tasks`]: the long tasks in one supervised set.
//!
//! Decisions are functions over plain data; I/O is a thin shell around them.

pub mod assembly;
pub mod check;
pub mod cli;
pub mod content;
pub mod files;
pub mod identity;
pub mod metrics;
pub mod notify;
pub mod pipeline;
pub mod proc;
pub mod publish;
pub mod readiness;
pub mod restart;
pub mod serve;
pub mod source;
pub mod status;
pub mod tasks;
mod unsorted_map;
