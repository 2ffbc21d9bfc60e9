//! The weather as events of the cluster.

use rand::RngExt as _;

use super::cluster::{Cluster, Event};
use super::judge::{DAY, Judge, Millis, SECOND};
use super::weather::{Rolling, Weather};

impl<J: Judge> Cluster<'_, J> {
    /// Plans what will happen.
    pub(super) fn forecast(&mut self) {
        let usual = self.cell.usual();
        match self.cell.weather {
            Weather::Calm | Weather::Jobs => {}
            Weather::Leaders => {
                for _ in 0..3 {
                    let at = self.between(0, usual);
                    self.after(at, Event::Leader);
                }
            }
            // So that some of them are born on the target.
            Weather::Births => {
                let at = self.between(usual / 3, usual * 4 / 5);
                self.after(at, Event::Strike);
            }
            _ => {
                let at = self.between(0, usual);
                self.after(at, Event::Strike);
            }
        }
    }

    /// Lets the weather strike.
    pub(super) fn strike(&mut self) {
        self.outcome.unassigned = Some(self.unassigned());
        let pods = self.view.pods.len();
        let node = self.random.random_range(0..self.view.nodes.len());
        match self.cell.weather {
            Weather::Calm | Weather::Jobs | Weather::Leaders => {}
            Weather::Drain => {
                for pod in self.pods_of(node) {
                    let delay = self.between(0, 20 * SECOND);
                    self.after(delay, Event::Terminate(pod));
                }
            }
            Weather::Reboot => self.reboot(node),
            Weather::KubeletRestart => self.restart_kubelet(node),
            Weather::NodeAway => self.lose_node(node),
            Weather::Spot => {
                for pod in self.pods_of(node) {
                    self.end_at_once(pod);
                }
            }
            Weather::Scaling => self.scale(if pods <= 3 { 57 } else { (pods / 2).max(2) }, 3),
            Weather::Births => self.scale((pods / 2).max(8), usize::MAX),
            Weather::Image => self.roll_image(),
            Weather::Sidecar => {
                for pod in 0..pods {
                    if self.random.random_bool(0.1) || pods == 1 {
                        let delay = self.between(0, 60 * SECOND);
                        let back = delay + self.between(SECOND, 3 * SECOND);
                        self.after(delay, Event::Sidecar(pod, false));
                        self.after(back, Event::Sidecar(pod, true));
                    }
                }
            }
            Weather::Outage(percent) => self.outage(percent, false),
            Weather::CrashingOutage(percent) => self.outage(percent, true),
            Weather::Hold => {
                self.view.held = true;
                self.look_soon();
                self.after(DAY, Event::Then(0));
            }
        }
    }

    /// The next part of what struck.
    pub(super) fn then(&mut self, node: usize) {
        match self.cell.weather {
            Weather::Hold => {
                self.view.held = false;
                self.look_soon();
            }
            Weather::Reboot => self.booted(node),
            Weather::NodeAway => self.node_back(node),
            _ => {}
        }
    }

    fn then_in(&mut self, delay: Millis, node: usize) {
        self.after(delay, Event::Then(u32::try_from(node).unwrap_or(u32::MAX)));
    }

    /// A pod of the background's choice has trouble for a while, or crashes.
    pub(super) fn background(&mut self) {
        self.next_background();
        let pod = self.random.random_range(0..self.view.pods.len());
        let (seen, real) = (&self.view.pods[pod], &self.real[pod]);
        if seen.gone || seen.terminating || !real.up {
            return;
        }
        if self.random.random_bool(0.5) || self.cell.probes.period == 0 {
            let start = real.start;
            self.crash(pod, start);
        } else {
            // Long enough to be seen.
            let least = self.cell.probes.failures_ms() + self.cell.probes.period_ms();
            let lasts = self.between(least, least * 4);
            self.trouble(pod, true);
            self.after(lasts, Event::Trouble(pod, false));
        }
    }

    fn reboot(&mut self, node: usize) {
        for pod in self.pods_of(node) {
            self.real[pod].dark = true;
        }
        let down = self.between(12 * SECOND, 38 * SECOND);
        self.then_in(down, node);
    }

    /// The kubelet is back: it finds that all containers have ended, and starts them, agents included.
    fn booted(&mut self, node: usize) {
        for pod in self.pods_of(node) {
            let real = &mut self.real[pod];
            (real.dark, real.up, real.serves) = (false, false, false);
            real.start += 1;
            let start = real.start;
            let seen = self.between(100, 3 * SECOND);
            self.after(seen, Event::CrashSeen(pod, start));
            let agent = seen + self.between(500, 2 * SECOND);
            self.after(agent, Event::AgentBack(pod));
            let begins = agent + self.between(200, 2 * SECOND);
            self.after(begins, Event::Start(pod, start));
            self.view.pods[pod].agent_ready = false;
        }
        // The status of the node is written on its own.
        let seen = self.between(200, 5 * SECOND);
        self.after(seen, Event::Booted(node));
    }

    fn restart_kubelet(&mut self, node: usize) {
        // In some cases the node is not Ready for a moment.
        if self.random.random_bool(0.5) {
            let ready = self.between(2 * SECOND, 10 * SECOND);
            self.after(0, Event::Node(node, false));
            self.after(ready, Event::Node(node, true));
        }
        self.kubelet_restarts(node);
    }

    /// Nothing is heard of the node: after 40 s it and its pods are shown as not Ready.
    fn lose_node(&mut self, node: usize) {
        for pod in self.pods_of(node) {
            self.real[pod].dark = true;
        }
        self.after(40 * SECOND, Event::Node(node, false));
        let away = self.between(60 * SECOND, 240 * SECOND);
        self.then_in(away, node);
    }

    fn node_back(&mut self, node: usize) {
        for pod in self.pods_of(node) {
            self.real[pod].dark = false;
        }
        self.node_shown(node, true);
        for pod in self.pods_of(node) {
            self.take(pod);
            // What it took at the last moment has not been seen.
            if self.view.pods[pod].runs.is_some() {
                self.after(300, Event::Taken(pod));
            }
            self.answers_changed(pod);
        }
    }

    pub(super) fn node_shown(&mut self, node: usize, ready: bool) {
        self.view.nodes[node].ready = ready;
        self.view.nodes_changed = true;
        for pod in self.pods_of(node) {
            self.show_ready(pod);
        }
        self.look_soon();
    }

    pub(super) fn node_booted(&mut self, node: usize) {
        self.view.nodes[node].boot += 1;
        self.view.nodes_changed = true;
        self.look_soon();
    }

    /// The pod ends with its node, and is replaced.
    fn end_at_once(&mut self, pod: usize) {
        let delay = self.between(0, 5 * SECOND);
        self.real[pod].dark = true;
        self.after(delay, Event::Terminate(pod));
    }

    /// Adds pods; one in `unschedulable` has no room anywhere.
    fn scale(&mut self, more: usize, unschedulable: usize) {
        for number in 0..more {
            let workload = number % self.cell.workloads;
            self.bear(workload, number % unschedulable != unschedulable - 1);
        }
    }

    /// Workloads with at most a quarter of their pods more and a quarter less for the time.
    fn roll_image(&mut self) {
        let workload = self.random.random_range(0..self.cell.workloads);
        let pods = &self.view.pods;
        let exists = |&pod: &usize| pods[pod].workload == workload && !pods[pod].gone && !pods[pod].terminating;
        let mut old: Vec<usize> = (0..pods.len()).filter(exists).collect();
        let (count, down, up) = (old.len(), old.len() / 4, old.len().div_ceil(4));
        let first: Vec<usize> = old.drain(..down).collect();
        self.rolling = Some(Rolling { workload, to_bear: count, old });
        for pod in first {
            self.terminate(pod, false, false);
        }
        for _ in 0..(up + down).min(count) {
            self.bear_next(workload);
        }
    }

    fn bear_next(&mut self, workload: usize) {
        if let Some(rolling) = self.rolling.as_mut().filter(|rolling| rolling.to_bear > 0) {
            rolling.to_bear -= 1;
            self.bear(workload, true);
        }
    }

    /// A pod is Ready for the first time: one of the template before may end, and another is made.
    pub(super) fn roll_on(&mut self, pod: usize) {
        let Some(rolling) = self.rolling.as_mut() else { return };
        let workload = rolling.workload;
        if self.view.pods[pod].workload != workload || self.view.pods[pod].template == 0 {
            return;
        }
        if let Some(old) = rolling.old.pop() {
            self.terminate(old, false, false);
        }
        self.bear_next(workload);
    }

    fn outage(&mut self, percent: u32, crashing: bool) {
        let lasts = self.between(60 * SECOND, 180 * SECOND);
        for pod in 0..self.view.pods.len() {
            let pod_view = &self.view.pods[pod];
            if pod_view.gone || pod_view.terminating || !self.random.random_ratio(percent, 100) {
                continue;
            }
            let begins = self.between(0, 5 * SECOND);
            if crashing {
                let mut at = begins;
                let end = begins + lasts;
                // The container of a moment is not known yet: whatever runs then ends.
                while at < end {
                    self.after(at, Event::Crash(pod, u32::MAX));
                    at += 15 * SECOND;
                }
            } else {
                let ends = lasts + self.between(0, 2 * SECOND);
                self.after(begins, Event::Trouble(pod, true));
                self.after(ends, Event::Trouble(pod, false));
            }
        }
    }
}
