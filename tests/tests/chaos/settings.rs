//! The settings of a run, from the environment.

use std::env;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};

/// The duration of a run where the environment names none.
const DEFAULT_SECONDS: u64 = 90;

/// The settings of a run.
#[derive(Debug)]
pub(crate) struct Settings {
    /// The seed, from which all faults and their times follow.
    pub(crate) seed: u64,
    /// How long faults continue.
    pub(crate) duration: Duration,
    /// A folder in which the history is kept, as lines of JSON, and all logs.
    pub(crate) keep: Option<PathBuf>,
    /// Kinds of faults; if there is none, all that come up by themselves.
    pub(crate) only: Vec<String>,
}

impl Settings {
    /// Reads `NUDGE_CHAOS_SEED`, `NUDGE_CHAOS_SECONDS` (0: no run), `NUDGE_CHAOS_KEEP` and `NUDGE_CHAOS_ONLY`.
    pub(crate) fn from_env() -> Result<Self> {
        let number = |name: &str| {
            let text = env::var(name).ok().filter(|text| !text.is_empty());
            text.map(|text| text.parse::<u64>().with_context(|| format!("{name} is {text}, which is not a number")))
                .transpose()
        };
        let only = env::var("NUDGE_CHAOS_ONLY").unwrap_or_default();
        Ok(Self {
            seed: number("NUDGE_CHAOS_SEED")?.unwrap_or_else(rand::random),
            duration: Duration::from_secs(number("NUDGE_CHAOS_SECONDS")?.unwrap_or(DEFAULT_SECONDS)),
            keep: env::var_os("NUDGE_CHAOS_KEEP").map(PathBuf::from),
            only: only.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect(),
        })
    }
}
