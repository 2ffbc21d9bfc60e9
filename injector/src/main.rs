//! The command `nudge-injector`.

use std::process::ExitCode;

fn main() -> ExitCode {
    // Each arena keeps memory after a storm of connections.
    nudge_server::memory::limit_arenas(2);
    nudge_injector::cli::run()
}
