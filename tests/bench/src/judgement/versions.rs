//! The versions that are rolled out: a good one, and those that harm some or all of the pods.

use std::fmt;

use rand::RngExt as _;
use rand::rngs::SmallRng;

use super::cluster::{Cluster, Event, SECOND};
use super::judge::{Judge, Millis, Version};

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

    /// How many of the pods it harms.
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

impl<J: Judge> Cluster<'_, J> {
    fn is_harmed(&self, pod: usize) -> bool {
        self.real[pod].prone && self.real[pod].runs == Version::Target
    }

    /// What the version that it has just taken does to the running application.
    pub(super) fn harm_on_notification(&mut self, pod: usize) {
        if !self.is_harmed(pod) {
            let was_unready = std::mem::take(&mut self.real[pod].unready);
            if was_unready {
                self.answers_changed(pod);
            }
            return;
        }
        match self.cell.version.kind {
            Kind::Good | Kind::Refused | Kind::CrashAtStart => {}
            Kind::Crash => {
                let delay = self.between(100, 2 * SECOND);
                self.crash_in(pod, delay);
            }
            Kind::Unready => {
                self.real[pod].unready = true;
                self.answers_changed(pod);
            }
            Kind::Leak(after) => self.leak(pod, after),
        }
    }

    /// What the version that it starts with does to it.
    pub(super) fn harm_at_start(&mut self, pod: usize) {
        if !self.is_harmed(pod) {
            return;
        }
        match self.cell.version.kind {
            Kind::Good | Kind::Refused => {}
            Kind::Crash | Kind::CrashAtStart => {
                let delay = self.between(200, 1500);
                self.crash_in(pod, delay);
            }
            Kind::Unready => self.real[pod].unready = true,
            Kind::Leak(after) => self.leak(pod, after),
        }
    }

    fn leak(&mut self, pod: usize, after: Millis) {
        let delay = self.between(after * 4 / 5, after * 6 / 5);
        self.crash_in(pod, delay);
    }

    fn crash_in(&mut self, pod: usize, delay: Millis) {
        let start = self.real[pod].start;
        self.after(delay, Event::Crash(pod, start));
    }
}
