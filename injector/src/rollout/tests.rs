//! Single cases of the step function, told in words; the orders of events are the simulation's.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use super::step::{Recycling, Situation, Step, step};
use super::{Subject, pod_number};
use crate::api::{Batch, Phase, RolloutSpec, RolloutStage, VersionedConfigStatus};

struct Scene {
    spec: RolloutSpec,
    status: VersionedConfigStatus,
    pods: Vec<Subject>,
    neighbour: Option<&'static str>,
    generation: i64,
    millis: i64,
}

impl Scene {
    /// Version 1 is current, and so many pods of each of these workloads run it.
    fn new(workloads: &[(&str, usize)]) -> Self {
        let status = VersionedConfigStatus { current: Some("1".to_owned()), ..VersionedConfigStatus::default() };
        let spec =
            RolloutSpec { batch: Batch::Count(1), min_ready_seconds: 10, bake_seconds: 0, ..RolloutSpec::default() };
        let pods = workloads.iter().flat_map(|(workload, count)| (0..*count).map(move |number| pod(workload, number)));
        Self { spec, status, pods: pods.collect(), neighbour: None, generation: 1, millis: 1_000_900 }
    }

    /// Steps until nothing more happens at this time. What the last one waits for.
    fn rest(&mut self, wanted: &str) -> Step {
        for _ in 0..50 {
            let before = self.status.clone();
            let now = Time(Timestamp::from_millisecond(self.millis).unwrap());
            let made = step(
                &mut self.status,
                &Situation {
                    spec: &self.spec,
                    generation: self.generation,
                    wanted,
                    pods: &self.pods,
                    waiting_for: self.neighbour,
                    published: true,
                    recycling: &Recycling::Done,
                    now: &now,
                },
            );
            // As it comes back from the API server; what is written is looked at once more.
            let same = self.status == before;
            self.status = serde_json::from_str(&serde_json::to_string(&self.status).unwrap()).unwrap();
            if !made.more && same {
                return made;
            }
        }
        panic!("it does not come to rest: {:?}", self.status)
    }

    fn later(&mut self, millis: i64) {
        self.millis += millis;
    }

    /// Every pod takes what it is told.
    fn take(&mut self) {
        let status = &self.status;
        for pod in &mut self.pods {
            pod.runs = super::assigned(status, "uid", &pod.uid, &pod.workload).map(str::to_owned);
        }
    }

    fn told(&self, version: &str) -> usize {
        let told = |pod: &&Subject| super::assigned(&self.status, "uid", &pod.uid, &pod.workload) == Some(version);
        self.pods.iter().filter(told).count()
    }
}

fn pod(workload: &str, number: usize) -> Subject {
    let uid = format!("{workload}-{number}");
    Subject {
        name: uid.clone(),
        number: pod_number("uid", &uid),
        workload: workload.to_owned(),
        runs: Some("1".to_owned()),
        acknowledged: true,
        ready: true,
        was_ready: true,
        agent_away: false,
        running: true,
        node_ready: true,
        in_contact: true,
        restarts: 0,
        last_restart: None,
        failure: None,
        uid,
    }
}

fn word(step: &Step) -> &'static str {
    step.waits.as_ref().map_or("", |reason| reason.word)
}

#[test]
fn each_batch_has_been_ready_for_as_long_as_is_asked_to_the_millisecond() {
    let mut scene = Scene::new(&[("web", 3), ("api", 1)]);
    scene.rest("2");
    assert_eq!(scene.told("2"), 2, "one of each workload");
    for told in [3, 4] {
        scene.take();
        scene.rest("2");
        scene.later(9_999);
        scene.rest("2");
        assert_eq!(scene.told("2"), told - 1);
        scene.later(1);
        scene.rest("2");
        assert_eq!(scene.told("2"), told);
    }
    scene.take();
    scene.rest("2");
    scene.later(10_000);
    scene.rest("2");
    assert_eq!((scene.status.current.as_deref(), scene.status.phase), (Some("2"), Phase::Current));
    assert_eq!(scene.status.previous.as_deref(), Some("1"));
}

#[test]
fn a_version_that_no_pod_of_a_workload_takes_is_held_until_one_does() {
    let mut scene = Scene::new(&[("web", 1), ("api", 1)]);
    scene.rest("2");
    scene.take();
    scene.pods[1].runs = Some("1".to_owned());
    scene.rest("2");
    scene.later(i64::from(scene.spec.ack_timeout_seconds) * 1000);
    assert_eq!(word(&scene.rest("2")), "BeingCurrent", "the others are watched");
    scene.later(10_000);
    let held = scene.rest("2");
    assert!(held.held && word(&held) == "TooManySkipped", "{held:?}");
    let sentence = held.waits.unwrap().sentence;
    assert!(sentence.contains("no pod of api has taken version 2"), "{sentence}");
    assert_eq!(scene.status.rollout.stage, Some(RolloutStage::Moving));
    scene.take();
    scene.rest("2");
    scene.later(10_000);
    scene.rest("2");
    assert_eq!(scene.status.current.as_deref(), Some("2"));
}

#[test]
fn one_pod_that_was_sick_before_holds_nothing_up() {
    let mut scene = Scene::new(&[("web", 1)]);
    scene.pods[0].ready = false;
    scene.rest("2");
    assert_eq!(scene.status.current.as_deref(), Some("2"), "{:?}", scene.status);
}

#[test]
fn an_agent_that_ends_is_waited_for_and_a_container_that_ends_is_not() {
    let mut scene = Scene::new(&[("web", 2)]);
    scene.rest("2");
    scene.take();
    let told = scene.pods.iter().position(|pod| pod.runs.as_deref() == Some("2")).unwrap();
    (scene.pods[told].ready, scene.pods[told].agent_away) = (false, true);
    scene.later(60_000);
    assert_eq!(word(&scene.rest("2")), "BeingCurrent");
    assert_eq!(scene.told("2"), 1, "the next one is not told before this one is proven");
    (scene.pods[told].ready, scene.pods[told].agent_away) = (true, false);
    scene.pods[told].restarts = 1;
    scene.rest("2");
    assert_eq!((scene.status.phase, scene.told("1")), (Phase::RollingBack, 2));
    scene.take();
    let failed = scene.rest("2");
    assert!(failed.held && word(&failed) == "Failed", "{failed:?}");
    let failure = scene.status.rollout.failure.clone().unwrap();
    assert_eq!((failure.version.as_str(), failure.reason.as_str()), ("2", "ContainerRestarted"));
    // Any change of the spec tries it again; that one restart is known by then.
    scene.generation += 1;
    scene.rest("2");
    assert_eq!((scene.status.rollout.stage, scene.told("2")), (Some(RolloutStage::Moving), 1));
}

#[test]
fn what_is_not_wanted_any_more_is_left_before_the_next_begins() {
    let mut scene = Scene::new(&[("web", 2)]);
    scene.rest("2");
    scene.take();
    scene.rest("3");
    assert_eq!((scene.status.rollout.stage, scene.told("1")), (Some(RolloutStage::Leaving), 2));
    assert_eq!(scene.status.target.as_deref(), Some("2"), "what is left");
    scene.take();
    scene.rest("3");
    assert_eq!((scene.status.target.as_deref(), scene.told("3")), (Some("3"), 1));
}

#[test]
fn a_neighbour_and_a_pause_hold_the_beginning() {
    let mut scene = Scene::new(&[("web", 2)]);
    scene.neighbour = Some("keys");
    let waits = scene.rest("2");
    assert!(word(&waits) == "WaitingFor" && waits.again.is_some(), "{waits:?}");
    scene.neighbour = None;
    scene.spec.paused = true;
    let paused = scene.rest("2");
    assert!(word(&paused) == "Paused" && paused.held && scene.told("2") == 0, "{paused:?}");
    scene.spec.paused = false;
    scene.rest("2");
    assert_eq!(scene.told("2"), 1);
}

#[test]
fn nobody_in_time_is_a_failure() {
    let mut scene = Scene::new(&[("web", 2)]);
    scene.rest("2");
    scene.take();
    // Born while it moves, and never Ready: not sick before, and not well.
    scene.pods.iter_mut().filter(|pod| pod.runs.as_deref() == Some("2")).for_each(|pod| {
        (pod.ready, pod.was_ready) = (false, false);
    });
    scene.later(i64::from(scene.spec.progress_deadline_seconds) * 1000 - 1);
    assert_eq!(word(&scene.rest("2")), "BeingCurrent");
    scene.later(1);
    scene.rest("2");
    let failure = scene.status.rollout.failure.clone().unwrap();
    assert_eq!(failure.reason, "ProgressDeadlineExceeded");
}
