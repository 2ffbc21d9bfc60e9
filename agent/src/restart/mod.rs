//! Restarts of all containers of the pod, in place: for programs that read their configuration at their start alone.
//!
//! `variables` writes the files that the kubelet reads when it starts a container, and checks whether they can express
//! a dictionary. `command_decision` decides when to command a restart, and when to repeat the command. The agent keeps
//! the command in its state folder, and ends with an exit code that makes the kubelet start all containers again, the
//! agent first.

mod command_decision;
mod variables;

pub use command_decision::{CommandDecision, Ids, RestartCommand, decide_command, is_done, is_undone};
pub use variables::{Inexpressible, Variables, VariablesError};
