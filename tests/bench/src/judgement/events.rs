//! The effect of each event.

use rand::RngExt as _;

use super::cluster::{Cluster, Event};
use super::judge::Judge;

impl<J: Judge> Cluster<'_, J> {
    pub(super) fn happen(&mut self, event: Event) {
        match event {
            Event::Look => self.look(),
            Event::Take(pod) => self.take(pod),
            Event::Taken(pod) => self.taken(pod),
            Event::Crash(pod, u32::MAX) => {
                let start = self.real[pod].start;
                self.crash(pod, start);
            }
            Event::Crash(pod, start) => self.crash(pod, start),
            Event::CrashSeen(pod, start) => self.crash_seen(pod, start),
            Event::Start(pod, start) => self.started(pod, start),
            Event::AgentBack(pod) => self.agent_back(pod),
            Event::Serve(pod, start) => self.serve(pod, start),
            Event::Probed(pod, finding, answers) => self.record_probe(pod, finding, answers),
            Event::Trouble(pod, begins) => self.trouble(pod, begins),
            Event::Sidecar(pod, back) => self.sidecar(pod, back),
            Event::Scheduled(pod) => self.scheduled(pod),
            Event::Born(pod) => self.born(pod),
            Event::Terminate(pod) => self.terminate(pod, true, true),
            Event::Gone(pod) => self.gone(pod),
            Event::Done(pod) => self.done(pod),
            Event::Background => self.background(),
            Event::Strike => self.strike(),
            Event::Then(node) => self.then(node as usize),
            Event::Node(node, ready) => self.node_shown(node, ready),
            Event::Booted(node) => self.node_booted(node),
            Event::Leader => self.other_leader(),
        }
    }

    /// Another replica leads: at once, or after the lease of one that died.
    fn other_leader(&mut self) {
        let without = if self.random.random_bool(0.5) { self.between(100, 1000) } else { self.between(10_000, 17_000) };
        self.leaderless_until = self.now + without;
        self.judge.hand_over();
        self.look_soon();
    }
}
