//! Other processes: their entries in `/proc`, a signal that never hits the wrong process, and the command under `exec`.

mod exec_child;
mod port_owner;
mod proc_files;
mod process_table;
mod signal;

pub use exec_child::{Child, ChildError, EXIT_AGENT, EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND, Signals};
pub use port_owner::{ListeningSocket, PortOwner, find_port_owner, parse_listening_socket};
pub use proc_files::{
    ParseError, ProcessStatus, cgroup_names_container, parse_children, parse_start_time, parse_status,
};
pub use process_table::{LiveTable, Process, ProcessTable};
pub use signal::{SendError, SendOutcome, send, to_os_signal};
