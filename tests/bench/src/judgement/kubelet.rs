//! The acts of a kubelet on a pod: probes, restarts with growing pauses, starts and ends.

use rand::RngExt as _;

use super::cluster::{Cluster, Event};
use super::judge::{Judge, Millis, SECOND, Version};
use super::versions::Kind;

/// The pauses between restarts double from the first to the longest, and begin again after a container ran for a while.
const MIN_RESTART_DELAY_MILLIS: Millis = 10 * SECOND;
const MAX_RESTART_DELAY_MILLIS: Millis = 300 * SECOND;
const RESTART_DELAY_RESET_MILLIS: Millis = 600 * SECOND;

impl<J: Judge> Cluster<'_, J> {
    /// What became of the pod's application may be found by its probes, after a while.
    pub(super) fn answers_changed(&mut self, pod: usize) {
        let probes = self.cell.probes;
        let real = &mut self.real[pod];
        let answers = if probes.period == 0 { real.up } else { real.answers() };
        if real.dark || real.pending == Some(answers) {
            return;
        }
        real.finding += 1;
        real.pending = None;
        if real.probed == answers {
            return;
        }
        real.pending = Some(answers);
        let (finding, phase) = (real.finding, real.phase);
        let period = probes.period_ms();
        let wait = if probes.period == 0 { 0 } else { (phase + period - self.now % period) % period };
        let more = if answers { 0 } else { probes.failures_ms() };
        let delay = wait + more + self.latency();
        self.after(delay, Event::Probed(pod, finding, answers));
    }

    /// Returns the time from a change that a kubelet knows to the change in the API server.
    pub(super) fn latency(&mut self) -> Millis {
        self.between(50, 600)
    }

    pub(super) fn record_probe(&mut self, pod: usize, finding: u32, answers: bool) {
        let real = &mut self.real[pod];
        if real.finding != finding || real.dark {
            return;
        }
        (real.probed, real.pending) = (answers, None);
        self.show_ready(pod);
    }

    /// Shows whether all containers of the pod are ready.
    pub(super) fn show_ready(&mut self, pod: usize) {
        let (real, now) = (&self.real[pod], self.seconds());
        let (app, seen) = (real.probed, &self.view.pods[pod]);
        let node_ready = seen.node.is_none_or(|node| self.view.nodes[node].ready);
        let ready = app && real.complete && seen.agent_ready && node_ready;
        let (was, first) = (seen.ready, ready && !seen.was_ready);
        if was != ready || seen.app_ready != app {
            self.show(pod, |seen| {
                (seen.app_ready, seen.ready, seen.was_ready) = (app, ready, seen.was_ready || ready);
                if was != ready {
                    seen.unready_since = (!ready).then_some(now);
                }
            });
        }
        if first {
            self.roll_on(pod);
        }
    }

    /// The pod's container ends by itself.
    pub(super) fn crash(&mut self, pod: usize, start: u32) {
        let now = self.now;
        let real = &mut self.real[pod];
        if real.start != start || !real.up || real.dark || self.view.pods[pod].gone {
            return;
        }
        (real.up, real.serves) = (false, false);
        real.start += 1;
        if now - real.started_at > RESTART_DELAY_RESET_MILLIS {
            real.pause = 0;
        }
        let pause = real.pause;
        real.pause = (real.pause * 2).clamp(MIN_RESTART_DELAY_MILLIS, MAX_RESTART_DELAY_MILLIS);
        let start = real.start;
        let seen = self.between(100, 1000);
        self.after(seen, Event::CrashSeen(pod, start));
        let begins = seen + pause + self.between(200, 800);
        self.after(begins, Event::Start(pod, start));
    }

    /// Returns whether the same container, or the same pause, still is what it was.
    fn is_same(&self, pod: usize, start: u32) -> bool {
        self.real[pod].start == start && !self.real[pod].dark && !self.view.pods[pod].gone
    }

    pub(super) fn crash_seen(&mut self, pod: usize, start: u32) {
        if self.is_same(pod, start) {
            let real = &mut self.real[pod];
            real.finding += 1;
            (real.probed, real.pending) = (false, None);
            self.show_ready(pod);
        }
    }

    /// The container is started; not for the first time.
    pub(super) fn started(&mut self, pod: usize, start: u32) {
        if self.is_same(pod, start) {
            let ended = self.seconds();
            self.show(pod, |seen| (seen.restarts, seen.last_restart) = (seen.restarts + 1, Some(ended)));
            self.begin_container(pod);
        }
    }

    /// The container begins with what is assigned to the pod.
    pub(super) fn begin_container(&mut self, pod: usize) {
        let now = self.now;
        let real = &mut self.real[pod];
        (real.up, real.started_at, real.unready) = (true, now, false);
        real.start += 1;
        let start = real.start;
        real.runs = real.assigned;
        let pod_view = &self.view.pods[pod];
        if pod_view.runs != Some(real.runs) || !pod_view.acknowledged {
            self.after(300, Event::Taken(pod));
        }
        let answers = self.between(SECOND, 3 * SECOND);
        self.after(answers, Event::Serve(pod, start));
        self.harm_at_start(pod);
        self.answers_changed(pod);
    }

    /// A reboot ended the agent, too: it is started before the others.
    pub(super) fn agent_back(&mut self, pod: usize) {
        if !self.view.pods[pod].gone && !self.real[pod].dark {
            self.show(pod, |seen| (seen.agent_ready, seen.agent_restarts) = (true, seen.agent_restarts + 1));
            self.show_ready(pod);
        }
    }

    pub(super) fn serve(&mut self, pod: usize, start: u32) {
        if self.is_same(pod, start) {
            self.real[pod].serves = true;
            self.answers_changed(pod);
        }
    }

    /// The agent takes what is assigned to its pod, and notifies the application.
    pub(super) fn take(&mut self, pod: usize) {
        let pod_view = &self.view.pods[pod];
        let real = &self.real[pod];
        // A pod that starts takes it then.
        if pod_view.gone || real.dark || !pod_view.running || real.runs == real.assigned && !pod_view.refused {
            return;
        }
        if real.prone && real.assigned == Version::Target && self.cell.version.kind == Kind::Refused {
            self.show(pod, |pod_view| (pod_view.refused, pod_view.acknowledged) = (true, false));
            return;
        }
        let real = &mut self.real[pod];
        real.runs = real.assigned;
        // A container that waits for its restart is not notified.
        if real.up {
            self.harm_on_notification(pod);
        }
        let delay = self.latency();
        self.after(delay, Event::Taken(pod));
    }

    pub(super) fn taken(&mut self, pod: usize) {
        let runs = Some(self.real[pod].runs);
        let acknowledged = self.real[pod].up;
        if !self.view.pods[pod].gone && !self.real[pod].dark {
            self.show(pod, |seen| (seen.runs, seen.acknowledged, seen.refused) = (runs, acknowledged, false));
        }
    }

    /// Trouble of the environment begins or ends.
    pub(super) fn trouble(&mut self, pod: usize, begins: bool) {
        let real = &mut self.real[pod];
        real.troubles = if begins { real.troubles + 1 } else { real.troubles.saturating_sub(1) };
        self.answers_changed(pod);
    }

    /// A container of another injector ends, or is back.
    pub(super) fn sidecar(&mut self, pod: usize, back: bool) {
        if self.view.pods[pod].gone || self.real[pod].dark {
            return;
        }
        self.real[pod].complete = back;
        if back {
            let ended = self.seconds();
            self.show(pod, |seen| {
                (seen.sidecar_restarts, seen.last_sidecar_restart) = (seen.sidecar_restarts + 1, Some(ended));
            });
        }
        self.show_ready(pod);
    }

    /// A new pod has a node: its image is there in most cases.
    pub(super) fn scheduled(&mut self, pod: usize) {
        if self.view.pods[pod].gone || self.view.pods[pod].terminating {
            return;
        }
        let nodes: Vec<usize> = (0..self.view.nodes.len()).filter(|&node| self.view.nodes[node].ready).collect();
        let Some(last) = nodes.len().checked_sub(1) else { return };
        let node = nodes[self.random.random_range(0..=last)];
        self.show(pod, |seen| seen.node = Some(node));
        let pull = if self.random.random_bool(0.2) { self.between(5 * SECOND, 20 * SECOND) } else { 0 };
        let delay = pull + self.between(SECOND, 3 * SECOND);
        self.after(delay, Event::Born(pod));
    }

    /// Starts the containers of a pod for the first time.
    pub(super) fn born(&mut self, pod: usize) {
        if !self.view.pods[pod].gone && !self.view.pods[pod].terminating && !self.real[pod].dark {
            self.show(pod, |seen| (seen.running, seen.agent_ready) = (true, true));
            self.begin_container(pod);
        }
    }

    /// The pod is deleted, and replaced if that is its workload's way.
    pub(super) fn terminate(&mut self, pod: usize, disrupted: bool, replaced: bool) {
        let pod_view = &self.view.pods[pod];
        if pod_view.gone || pod_view.terminating {
            return;
        }
        let workload = pod_view.workload;
        self.show(pod, |pod_view| (pod_view.terminating, pod_view.disrupted) = (true, disrupted));
        let gone = self.between(SECOND, 30 * SECOND);
        self.after(gone, Event::Gone(pod));
        if replaced {
            self.bear(workload, true);
        }
    }

    pub(super) fn gone(&mut self, pod: usize) {
        let real = &mut self.real[pod];
        (real.up, real.dark) = (false, true);
        self.show(pod, |seen| (seen.gone, seen.ready) = (true, false));
    }

    /// A pod of a Job is done, and the next one is made. In some the container fails before, and is tried again.
    pub(super) fn done(&mut self, pod: usize) {
        if self.view.pods[pod].gone || self.view.pods[pod].ending {
            return;
        }
        let start = self.real[pod].start;
        if self.real[pod].up && self.random.random_bool(0.2) {
            self.crash(pod, start);
            let later = self.between(20 * SECOND, 60 * SECOND);
            self.after(later, Event::Done(pod));
            return;
        }
        self.show(pod, |seen| (seen.ending, seen.ready) = (true, false));
        let finished = self.between(500, 2 * SECOND);
        self.after(finished, Event::Gone(pod));
        let workload = self.view.pods[pod].workload;
        let next = self.bear(workload, true);
        let lasts = self.between(20 * SECOND, 180 * SECOND);
        self.after(lasts, Event::Done(next));
    }

    /// The kubelet of a node starts again: it knows nothing of what probes had found.
    pub(super) fn kubelet_restarts(&mut self, node: usize) {
        for pod in self.pods_of(node) {
            if self.cell.probes.period > 0 && self.real[pod].probed {
                let real = &mut self.real[pod];
                real.finding += 1;
                (real.probed, real.pending) = (false, None);
                real.phase = self.random.random_range(0..self.cell.probes.period_ms());
                self.show_ready(pod);
                self.answers_changed(pod);
            }
        }
    }

    pub(super) fn pods_of(&self, node: usize) -> Vec<usize> {
        let exists = |&pod: &usize| self.view.pods[pod].node == Some(node) && !self.view.pods[pod].gone;
        (0..self.view.pods.len()).filter(exists).collect()
    }
}
