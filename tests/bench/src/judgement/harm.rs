//! The effect of the version on a pod that takes it, or starts with it.

use super::cluster::{Cluster, Event};
use super::judge::{Judge, Millis, SECOND, Version};
use super::versions::Kind;

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
