//! What the agent reads of other processes, and how it sends them a signal without hitting the wrong one.

mod parse;
mod signal;
mod table;

pub use parse::{ParseError, ProcessStatus, cgroup_names_container, parse_children, parse_start_time, parse_status};
pub use signal::{SendError, Sent, number, send};
pub use table::{LiveTable, Process, ProcessTable};
