//! A simulated cluster: its real state, the state that the API server shows, and the queue of the next events.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};

use super::cell::Cell;
use super::judge::{DAY, Judge, Look, Millis, Progress, SECOND, SeenNode, SeenPod, Version, View};
use super::outcome::Outcome;
use super::real::Real;
use super::weather::Rolling;

/// The number of pods of a node, in a cluster that has enough.
const PODS_PER_NODE: usize = 20;

/// Something that happens at a time. Numbers that count up say whether it was called off meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    Look,
    /// An agent takes what is assigned to its pod.
    Take(usize),
    /// What it took is seen.
    Taken(usize),
    /// A container ends, unless it did before.
    Crash(usize, u32),
    /// The crash of a container is seen.
    CrashSeen(usize, u32),
    /// A container is started again.
    Start(usize, u32),
    /// The agent of a pod is there again, after a reboot.
    AgentBack(usize),
    /// The process of a container answers.
    Serve(usize, u32),
    /// What probes found is seen.
    Probed(usize, u32, bool),
    /// The environment harms a pod from now on, or no longer.
    Trouble(usize, bool),
    /// A container of another injector ends in this pod; it is back.
    Sidecar(usize, bool),
    /// A pod gets a node; it starts.
    Scheduled(usize),
    Born(usize),
    Terminate(usize),
    Gone(usize),
    /// A pod of a Job is done.
    Done(usize),
    Background,
    Strike,
    /// The next part of what struck.
    Then(u32),
    /// A node is shown Ready or not.
    Node(usize, bool),
    /// A node is shown to have booted.
    Booted(usize),
    Leader,
}

/// A cluster and the rollout in it.
pub(crate) struct Cluster<'a, J> {
    pub(super) cell: &'a Cell,
    pub(super) random: SmallRng,
    pub(super) now: Millis,
    queue: BinaryHeap<Reverse<(Millis, u64, Event)>>,
    queued: u64,
    pub(super) view: View,
    pub(super) real: Vec<Real>,
    pub(super) judge: J,
    /// When the next look is, and when the last one was.
    look_at: Option<Millis>,
    looked_at: Millis,
    /// The time before which no replica leads.
    pub(super) leaderless_until: Millis,
    /// The rollout of an image that is on.
    pub(super) rolling: Option<Rolling>,
    /// Pods that are not Ready although they could be, and since when there are any.
    unwell: usize,
    unwell_since: Millis,
    assigned: usize,
    pub(super) outcome: Outcome,
    ended: bool,
}

impl<'a, J: Judge> Cluster<'a, J> {
    pub(crate) fn new(cell: &'a Cell, seed: u64, judge: J) -> Self {
        let fleet = cell.fleet;
        let nodes = fleet.div_ceil(PODS_PER_NODE).max(fleet.min(3));
        let workloads = (0..cell.workloads).map(|number| format!("Deployment/web-{number}"));
        let view = View {
            pods: Vec::with_capacity(fleet * 2),
            nodes: vec![SeenNode { ready: true, boot: 0 }; nodes],
            workloads: workloads.chain(["Job".to_owned()]).collect(),
            changed: Vec::new(),
            nodes_changed: false,
            template: cell.probes.template(),
            held: false,
            bake_seconds: cell.bake_seconds,
        };
        let mut cluster = Self {
            cell,
            random: SmallRng::seed_from_u64(seed),
            now: 0,
            queue: BinaryHeap::new(),
            queued: 0,
            view,
            real: Vec::with_capacity(fleet * 2),
            judge,
            look_at: None,
            looked_at: 0,
            leaderless_until: 0,
            rolling: None,
            unwell: 0,
            unwell_since: 0,
            assigned: 0,
            outcome: Outcome::default(),
            ended: false,
        };
        cluster.populate();
        cluster
    }

    /// The pods that there are when the rollout begins, all of them healthy.
    fn populate(&mut self) {
        let jobs = self.cell.job_pods();
        for pod in 0..self.cell.fleet {
            let workload = if pod < jobs { self.cell.workloads } else { pod % self.cell.workloads };
            let node = self.random.random_range(0..self.view.nodes.len());
            let pod = self.add_pod(workload, Some(node));
            let restarts = if self.random.random_bool(0.5) { 0 } else { self.random.random_range(1..4) };
            let pod_view = &mut self.view.pods[pod];
            (pod_view.ready, pod_view.was_ready, pod_view.running, pod_view.acknowledged) = (true, true, true, true);
            (pod_view.app_ready, pod_view.agent_ready) = (true, true);
            (pod_view.runs, pod_view.restarts) = (Some(Version::Current), restarts);
            // Most of them long ago, some a moment ago.
            pod_view.last_restart = (restarts > 0).then(|| -self.random.random_range(1..600_000));
            self.real[pod].settle();
        }
        self.choose_harmed();
        self.unwell = 0;
    }

    /// Which pods the target harms: an exact share of them.
    fn choose_harmed(&mut self) {
        let count = self.cell.version.harmed(self.cell.fleet);
        let mut pods: Vec<usize> = (0..self.cell.fleet).collect();
        for at in 0..count {
            let other = self.random.random_range(at..pods.len());
            pods.swap(at, other);
            self.real[pods[at]].prone = true;
        }
    }

    pub(super) fn add_pod(&mut self, workload: usize, node: Option<usize>) -> usize {
        let pod = self.view.pods.len();
        self.view.pods.push(SeenPod {
            uid: format!("pod-{pod}"),
            workload,
            number: self.random.random(),
            node,
            ..SeenPod::default()
        });
        let phase = self.random.random_range(0..self.cell.probes.period_ms());
        self.real.push(Real::new(phase));
        pod
    }

    /// Returns pods without the target.
    pub(super) fn unassigned(&self) -> usize {
        let there = self.view.pods.iter().filter(|pod| !pod.gone && !pod.terminating).count();
        there.saturating_sub(self.assigned)
    }

    /// Runs until the rollout has ended, or nothing more can be expected of it.
    pub(crate) fn run(mut self) -> Outcome {
        self.play();
        self.outcome
    }

    pub(super) fn play(&mut self) {
        self.begin();
        let end = self.cell.max_duration();
        while !self.ended {
            let Some(Reverse((at, _, event))) = self.queue.pop() else { break };
            if at > end {
                break;
            }
            self.now = at;
            self.happen(event);
        }
        if self.unwell > 0 {
            self.outcome.unwell += self.now - self.unwell_since;
        }
        self.outcome.duration = self.now;
    }

    fn begin(&mut self) {
        self.look_soon();
        self.next_background();
        self.forecast();
        let jobs = self.cell.job_pods();
        for pod in 0..jobs {
            let done = self.between(SECOND, 120 * SECOND);
            self.after(done, Event::Done(pod));
        }
    }

    pub(super) fn after(&mut self, delay: Millis, event: Event) {
        self.queued += 1;
        self.queue.push(Reverse((self.now + delay, self.queued, event)));
    }

    /// Now, as it is written into statuses.
    pub(super) fn seconds(&self) -> i64 {
        i64::try_from(self.now / SECOND).unwrap_or(i64::MAX)
    }

    pub(super) fn between(&mut self, least: Millis, most: Millis) -> Millis {
        self.random.random_range(least..=most)
    }

    /// Background harm: of a random pod, a crash or a time in which it is not ready.
    pub(super) fn next_background(&mut self) {
        let rate = self.cell.harms_a_week * float(self.view.pods.len()) / float_ms(7 * DAY);
        if rate > 0.0 {
            let chance: f64 = self.random.random_range(f64::MIN_POSITIVE..1.0);
            let delay = -chance.ln() / rate;
            if delay < float_ms(2 * DAY) {
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // positive and small
                self.after(delay as Millis, Event::Background);
            }
        }
    }

    /// Something that can be seen of this pod changes.
    pub(super) fn show(&mut self, pod: usize, change: impl FnOnce(&mut SeenPod)) {
        let before = is_unwell(&self.view.pods[pod]);
        change(&mut self.view.pods[pod]);
        self.view.changed.push(pod);
        self.count_change(before, is_unwell(&self.view.pods[pod]));
        self.look_soon();
    }

    fn count_change(&mut self, before: bool, after: bool) {
        match (before, after) {
            (false, true) => {
                if self.unwell == 0 {
                    self.unwell_since = self.now;
                }
                self.unwell += 1;
            }
            (true, false) => {
                self.unwell -= 1;
                if self.unwell == 0 {
                    self.outcome.unwell += self.now - self.unwell_since;
                }
            }
            _ => {}
        }
    }

    /// Another look, after changes were collected for a moment.
    pub(super) fn look_soon(&mut self) {
        let at = (self.looked_at + self.cell.collection_delay()).max(self.now + 5);
        self.look_by(at);
    }

    fn look_by(&mut self, at: Millis) {
        if self.look_at.is_none_or(|planned| at < planned) {
            self.look_at = Some(at);
            self.after(at.saturating_sub(self.now), Event::Look);
        }
    }

    pub(super) fn look(&mut self) {
        // A look that was planned for later has been made meanwhile.
        if self.look_at != Some(self.now) {
            return;
        }
        if self.now < self.leaderless_until {
            self.look_at = None;
            return self.look_by(self.leaderless_until);
        }
        (self.look_at, self.looked_at) = (None, self.now);
        let Look { progress, reassigned, again, message } = self.judge.look(self.now, &self.view);
        self.outcome.looks += 1;
        self.view.changed.clear();
        self.view.nodes_changed = false;
        if reassigned {
            self.assign();
        }
        self.outcome.write_down(progress, self.now, self.assigned, &message);
        if self.outcome.progress != Some(progress) {
            self.outcome.record_progress(progress, self.now, message);
        }
        if matches!(progress, Progress::RolledBack | Progress::Passed) {
            self.ended = true;
        }
        if let Some(again) = again {
            self.look_by(again.max(self.now + 1));
        }
    }

    /// Agents learn what is assigned to their pods now.
    fn assign(&mut self) {
        let (mut assigned, mut more) = (0, false);
        for pod in 0..self.view.pods.len() {
            let pod_view = &self.view.pods[pod];
            if pod_view.gone || pod_view.terminating {
                continue;
            }
            let version = self.judge.assigned(&self.view, pod);
            assigned += usize::from(version == Version::Target);
            if version != self.real[pod].assigned {
                more |= version == Version::Target;
                self.real[pod].assigned = version;
                let delay = self.between(30, 1000);
                self.after(delay, Event::Take(pod));
            }
        }
        if more {
            if self.outcome.steps == 0 {
                self.outcome.first_assigned = self.now;
                self.outcome.first_step = assigned;
            }
            self.outcome.steps += 1;
        }
        self.assigned = assigned;
        self.outcome.exposed = self.outcome.exposed.max(assigned);
    }

    /// Creates a pod, which is assigned at once what it is to run.
    pub(super) fn bear(&mut self, workload: usize, schedulable: bool) -> usize {
        let pod = self.add_pod(workload, None);
        let version = self.judge.assigned(&self.view, pod);
        self.real[pod].assigned = version;
        let prone = self.cell.version.harms_newborn(&mut self.random);
        self.real[pod].prone = prone;
        let template = self.rolling.as_ref().map_or(0, |rolling| rolling.template_of(workload));
        let now = self.seconds();
        self.show(pod, |seen| (seen.template, seen.unready_since) = (template, Some(now)));
        if version == Version::Target {
            self.outcome.born_harmed += usize::from(prone);
            self.assigned += 1;
            self.outcome.exposed = self.outcome.exposed.max(self.assigned);
        }
        if schedulable {
            let delay = self.between(50, 1000);
            self.after(delay, Event::Scheduled(pod));
        }
        pod
    }
}

/// Returns a pod that could be Ready and is not.
fn is_unwell(pod: &SeenPod) -> bool {
    !pod.ready && !pod.terminating && !pod.gone && !pod.ending && pod.node.is_some()
}

#[allow(clippy::cast_precision_loss)] // small
pub(crate) fn float(number: usize) -> f64 {
    number as f64
}

#[allow(clippy::cast_precision_loss)] // small
pub(crate) fn float_ms(number: Millis) -> f64 {
    number as f64
}
