//! A config with simulated pods: they take their assigned versions, start, end, and suffer from a bad version.

use std::collections::{HashMap, HashSet};

use nudge_api::{ConfigState, Reason};

use super::{TestRollout, failure, pod, reason};
use crate::keys::PodUid;
use crate::pods::{PodPhase, Readiness};
use crate::rollout::clock::millis;
use crate::rollout::{Continuation, Effects, Subject};

/// The effect of version 2 on the pods that run it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nature {
    /// Nothing.
    Good,
    /// The pods' probe notices that they do not work: with default timing after 25 s.
    Unready,
    /// The pods crash 2 s later, and again and again.
    Crashes,
}

pub(super) const BAD: [Nature; 2] = [Nature::Unready, Nature::Crashes];

/// The seconds until a good version with default probes is current if nothing delays it: three steps of 37 s, and the
/// bake.
pub(super) const USUAL: i64 = 190;

/// Runs the test with a good version, and with two bad versions.
pub(super) fn each(mut run: impl FnMut(Nature)) {
    [Nature::Good, Nature::Unready, Nature::Crashes].into_iter().for_each(&mut run);
}

/// A rollout from version 1 to 2, and its surroundings.
pub(super) struct Scene {
    pub(super) rollout: TestRollout,
    pub(super) nature: Nature,
    /// The requested version.
    pub(super) requested: &'static str,
    /// The seconds since the rollout began.
    pub(super) seconds: i64,
    /// The maximum number of pods that version 2 was ever assigned to.
    pub(super) exposed: usize,
    /// The time when each pod began to run version 2.
    took: HashMap<PodUid, i64>,
    hurt: HashSet<PodUid>,
    /// The time when each new pod becomes Ready.
    starts: HashMap<PodUid, i64>,
}

impl Scene {
    /// Creates a scene whose leader has observed the pods before version 2 is requested.
    pub(super) fn new(workloads: &[(&str, usize)], nature: Nature) -> Self {
        Self::of(TestRollout::new(workloads), nature)
    }

    pub(super) fn of(mut rollout: TestRollout, nature: Nature) -> Self {
        rollout.rest("1");
        Self {
            rollout,
            nature,
            requested: "2",
            seconds: 0,
            exposed: 0,
            took: HashMap::new(),
            hurt: HashSet::new(),
            starts: HashMap::new(),
        }
    }

    /// Lets one second pass, and the leader observe. Returns the effects.
    pub(super) fn second(&mut self) -> Effects {
        let effects = self.rollout.watch(self.requested, 1);
        self.exposed = self.exposed.max(self.rollout.assigned("2"));
        self.live(1);
        effects
    }

    pub(super) fn watch(&mut self, seconds: i64) {
        (0..seconds).for_each(|_| drop(self.second()));
    }

    /// Lets time pass without a leader.
    pub(super) fn nobody_looks(&mut self, seconds: i64) {
        for _ in 0..seconds {
            self.rollout.later(1);
            self.live(1);
        }
    }

    /// Replaces the leader by one that knows only the stored status.
    pub(super) fn hand_over(&mut self) {
        self.rollout.evidence = crate::rollout::Evidence::default();
    }

    /// Simulates the pods for this number of seconds.
    pub(super) fn live(&mut self, seconds: i64) {
        self.seconds += seconds;
        let (now, versions) = (self.rollout.millis, self.rollout.versions());
        for (pod, version) in self.rollout.pods.iter_mut().zip(versions) {
            if pod.is_reachable() {
                pod.runs = version;
            }
            if self.starts.get(&pod.uid).is_some_and(|&at| now >= at) && pod.phase == PodPhase::Running {
                self.starts.remove(&pod.uid);
                pod.recover();
            }
            if pod.runs.as_deref() != Some("2") {
                self.took.remove(&pod.uid);
                if self.hurt.remove(&pod.uid) {
                    pod.recover();
                }
                continue;
            }
            let ran = now - *self.took.entry(pod.uid.clone()).or_insert(now);
            let hurts = match self.nature {
                Nature::Good => false,
                Nature::Unready => ran >= millis(pod.probes.notice_time) + 5_000,
                Nature::Crashes => ran >= 2_000,
            };
            if !hurts || self.starts.contains_key(&pod.uid) {
                continue;
            }
            let first = self.hurt.insert(pod.uid.clone());
            if self.nature == Nature::Crashes && (first || ran % 40_000 < 1000) {
                pod.crash(now);
            }
            pod.fall();
        }
        for pod in &mut self.rollout.pods {
            if pod.readiness == (Readiness::Lost { since: 0 }) {
                pod.lose_readiness(now / 1000);
            }
        }
        let present: HashSet<&PodUid> = self.rollout.pods.iter().map(|pod| &pod.uid).collect();
        self.took.retain(|uid, _| present.contains(uid));
    }

    /// Creates a pod that is Ready after this number of seconds.
    pub(super) fn bear(&mut self, workload: &str, number: usize, ready_after: i64) -> &mut Subject {
        let mut new = pod(workload, number);
        (new.runs, new.readiness) = (None, Readiness::Never);
        new.fall();
        self.starts.insert(new.uid.clone(), self.rollout.millis + ready_after * 1000);
        self.rollout.pods.push(new);
        self.rollout.pods.last_mut().unwrap()
    }

    pub(super) fn is_current(&self) -> bool {
        self.rollout.status.current_version.as_deref() == Some("2")
    }

    pub(super) fn is_back(&self) -> bool {
        matches!(self.rollout.status.state(), ConfigState::RollingBack | ConfigState::Failed)
    }

    /// Checks that the version becomes current without a rollback within this number of seconds. Returns the seconds
    /// that it took.
    #[track_caller]
    pub(super) fn passes(&mut self, at_most: i64) -> i64 {
        self.passes_while(at_most, |_| {})
    }

    /// Checks the same while `happens` runs every second.
    #[track_caller]
    pub(super) fn passes_while(&mut self, at_most: i64, mut happens: impl FnMut(&mut Self)) -> i64 {
        let began = self.seconds;
        let mut effects = Effects::default();
        while self.seconds - began < at_most {
            happens(self);
            effects = self.second();
            assert_eq!(failure(&self.rollout), None, "after {} s", self.seconds);
            if self.is_current() {
                return self.seconds - began;
            }
        }
        panic!("not current after {at_most} s: {effects:?} {:?}", self.rollout.status.rollout);
    }

    /// Checks that the version is rolled back or held within this number of seconds. Returns the reason.
    #[track_caller]
    pub(super) fn is_stopped(&mut self, at_most: i64) -> Reason {
        self.is_stopped_while(at_most, |_| {})
    }

    /// Checks the same while `happens` runs every second.
    #[track_caller]
    pub(super) fn is_stopped_while(&mut self, at_most: i64, mut happens: impl FnMut(&mut Self)) -> Reason {
        let began = self.seconds;
        let mut effects = Effects::default();
        while self.seconds - began < at_most {
            happens(self);
            effects = self.second();
            assert!(!self.is_current(), "current after {} s", self.seconds);
            if self.is_back() {
                return failure(&self.rollout).unwrap().0;
            }
        }
        let held = reason(&effects).filter(|_| !matches!(effects.continuation, Continuation::Waiting(_)));
        held.unwrap_or_else(|| panic!("not stopped: {effects:?} {:?}", self.rollout.status.rollout))
    }
}
