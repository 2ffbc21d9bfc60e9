use clap::{Args, ValueEnum};

/// Whether a command changes anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum DryRun {
    /// Make the changes
    #[default]
    None,
    /// Print the changes without sending them
    Client,
    /// Let the API server check the changes, with admission, and store nothing
    Server,
}

impl DryRun {
    /// Returns the end of a line that reports a change.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Client => " (dry run)",
            Self::Server => " (server dry run)",
        }
    }
}

/// The flag `--dry-run`.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct Dry {
    /// Change nothing
    #[arg(long, value_enum, default_value = "none", num_args = 0..=1, require_equals = true, default_missing_value = "client", value_name = "HOW")]
    pub(crate) dry_run: DryRun,
}
