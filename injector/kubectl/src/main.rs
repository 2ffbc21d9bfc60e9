//! The command `kubectl-nudge`, which kubectl runs as `kubectl nudge`.

use std::process::ExitCode;

fn main() -> ExitCode {
    kubectl_nudge::run()
}
