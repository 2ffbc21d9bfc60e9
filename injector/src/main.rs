//! The command `nudge-injector`.

use std::process::ExitCode;

fn main() -> ExitCode {
    // Each arena keeps what storms of connections have left in it.
    nudge_server::memory::limit_arenas(2);
    nudge_injector::cli::run()
}
