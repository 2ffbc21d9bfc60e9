//! Invariants: events in random orders, pods that come and go, writes that get lost, leaders that take over.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use nudge_api::{ConfigState, Reason, RolloutStage, VersionedConfigStatus};
use proptest::prelude::*;

use super::scene::{Nature, Scene};
use super::{TestRollout, on_hold, reason};
use crate::hub_health::HubAway;
use crate::pods::PodPhase;
use crate::rollout::assignment::assigned_version::version_of_place;
use crate::rollout::{Rollout, Subject};

/// Something happens.
#[derive(Clone, Debug)]
enum Event {
    /// This number of seconds passes, and the leader observes.
    Look(i64),
    /// The leader decides. Its write and its observations are lost.
    Lose,
    HandOver,
    NobodyLooks(i64),
    /// Changes were missed.
    Blind,
    Hold,
    Unhold,
    /// The hub goes away, or is back.
    Hub(bool),
    /// A neighbour is moved, or not any more.
    Neighbour(bool),
    /// Another version is requested.
    Request(usize),
    /// Any change of the spec.
    Change(usize),
    Born(usize, i64),
    Gone(usize),
    /// A pod is evicted, and another one takes its place.
    Replaced(usize, i64),
    Pending,
    Node(usize, bool),
    /// A pod is unready for this number of seconds.
    Flap(usize, i64),
    Crash(usize),
}

const WORKLOADS: [&str; 4] = ["web", "db", "one", "Job"];

fn weather() -> impl Strategy<Value = Event> {
    prop_oneof![
        12 => (1_i64..50).prop_map(Event::Look),
        1 => Just(Event::Lose),
        1 => Just(Event::HandOver),
        1 => (1_i64..100).prop_map(Event::NobodyLooks),
        1 => Just(Event::Blind),
        1 => Just(Event::Hold),
        2 => Just(Event::Unhold),
        1 => any::<bool>().prop_map(Event::Hub),
        1 => any::<bool>().prop_map(Event::Neighbour),
        2 => (0..WORKLOADS.len(), 1_i64..30).prop_map(|(workload, after)| Event::Born(workload, after)),
        1 => any::<usize>().prop_map(Event::Gone),
        2 => (any::<usize>(), 1_i64..30).prop_map(|(pod, after)| Event::Replaced(pod, after)),
        1 => Just(Event::Pending),
        1 => (any::<usize>(), any::<bool>()).prop_map(|(pod, ready)| Event::Node(pod, ready)),
    ]
}

fn trouble() -> impl Strategy<Value = Event> {
    prop_oneof![
        10 => weather(),
        1 => (1_usize..4).prop_map(Event::Request),
        1 => (1_usize..4).prop_map(Event::Change),
        2 => (any::<usize>(), 1_i64..60).prop_map(|(pod, seconds)| Event::Flap(pod, seconds)),
        1 => any::<usize>().prop_map(Event::Crash),
    ]
}

impl Scene {
    fn happens(&mut self, event: &Event, born: &mut usize) {
        let count = self.rollout.pods.len().max(1);
        match *event {
            Event::Look(seconds) => self.watch(seconds),
            Event::Lose => {
                let (status, evidence) = (self.rollout.status.clone(), self.rollout.evidence.clone());
                self.rollout.rest(self.requested);
                (self.rollout.status, self.rollout.evidence) = (status, evidence);
            }
            Event::HandOver => self.hand_over(),
            Event::NobodyLooks(seconds) => {
                self.nobody_looks(seconds);
                self.hand_over();
            }
            Event::Blind => self.rollout.evidence.reset_after_gap(),
            Event::Hold => self.rollout.closed_gate = Some(on_hold()),
            Event::Unhold => self.rollout.closed_gate = None,
            Event::Hub(away) => self.rollout.hub_away = away.then_some(HubAway::NotRenewing),
            Event::Neighbour(moves) => self.rollout.neighbour = moves.then_some("keys"),
            Event::Request(version) => self.requested = ["1", "2", "3", "4"][version],
            Event::Change(step) => {
                self.rollout.generation += 1;
                self.rollout.spec.steps.rotate_left(step % 4);
            }
            Event::Born(workload, after) => {
                *born += 1;
                self.bear(WORKLOADS[workload], *born, after);
            }
            Event::Gone(pod) if !self.rollout.pods.is_empty() => drop(self.rollout.pods.swap_remove(pod % count)),
            Event::Replaced(pod, after) if !self.rollout.pods.is_empty() => {
                let gone = self.rollout.pods.swap_remove(pod % count);
                *born += 1;
                self.bear(gone.workload_name(), *born, after);
            }
            Event::Pending => {
                *born += 1;
                let pod = self.bear("web", *born, 10);
                (pod.phase, pod.in_contact) = (PodPhase::Pending, false);
            }
            Event::Node(pod, ready) if !self.rollout.pods.is_empty() => {
                self.rollout.pods[pod % count].node_ready = ready;
            }
            Event::Flap(pod, seconds) if !self.rollout.pods.is_empty() => {
                let name = self.rollout.pods[pod % count].uid.clone();
                self.rollout.pods[pod % count].fall();
                self.watch(seconds);
                self.rollout
                    .pods
                    .iter_mut()
                    .filter(|pod| pod.uid == name && pod.was_ready())
                    .for_each(Subject::recover);
            }
            Event::Crash(pod) if !self.rollout.pods.is_empty() => {
                let millis = self.rollout.millis;
                self.rollout.pods[pod % count].crash(millis);
            }
            _ => {}
        }
    }

    /// All trouble ends.
    fn calm(&mut self) {
        self.rollout.closed_gate = None;
        self.rollout.hub_away = None;
        self.rollout.neighbour = None;
        for pod in &mut self.rollout.pods {
            (pod.node_ready, pod.phase, pod.in_contact) = (true, PodPhase::Running, true);
        }
    }
}

/// A release is open exactly while its version moves, and no write is made for the record alone.
fn recorded(before: &VersionedConfigStatus, after: &VersionedConfigStatus) {
    let (open, ended): (Vec<_>, Vec<_>) = after.releases.iter().partition(|release| release.end_time.is_none());
    assert_eq!(open.len(), usize::from(after.rollout.stage.is_some()), "{after:?}");
    assert!(ended.iter().all(|release| release.outcome.is_some()), "{ended:?}");
    if let Some(open) = open.first() {
        let versions = (Some(&open.version), open.from_version.as_ref());
        let (current, target) = (after.current_version.as_ref(), after.target_version.as_ref());
        assert!(versions == (target, current) || versions == (current, target), "{open:?} {after:?}");
        assert_eq!(after.releases.last(), Some(*open));
    }
    let others = VersionedConfigStatus { releases: before.releases.clone(), ..after.clone() };
    let began_without_record = before.rollout.stage.is_some() && before.releases.is_empty();
    assert!(before.releases == after.releases || others != *before || began_without_record, "{after:?}");
}

/// Checks the invariants of every transition, from one status to the next.
pub(super) fn check(rollout: &TestRollout, before: &VersionedConfigStatus, after: &VersionedConfigStatus) {
    let assigned =
        |status: &VersionedConfigStatus, pod: &Subject| version_of_place(status, pod.place()).map(str::to_owned);
    if before == after {
        return;
    }
    // The status has all of the state.
    let stored: VersionedConfigStatus = serde_json::from_str(&serde_json::to_string(after).unwrap()).unwrap();
    let read = Rollout::from_status(&stored, &Time(Timestamp::from_millisecond(rollout.millis).unwrap()));
    assert_eq!(read.into_status(stored.clone()), stored);
    recorded(before, after);
    // The revision never falls, and grows with every other assignment.
    let (old, new) = (before.internal.revision, after.internal.revision);
    let reassigned = rollout.pods.iter().any(|pod| assigned(before, pod) != assigned(after, pod));
    assert!(new > old || (new == old && !reassigned), "{old} to {new}: {after:?}");
    // Within a move no threshold sinks.
    let moves = |status: &VersionedConfigStatus| {
        let forward = matches!(
            status.rollout.stage,
            Some(RolloutStage::Moving | RolloutStage::Baking | RolloutStage::Restarting)
        );
        status.target_version.clone().filter(|_| forward)
    };
    if let Some(target) = moves(before)
        && moves(after).as_ref() == Some(&target)
    {
        assert!(after.internal.threshold >= before.internal.threshold, "{before:?} to {after:?}");
        for pod in rollout.pods.iter().filter(|pod| assigned(before, pod).as_ref() == Some(&target)) {
            assert_eq!(assigned(after, pod).as_ref(), Some(&target), "{} goes back", pod.name);
        }
    }
    // A return is complete: no pod keeps the version.
    let back = matches!(
        after.rollout.stage,
        Some(RolloutStage::RollingBack | RolloutStage::Returning | RolloutStage::Leaving)
    );
    if back || matches!(after.state(), ConfigState::Failed | ConfigState::Waiting) {
        assert!(rollout.pods.iter().all(|pod| assigned(after, pod) == after.current_version), "{after:?}");
    }
    // A version is current only if the healthy pods that count have taken it, except a silent minority.
    let returns = before.previous_version.is_some() && before.previous_version == after.current_version;
    if before.current_version.is_some() && before.current_version != after.current_version && !returns {
        assert_eq!(before.target_version, after.current_version);
        let (version, second) = (after.current_version.clone().unwrap(), rollout.millis / 1000);
        let counts = |pod: &&Subject| pod.is_healthy(second) && rollout.evidence.judges(pod);
        let (taken, silent): (Vec<_>, Vec<_>) =
            rollout.pods.iter().filter(counts).partition(|pod| pod.has_taken(&version));
        let count = taken.len() + silent.len();
        let few = silent.is_empty() || (!taken.is_empty() && silent.len() <= (count / 4).max(1));
        assert!(few, "{version} is current without {silent:?}");
    }
}

fn scene(web: usize, large: usize, nature: Nature) -> Scene {
    Scene::new(&[("web", web), ("db", large), ("one", 1)], nature)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, max_shrink_iters: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// `check` looks at every transition.
    #[test]
    fn after_any_trouble_a_rollout_ends(
        web in 0_usize..12, large in 0_usize..30, bad in any::<bool>(), events in prop::collection::vec(trouble(), 5..40),
    ) {
        let mut scene = scene(web, large, if bad { Nature::Crashes } else { Nature::Good });
        let mut born = 1000;
        for event in &events {
            scene.happens(event, &mut born);
        }
        scene.calm();
        scene.rollout.retry();
        let ended = (0..2_500).any(|_| {
            let held = reason(&scene.second()) == Some(Reason::NobodyToJudge);
            let current = scene.rollout.status.current_version.as_deref() == Some(scene.requested);
            let ended = scene.rollout.status.state() == ConfigState::Failed;
            // A version that crashes unhealthy pods waits for a healthy pod, or for a user.
            ended || (bad && held) || (current && scene.rollout.status.state() == ConfigState::Current)
        });
        prop_assert!(ended, "{:?} {:?}", scene.requested, scene.rollout.status);
    }

    #[test]
    fn a_good_version_becomes_current_whatever_comes_and_goes(
        web in 1_usize..12, large in 0_usize..30, events in prop::collection::vec(weather(), 5..40),
    ) {
        let mut scene = scene(web, large, Nature::Good);
        let mut born = 1000;
        for event in &events {
            scene.happens(event, &mut born);
            prop_assert_eq!(&scene.rollout.status.rollout.failure, &None);
        }
        scene.calm();
        for _ in 0..500 {
            scene.second();
            prop_assert_eq!(&scene.rollout.status.rollout.failure, &None);
        }
        prop_assert!(scene.is_current(), "{:?}", scene.rollout.status);
    }

    #[test]
    fn a_version_that_crashes_everything_never_becomes_current(
        web in 1_usize..12, large in 0_usize..30, events in prop::collection::vec(weather(), 5..40),
    ) {
        let mut scene = scene(web, large, Nature::Crashes);
        let mut born = 1000;
        for event in &events {
            scene.happens(event, &mut born);
            prop_assert!(!scene.is_current());
        }
    }

    #[test]
    fn what_is_stored_is_decided_on_as_what_is_known(
        web in 1_usize..12, events in prop::collection::vec(trouble(), 5..40), bad in any::<bool>(),
    ) {
        let mut scene = scene(web, 20, if bad { Nature::Unready } else { Nature::Good });
        let mut born = 1000;
        for event in &events {
            scene.happens(event, &mut born);
            let (status, evidence) = (scene.rollout.status.clone(), scene.rollout.evidence.clone());
            let [one, other] = [true, false].map(|in_memory| {
                (scene.rollout.status, scene.rollout.evidence) = (status.clone(), evidence.clone());
                scene.rollout.in_memory = in_memory;
                let effects = scene.rollout.rest(scene.requested);
                let waits_for = effects.continuation.explanation().cloned();
                (waits_for, scene.rollout.status.clone())
            });
            prop_assert_eq!(one, other);
        }
    }
}
