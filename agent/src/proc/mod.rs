//! Other processes: what `/proc` says of them, a signal that never hits the wrong one, and the command under `exec`.

mod child;
mod listener;
mod parse;
mod signal;
mod table;

pub use child::{Child, ChildError, EXIT_AGENT, EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND, Signals};
pub use listener::{Holder, Listener, holder, parse_listener};
pub use parse::{ParseError, ProcessStatus, cgroup_names_container, parse_children, parse_start_time, parse_status};
pub use signal::{SendError, Sent, number, send};
pub use table::{LiveTable, Process, ProcessTable};
