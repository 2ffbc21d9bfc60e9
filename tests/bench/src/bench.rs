//! The shared parts of the measures of `bench local`.

use std::path::PathBuf;
use std::time::Duration;

use crate::report::Report;

/// How much of everything.
pub(crate) struct Scale {
    pub(crate) switches: usize,
    pub(crate) rounds: usize,
    pub(crate) round: Duration,
    pub(crate) requests: u64,
    pub(crate) starts: usize,
    pub(crate) idle: Duration,
}

pub(crate) const FULL: Scale = Scale {
    switches: 500,
    rounds: 5,
    round: Duration::from_secs(2),
    requests: 100_000,
    starts: 20,
    idle: Duration::from_secs(10),
};

pub(crate) const QUICK: Scale = Scale {
    switches: 50,
    rounds: 1,
    round: Duration::from_secs(1),
    requests: 5_000,
    starts: 3,
    idle: Duration::from_secs(3),
};

/// A run: its measures, their size, and the results so far.
pub(crate) struct Bench {
    pub(crate) binary: PathBuf,
    pub(crate) scale: Scale,
    pub(crate) report: Report,
}
