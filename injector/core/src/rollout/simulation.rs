//! Rollouts in a simulated cluster: random orders of events, sick pods, stale observations, lost writes, leaders that take over.
//!
//! `NUDGE_SIMULATED_STEPS` sets how many steps are made (default: a million).

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use nudge_api::{Batch, Phase, Reason, RolloutSpec, RolloutStage, VersionedConfigStatus};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use super::assignment::of_number;
use super::batch::size;
use super::{Effects, Observation, Restarts, Rollout, Subject, next, pod_number, to_publish};
use crate::identity::Identity;

const WORKLOADS: [&str; 3] = ["Deployment/web", "StatefulSet/db", ""];

/// What becomes of a pod that takes a version.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Nature {
    Well,
    /// Its application ends again and again, whatever it runs.
    Crashing,
    /// Its agent does not answer.
    Silent,
}

#[derive(Clone)]
struct Pod {
    real: Subject,
    seen: Subject,
    nature: Nature,
    /// Born after the rollout began that is on now.
    newborn: bool,
}

struct Index {
    random: StdRng,
    now: i64,
    spec: RolloutSpec,
    generation: i64,
    requested: String,
    bad: BTreeSet<String>,
    status: VersionedConfigStatus,
    pods: Vec<Pod>,
    born: u32,
    published: bool,
    /// The state of the workloads without an agent.
    restart: Restarts,
    held: Option<Reason>,
    /// No write gets lost any more.
    calm: bool,
    steps: u64,
}

impl Index {
    fn new(seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let batch = match random.random_range(0..4) {
            0 => Some(Batch::Count(random.random_range(1..4))),
            1 => Some(Batch::Share("1%".to_owned())),
            2 => Some(Batch::Share("100%".to_owned())),
            _ => None,
        };
        let spec = RolloutSpec {
            batch,
            min_ready_seconds: random.random_range(0..20),
            bake_seconds: random.random_range(0..60),
            ..RolloutSpec::default()
        };
        let status = VersionedConfigStatus {
            current: Some("v0".to_owned()),
            phase: Phase::Current,
            ..VersionedConfigStatus::default()
        };
        let mut index = Self {
            random,
            now: 1_000_000,
            spec,
            generation: 1,
            requested: "v0".to_owned(),
            bad: BTreeSet::new(),
            status,
            pods: Vec::new(),
            born: 0,
            published: true,
            restart: Restarts::Done,
            held: None,
            calm: false,
            steps: 0,
        };
        for _ in 0..index.random.random_range(0..16) {
            index.bear(false);
        }
        index
    }

    fn bear(&mut self, newborn: bool) {
        self.born += 1;
        let uid = format!("pod-{}", self.born);
        let workload = WORKLOADS[self.random.random_range(0..WORKLOADS.len())];
        let nature = match self.random.random_range(0..10) {
            0 => Nature::Crashing,
            1 => Nature::Silent,
            _ => Nature::Well,
        };
        let settled = !newborn;
        let real = Subject {
            name: uid.clone(),
            number: pod_number(Identity::of_uid("uid"), &uid),
            workload: workload.to_owned(),
            runs: settled.then(|| self.status.current.clone()).flatten(),
            acknowledged: settled,
            ready: settled && nature != Nature::Crashing,
            was_ready: settled,
            agent_away: false,
            ending: false,
            running: settled,
            node_ready: true,
            in_contact: settled && nature != Nature::Silent,
            restarts: i32::from(nature == Nature::Crashing) * 3,
            last_restart: (nature == Nature::Crashing).then_some(self.now - 30),
            failure: None,
            slowest_probe: None,
            uid,
        };
        self.pods.push(Pod { seen: real.clone(), real, nature, newborn });
    }

    fn time(&self) -> Time {
        Time(Timestamp::from_second(self.now).unwrap())
    }

    fn assigned(&self, pod: &Subject) -> String {
        of_number(&self.status, pod.number, &pod.workload).unwrap().to_owned()
    }

    /// The pod takes what is assigned to it, with the consequences.
    fn take(&mut self, at: usize) {
        let assigned = self.assigned(&self.pods[at].real);
        let bad = self.bad.contains(&assigned);
        let (kind, now) = (self.random.random_range(0..3), self.now);
        let Pod { real, nature, .. } = &mut self.pods[at];
        if real.agent_away || *nature == Nature::Silent || !real.node_ready || !real.running {
            return;
        }
        let new = real.runs.as_ref() != Some(&assigned);
        real.runs = Some(assigned.clone());
        real.in_contact = true;
        real.acknowledged = true;
        if bad && new {
            match kind {
                0 => real.ready = false,
                1 => {
                    real.restarts += 1;
                    real.last_restart = Some(now);
                }
                _ => {
                    real.acknowledged = false;
                    real.failure = Some(Reason::NoHandler.explained("it has none"));
                }
            }
        } else if !bad {
            real.failure = None;
            if *nature == Nature::Well {
                real.ready = true;
                real.was_ready = true;
            }
        }
    }

    /// What may become of workloads without an agent now.
    fn restarted(&mut self) -> Restarts {
        let bad = self.status.target.as_ref().is_some_and(|target| self.bad.contains(target));
        match self.random.random_range(0..3) {
            0 => Restarts::Busy("one of them is being restarted".to_owned()),
            1 if bad => Restarts::Failed("one of them did not come up".to_owned()),
            _ => Restarts::Done,
        }
    }

    /// Something happens.
    fn event(&mut self) {
        let count = self.pods.len();
        let which = self.random.random_range(0..count.max(1));
        match self.random.random_range(0..100) {
            0..30 if count > 0 => self.take(which),
            30..55 if count > 0 => self.pods[which].seen = self.pods[which].real.clone(),
            55..70 => self.now += self.random.random_range(0..15),
            70..72 => self.bear(true),
            72..74 if count > 0 => drop(self.pods.swap_remove(which)),
            74..78 if count > 0 => self.pods[which].real.running = true,
            78..80 if count > 0 => {
                let node_ready = self.random.random_bool(0.6);
                self.pods[which].real.node_ready = node_ready;
            }
            80..86 if count > 0 && self.pods[which].nature == Nature::Crashing => {
                let now = self.now;
                let real = &mut self.pods[which].real;
                real.ready = !real.ready;
                if !real.ready {
                    real.restarts += 1;
                    real.last_restart = Some(now);
                }
            }
            86 => {
                self.requested = format!("v{}", self.random.random_range(0..4));
                self.generation += 1;
            }
            87 => {
                self.spec.paused = !self.spec.paused;
                self.generation += 1;
            }
            88 => self.published = !self.published,
            89..92 => self.restart = self.restarted(),
            // An agent ends, or is back: of a pod whose application is well.
            92..94 if count > 0 => {
                let real = &mut self.pods[which].real;
                if real.agent_away || (real.ready && real.failure.is_none()) {
                    real.agent_away = !real.agent_away;
                    real.ready = !real.agent_away;
                }
            }
            _ => {}
        }
    }

    /// A leader looks, with what it has seen. Its write may get lost.
    fn look(&mut self) {
        for _ in 0..20 {
            let before = self.status.clone();
            let (next, effects) = self.decide();
            self.check(&before, &next);
            self.steps += 1;
            if !self.calm && self.random.random_bool(0.1) {
                return;
            }
            let begins = before.rollout.stage.is_none() && next.rollout.stage.is_some();
            self.status = next;
            if begins {
                self.pods.iter_mut().for_each(|pod| pod.newborn = false);
            }
            self.held = effects.held.then(|| effects.waits_for.map(|waits_for| waits_for.reason)).flatten();
            if !effects.more {
                return;
            }
        }
        panic!("a leader does not come to rest: {:?}", self.status);
    }

    /// What a leader decides; now and then beside another who knows nothing but the stored status.
    fn decide(&mut self) -> (VersionedConfigStatus, Effects) {
        let another = self.random.random_bool(0.1);
        let pods: Vec<Subject> = self.pods.iter().map(|pod| pod.seen.clone()).collect();
        let now = self.time();
        let seen = Observation {
            spec: &self.spec,
            generation: self.generation,
            requested: &self.requested,
            pods: &pods,
            waiting_for: None,
            published: to_publish(&self.status).filter(|_| self.published),
            current_since: None,
            restart: &self.restart,
        };
        let decide = |status: VersionedConfigStatus| {
            let (rollout, effects) = next(Rollout::from_status(&status, &now), &seen, &now);
            (rollout.clone(), rollout.into_status(status), effects)
        };
        let decided = decide(self.status.clone());
        if another {
            let stored = serde_json::to_string(&self.status).unwrap();
            assert_eq!(decided, decide(serde_json::from_str(&stored).unwrap()));
        }
        let (rollout, status, effects) = decided;
        // Nothing is lost on the way into the status and out of it.
        let read = Rollout::from_status(&status, &now);
        assert_eq!(read, rollout);
        assert_eq!(read.into_status(status.clone()), status);
        (status, effects)
    }

    /// What must hold of every step.
    fn check(&self, before: &VersionedConfigStatus, next: &VersionedConfigStatus) {
        let assigned = |status: &VersionedConfigStatus, pod: &Subject| {
            of_number(status, pod.number, &pod.workload).unwrap().to_owned()
        };
        let target = next.target.clone();
        for pod in &self.pods {
            let version = assigned(next, &pod.seen);
            assert!(Some(&version) == next.current.as_ref() || Some(&version) == target.as_ref());
        }
        if next.phase == Phase::Failed {
            assert!(self.pods.iter().all(|pod| Some(assigned(next, &pod.real)) == next.current));
            assert_eq!(next.current, before.current);
        }
        // Nothing becomes current, and no rollout ends, before all else runs it too.
        let ended = before.rollout.stage.is_some() && next.rollout.stage.is_none();
        if (before.current != next.current && before.previous != next.current) || ended {
            assert!(self.published && !matches!(self.restart, Restarts::Busy(_)), "{before:?} to {next:?}");
        }
        if before.current != next.current && before.previous == next.current {
            // The way back is one write, even where no pod is healthy: the version is assigned to all, and is not the previous one any more.
            assert!(self.pods.iter().all(|pod| Some(assigned(next, &pod.real)) == next.current));
            assert_eq!((next.rollout.stage, &next.previous), (Some(RolloutStage::Leaving), &None));
        } else if before.current != next.current {
            assert_eq!((before.rollout.stage, &self.restart), (Some(RolloutStage::Restarting), &Restarts::Done));
        }
        // Another assignment has another revision.
        if self.pods.iter().any(|pod| assigned(before, &pod.seen) != assigned(next, &pod.seen)) {
            assert!(next.rollout.revision > before.rollout.revision);
        }
        let moving = |status: &VersionedConfigStatus| status.rollout.stage == Some(RolloutStage::Moving);
        if !moving(before) || !moving(next) || before.rollout.groups == next.rollout.groups {
            return;
        }
        // A batch goes out, the first one of one pod that is healthy. The pods of earlier batches that are waited for are proven, and of each workload
        // no more than a batch gets the version.
        let version = target.unwrap();
        let skipped = |pod: &Subject| next.rollout.skipped.iter().any(|skipped| skipped.uid == pod.uid);
        let judges = |pod: &&Pod| assigned(before, &pod.seen) == version && !skipped(&pod.seen);
        let first = self.spec.batch.is_none() && !self.pods.iter().any(|pod| judges(&pod));
        if first {
            let fresh = |pod: &&Pod| assigned(before, &pod.seen) != version && assigned(next, &pod.seen) == version;
            let healthy = |pod: &&Pod| pod.seen.unfit(self.now).is_none();
            assert!(self.pods.iter().filter(fresh).filter(healthy).count() <= 1, "{next:?}");
        }
        for workload in WORKLOADS {
            let of: Vec<&Pod> = self.pods.iter().filter(|pod| pod.seen.workload == workload).collect();
            let fresh = |pod: &&&Pod| assigned(before, &pod.seen) != version && assigned(next, &pod.seen) == version;
            let count = of.iter().filter(fresh).count();
            assert!(
                first || count <= size(self.spec.batch.as_ref(), of.len()),
                "{count} of {} in {workload}",
                of.len()
            );
            let fell = |pod: &Subject| pod.was_ready && !pod.ready && !pod.ending;
            let lost = |pod: &Subject| next.rollout.skipped.iter().any(|it| it.uid == pod.uid && !it.before);
            assert!(!of.iter().any(|pod| fell(&pod.seen) && lost(&pod.seen)), "{next:?}");
            for pod in of.iter().filter(|pod| assigned(before, &pod.seen) == version && !skipped(&pod.seen)) {
                assert!(pod.seen.ready && pod.seen.has_taken(&version), "{:?}", pod.seen);
            }
        }
    }

    /// All trouble ends, and everything is seen.
    fn calm(&mut self) {
        self.calm = true;
        self.spec.paused = false;
        self.published = true;
        for round in 0..400 {
            self.restart = Restarts::Done;
            for at in 0..self.pods.len() {
                self.pods[at].real.node_ready = true;
                self.pods[at].real.running = true;
                if std::mem::take(&mut self.pods[at].real.agent_away) {
                    self.pods[at].real.ready = true;
                }
                self.pods[at].nature = Nature::Well;
                self.take(at);
                self.pods[at].seen = self.pods[at].real.clone();
            }
            self.now += 20;
            let before = self.status.clone();
            self.look();
            let rests = self.status == before && self.status.rollout.stage.is_none();
            if rests && round > 3 {
                break;
            }
        }
        let status = &self.status;
        let current = status.current.as_deref() == Some(&self.requested) && status.phase == Phase::Current;
        let failed = status.phase == Phase::Failed
            && status.rollout.failure.as_ref().is_some_and(|failure| failure.version == self.requested);
        // Of a bad version so many pods may say nothing, because they were sick before, that a person has to look.
        let held = matches!(self.held, Some(Reason::TooManySkipped | Reason::NobodyToJudge))
            && self.bad.contains(&self.requested);
        assert!(current || failed || held, "held by {:?}, requested {}: {status:?}", self.held, self.requested);
        if !self.bad.contains(&self.requested) && self.requested != "v0" && failed {
            let failure = status.rollout.failure.as_ref().unwrap();
            assert_ne!(failure.reason, Reason::NoHandler, "blamed for what another version did");
        }
    }
}

fn step_count() -> u64 {
    std::env::var("NUDGE_SIMULATED_STEPS").ok().and_then(|steps| steps.parse().ok()).unwrap_or(100_000)
}

fn run(seed: u64, bad: &[&str]) -> u64 {
    let mut index = Index::new(seed);
    index.bad = bad.iter().map(|&version| version.to_owned()).collect();
    for _ in 0..index.random.random_range(20..400) {
        index.event();
        if index.random.random_bool(0.4) {
            index.look();
        }
    }
    index.calm();
    index.steps
}

#[test]
fn after_any_trouble_a_rollout_ends_and_no_rule_was_broken() {
    let (mut steps, mut seed) = (0, 0);
    while steps < step_count() {
        let made = std::panic::catch_unwind(|| {
            run(seed, [&["v1"][..], &[], &["v1", "v2", "v3"]][usize::try_from(seed % 3).unwrap()])
        });
        match made {
            Ok(made) => steps += made,
            Err(panic) => {
                eprintln!("seed {seed}");
                std::panic::resume_unwind(panic);
            }
        }
        seed += 1;
    }
}

/// Pods that were sick before a version was there are never its fault.
#[test]
fn a_good_version_is_never_blamed_for_pods_that_were_sick_before() {
    for seed in 0..300 {
        let mut index = Index::new(seed);
        index.spec.batch = Some(Batch::Share("100%".to_owned()));
        index.spec.paused = false;
        index.requested = "v1".to_owned();
        index.generation = 2;
        for _ in 0..400 {
            let sick = index.pods.iter().position(|pod| pod.nature == Nature::Crashing);
            if let Some(at) = sick {
                let now = index.now;
                let real = &mut index.pods[at].real;
                real.ready = !real.ready;
                if !real.ready {
                    real.restarts += 1;
                    real.last_restart = Some(now);
                }
            }
            for at in 0..index.pods.len() {
                let was = (index.pods[at].real.ready, index.pods[at].nature);
                index.take(at);
                if was.1 == Nature::Crashing {
                    index.pods[at].real.ready = was.0;
                }
                index.pods[at].seen = index.pods[at].real.clone();
            }
            index.now += 10;
            index.look();
            assert_eq!(index.status.rollout.failure, None, "seed {seed}");
        }
    }
}
