//! Restarts of all containers of the pod, in place: for programs that read their configuration at their start alone.
//!
//! `variables` writes what the kubelet reads when it starts a container, and says which dictionary it can't express. `retry` decides when a
//! restart is commanded, and when again; the agent keeps the command in its state folder (`command_file`), and ends with an exit code by which
//! the kubelet starts all containers again, the agent first.

mod command_file;
mod retry;
mod variables;

pub use command_file::CommandFile;
pub use retry::{Command, Ids, Next, is_done, is_undone, next};
pub use variables::{Inexpressible, Variables, VariablesError};
