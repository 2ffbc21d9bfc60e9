//! The versions that are rolled out: a good one, and those that harm some or all of the pods.

use std::fmt;

use rand::RngExt as _;
use rand::rngs::SmallRng;

use super::judge::{Millis, SECOND};

/// How a version harms a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Good,
    /// The application ends when it takes the version, and at each start.
    Crash,
    /// The application's readiness probe fails from then on.
    Unready,
    /// The application ends that long after it takes the version, and after each start.
    Leak(Millis),
    /// The application ends at each start.
    CrashAtStart,
    /// The agent can't take it.
    Refused,
}

/// A version, and how many percent of the pods it harms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) kind: Kind,
    pub(crate) percent: u32,
}

impl Target {
    pub(crate) const GOOD: Self = Self { kind: Kind::Good, percent: 0 };

    pub(crate) fn new(kind: Kind, percent: u32) -> Self {
        Self { kind, percent }
    }

    pub(crate) fn is_bad(self) -> bool {
        self.kind != Kind::Good
    }

    /// Returns how many of the pods it harms.
    pub(super) fn harmed(self, pods: usize) -> usize {
        if self.is_bad() { (pods * self.percent as usize).div_ceil(100) } else { 0 }
    }

    pub(super) fn harms_newborn(self, random: &mut SmallRng) -> bool {
        self.is_bad() && random.random_ratio(self.percent, 100)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.kind {
            Kind::Good => return out.write_str("good"),
            Kind::Crash => "crash".to_owned(),
            Kind::Unready => "unready".to_owned(),
            Kind::Leak(after) => format!("leak-{}s", after / SECOND),
            Kind::CrashAtStart => "crash-at-start".to_owned(),
            Kind::Refused => "refused".to_owned(),
        };
        write!(out, "{name}-{}%", self.percent)
    }
}
