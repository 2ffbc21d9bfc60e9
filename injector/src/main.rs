//! The command `nudge-injector`.

use std::process::ExitCode;

fn main() -> ExitCode {
    // Before there is a second thread.
    nudge_hub::use_few_arenas();
    nudge_injector::cli::run()
}
