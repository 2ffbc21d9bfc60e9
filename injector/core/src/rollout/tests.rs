//! Single cases of the transition. The simulation covers the orders of events.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use nudge_api::{Batch, OnFailure, Phase, Reason, RolloutSpec, RolloutStage, VersionedConfigStatus};

use super::restart_counts::ROOM;
use super::{Effects, Observation, Restarts, Rollout, Subject, next, pod_number, to_publish, version_by_number};

pub(super) struct Scene {
    pub(super) spec: RolloutSpec,
    pub(super) status: VersionedConfigStatus,
    pub(super) pods: Vec<Subject>,
    pub(super) neighbour: Option<&'static str>,
    restart: Restarts,
    generation: i64,
    millis: i64,
}

impl Scene {
    /// Version 1 is current, and so many pods of each of these workloads run it.
    pub(super) fn new(workloads: &[(&str, usize)]) -> Self {
        let status = VersionedConfigStatus { current: Some("1".to_owned()), ..VersionedConfigStatus::default() };
        let spec = RolloutSpec {
            batch: Some(Batch::Count(1)),
            min_ready_seconds: 10,
            bake_seconds: 0,
            ..RolloutSpec::default()
        };
        let pods = workloads.iter().flat_map(|(workload, count)| (0..*count).map(move |number| pod(workload, number)));
        Self {
            spec,
            status,
            pods: pods.collect(),
            neighbour: None,
            restart: Restarts::Done,
            generation: 1,
            millis: 1_000_900,
        }
    }

    /// Makes transitions until nothing more happens at this time. What the last one asks for.
    pub(super) fn rest(&mut self, requested: &str) -> Effects {
        for _ in 0..50 {
            let now = Time(Timestamp::from_millisecond(self.millis).unwrap());
            let published = self.status.clone();
            let seen = Observation {
                spec: &self.spec,
                generation: self.generation,
                requested,
                pods: &self.pods,
                waiting_for: self.neighbour,
                published: to_publish(&published),
                current_since: None,
                restart: &self.restart,
            };
            let (rollout, effects) = next(Rollout::from_status(&self.status, &now), &seen, &now);
            let status = rollout.into_status(self.status.clone());
            // As it comes back from the API server; what is written is looked at once more.
            let same = self.status == status;
            self.status = serde_json::from_str(&serde_json::to_string(&status).unwrap()).unwrap();
            if !effects.more && same {
                return effects;
            }
        }
        panic!("it does not come to rest: {:?}", self.status)
    }

    pub(super) fn later(&mut self, millis: i64) {
        self.millis += millis;
    }

    /// Every pod takes what is assigned to it.
    pub(super) fn take(&mut self) {
        let status = &self.status;
        for pod in &mut self.pods {
            pod.runs = version_by_number(status, "uid", &pod.uid, &pod.workload).map(str::to_owned);
        }
    }

    /// The next batch gets the version, takes it, and is Ready for as long as it must.
    pub(super) fn prove_batch(&mut self, version: &str) {
        self.rest(version);
        self.take();
        self.rest(version);
        self.later(10_000);
        self.rest(version);
    }

    pub(super) fn assigned(&self, version: &str) -> usize {
        let assigned =
            |pod: &&Subject| version_by_number(&self.status, "uid", &pod.uid, &pod.workload) == Some(version);
        self.pods.iter().filter(assigned).count()
    }
}

pub(super) fn pod(workload: &str, number: usize) -> Subject {
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
        ending: false,
        running: true,
        node_ready: true,
        in_contact: true,
        restarts: 0,
        last_restart: None,
        failure: None,
        slowest_probe: None,
        uid,
    }
}

/// What the rollout waits for.
pub(super) fn reason(effects: &Effects) -> Option<Reason> {
    effects.waits_for.as_ref().map(|explanation| explanation.reason)
}

#[test]
fn each_batch_has_been_ready_for_as_long_as_is_asked_to_the_millisecond() {
    let mut scene = Scene::new(&[("web", 3), ("api", 1)]);
    scene.rest("2");
    assert_eq!(scene.assigned("2"), 2, "one of each workload");
    for assigned in [3, 4] {
        scene.take();
        scene.rest("2");
        scene.later(9_999);
        scene.rest("2");
        assert_eq!(scene.assigned("2"), assigned - 1);
        scene.later(1);
        scene.rest("2");
        assert_eq!(scene.assigned("2"), assigned);
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
    assert_eq!(reason(&scene.rest("2")), Some(Reason::Progressing), "the others are watched");
    scene.later(10_000);
    let held = scene.rest("2");
    assert!(held.held && reason(&held) == Some(Reason::TooManySkipped), "{held:?}");
    let message = held.waits_for.unwrap().message;
    assert!(message.contains("no pod of api has taken version 2"), "{message}");
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
    let held = scene.rest("2");
    assert_eq!(reason(&held), Some(Reason::NobodyToJudge), "its agent has not taken the version yet");
    scene.take();
    scene.rest("2");
    assert_eq!(scene.status.current.as_deref(), Some("2"), "{:?}", scene.status);
}

#[test]
fn an_agent_that_ends_is_waited_for_and_a_container_that_ends_is_not() {
    let mut scene = Scene::new(&[("web", 2)]);
    scene.rest("2");
    scene.take();
    let first = scene.pods.iter().position(|pod| pod.runs.as_deref() == Some("2")).unwrap();
    (scene.pods[first].ready, scene.pods[first].agent_away) = (false, true);
    scene.later(60_000);
    assert_eq!(reason(&scene.rest("2")), Some(Reason::Progressing));
    assert_eq!(scene.assigned("2"), 1, "the next one gets it after this one has proven it");
    (scene.pods[first].ready, scene.pods[first].agent_away) = (true, false);
    scene.pods[first].restarts = 1;
    scene.rest("2");
    assert_eq!((scene.status.phase, scene.assigned("1")), (Phase::RollingBack, 2));
    scene.take();
    let failed = scene.rest("2");
    assert!(failed.held && reason(&failed) == Some(Reason::Failed), "{failed:?}");
    let failure = scene.status.rollout.failure.clone().unwrap();
    assert_eq!((failure.version.as_str(), failure.reason), ("2", Reason::ContainerRestarted));
    // Any change of the spec tries it again; that one restart is known by then.
    scene.generation += 1;
    scene.rest("2");
    assert_eq!((scene.status.rollout.stage, scene.assigned("2")), (Some(RolloutStage::Moving), 1));
}

#[test]
fn a_target_that_is_not_requested_any_more_is_left_before_the_next_move_begins() {
    let mut scene = Scene::new(&[("web", 2)]);
    scene.rest("2");
    scene.take();
    scene.rest("3");
    assert_eq!((scene.status.rollout.stage, scene.assigned("1")), (Some(RolloutStage::Leaving), 2));
    assert_eq!(scene.status.target.as_deref(), Some("2"), "what is left");
    scene.take();
    scene.rest("3");
    assert_eq!((scene.status.target.as_deref(), scene.assigned("3")), (Some("3"), 1));
}

#[test]
fn a_neighbour_and_a_pause_hold_the_beginning() {
    let mut scene = Scene::new(&[("web", 2)]);
    scene.neighbour = Some("keys");
    let waits = scene.rest("2");
    assert!(reason(&waits) == Some(Reason::WaitingFor) && waits.look_again.is_some(), "{waits:?}");
    scene.neighbour = None;
    scene.spec.paused = true;
    let paused = scene.rest("2");
    assert!(reason(&paused) == Some(Reason::Paused) && paused.held && scene.assigned("2") == 0, "{paused:?}");
    scene.spec.paused = false;
    scene.rest("2");
    assert_eq!(scene.assigned("2"), 1);
}

#[test]
fn no_pod_in_time_is_a_failure() {
    let mut scene = Scene::new(&[("web", 2)]);
    scene.rest("2");
    scene.take();
    // Born while it moves, and never Ready: not sick before, and not well.
    scene.pods.iter_mut().filter(|pod| pod.runs.as_deref() == Some("2")).for_each(|pod| {
        (pod.ready, pod.was_ready) = (false, false);
    });
    scene.later(i64::from(scene.spec.progress_deadline_seconds) * 1000 - 1);
    assert_eq!(reason(&scene.rest("2")), Some(Reason::Progressing));
    scene.later(1);
    scene.rest("2");
    let failure = scene.status.rollout.failure.clone().unwrap();
    assert_eq!(failure.reason, Reason::ProgressDeadlineExceeded);
}

#[test]
fn a_pod_whose_work_is_done_is_neither_blamed_nor_waited_for() {
    let mut scene = Scene::new(&[("Job", 1), ("web", 1)]);
    scene.rest("2");
    scene.take();
    (scene.pods[0].ready, scene.pods[0].ending) = (false, true);
    scene.rest("2");
    scene.later(10_000);
    scene.rest("2");
    assert_eq!((scene.status.current.as_deref(), scene.status.phase), (Some("2"), Phase::Current));
}

#[test]
fn workloads_that_come_during_the_bake_do_not_begin_it_anew() {
    let mut scene = Scene::new(&[("web", 1)]);
    scene.spec.bake_seconds = 60;
    scene.prove_batch("2");
    assert_eq!(scene.status.rollout.stage, Some(RolloutStage::Baking));
    // One every fifteen seconds, as a CronJob or previews of changes make them.
    for number in 0..3 {
        scene.later(15_000);
        scene.pods.push(pod(&format!("preview-{number}"), 0));
        scene.rest("2");
        assert_eq!(scene.assigned("2"), scene.pods.len());
        scene.take();
        scene.rest("2");
        assert_eq!(scene.status.rollout.stage, Some(RolloutStage::Baking));
    }
    // The last one has been Ready for as long as all must be.
    scene.later(15_000);
    scene.rest("2");
    assert_eq!(scene.status.current.as_deref(), Some("2"));
}

#[test]
fn a_short_absence_is_not_overdue_because_the_bake_is_long() {
    let mut scene = Scene::new(&[("web", 1)]);
    scene.spec.bake_seconds = 3600;
    scene.prove_batch("2");
    scene.later(1_200_000);
    (scene.pods[0].ready, scene.pods[0].agent_away) = (false, true);
    assert_eq!(reason(&scene.rest("2")), Some(Reason::Progressing));
    scene.later(2_000);
    (scene.pods[0].ready, scene.pods[0].agent_away) = (true, false);
    assert_eq!(reason(&scene.rest("2")), Some(Reason::Progressing), "watched again for a while");
    scene.later(10_000);
    assert_eq!(reason(&scene.rest("2")), Some(Reason::Baking));
    assert_eq!(scene.status.rollout.failure, None);
}

#[test]
fn a_long_pause_is_not_held_against_the_pods_of_the_last_batch() {
    let mut scene = Scene::new(&[("web", 2)]);
    scene.rest("2");
    scene.spec.paused = true;
    assert_eq!(reason(&scene.rest("2")), Some(Reason::Paused));
    scene.later(i64::from(scene.spec.progress_deadline_seconds) * 2000);
    scene.spec.paused = false;
    let waits = scene.rest("2");
    assert_eq!((reason(&waits), scene.assigned("2")), (Some(Reason::Progressing), 1), "{:?}", scene.status);
}

#[test]
fn on_failure_pause_stands_still_whatever_the_pod_does_next_until_the_spec_changes() {
    let mut scene = Scene::new(&[("web", 2)]);
    scene.spec.on_failure = OnFailure::Pause;
    scene.rest("2");
    scene.take();
    let first = scene.pods.iter().position(|pod| pod.runs.as_deref() == Some("2")).unwrap();
    scene.pods[first].ready = false;
    let held = scene.rest("2");
    assert!(held.held && reason(&held) == Some(Reason::Failed), "{held:?}");
    scene.pods[first].ready = true;
    scene.later(60_000);
    let held = scene.rest("2");
    assert!(held.held && reason(&held) == Some(Reason::Failed) && scene.assigned("2") == 1, "{held:?}");
    scene.generation += 1;
    scene.rest("2");
    scene.later(10_000);
    scene.rest("2");
    assert_eq!(scene.assigned("2"), 2);
}

#[test]
fn nothing_is_published_that_no_pod_of_a_workload_proves_in_the_bake() {
    let mut scene = Scene::new(&[("web", 3)]);
    scene.spec.batch = Some(Batch::Count(3));
    scene.spec.bake_seconds = 60;
    scene.prove_batch("2");
    assert_eq!(scene.status.rollout.stage, Some(RolloutStage::Baking));
    // All are replaced, more than a batch of them, and none of the new ones starts.
    scene.spec.batch = Some(Batch::Count(1));
    scene.pods = (10..13)
        .map(|number| Subject { running: false, ready: false, was_ready: false, ..pod("web", number) })
        .collect();
    scene.later(60_000);
    let held = scene.rest("2");
    assert!(held.held && reason(&held) == Some(Reason::NobodyToJudge), "{held:?}");
    assert_eq!(scene.status.current.as_deref(), Some("1"));
}

#[test]
fn a_node_that_comes_back_while_workloads_restart_is_no_reason_to_go_back() {
    let mut scene = Scene::new(&[("web", 1)]);
    scene.restart = Restarts::Busy("Deployment/api is on its way".to_owned());
    scene.rest("2");
    scene.take();
    scene.rest("2");
    scene.later(10_000);
    assert_eq!(reason(&scene.rest("2")), Some(Reason::Restarting));
    (scene.pods[0].node_ready, scene.pods[0].ready) = (false, false);
    scene.rest("2");
    // The node is seen before its pods are, and they were all started anew.
    scene.pods[0].node_ready = true;
    scene.pods[0].restarts = 1;
    scene.pods[0].last_restart = Some(scene.millis / 1000);
    scene.rest("2");
    scene.pods[0].ready = true;
    scene.restart = Restarts::Done;
    scene.rest("2");
    assert_eq!((scene.status.current.as_deref(), scene.status.phase), (Some("2"), Phase::Current));
}

#[test]
fn pods_that_restarted_before_are_looked_at_again_when_that_is_long_ago() {
    let mut scene = Scene::new(&[("web", 2)]);
    for pod in &mut scene.pods {
        pod.last_restart = Some(scene.millis / 1000 - 100);
    }
    scene.spec.batch = Some(Batch::Count(1));
    scene.rest("2");
    scene.take();
    let held = scene.rest("2");
    assert!(held.held && reason(&held) == Some(Reason::NobodyToJudge), "{held:?}");
    assert_eq!(held.look_again.map(|time| time.0.as_second()), Some(1_000 - 100 + 600));
    scene.later(500_000);
    scene.prove_batch("2");
    scene.prove_batch("2");
    assert_eq!(scene.status.current.as_deref(), Some("2"));
}

/// All have restarted once, long ago, and get the version in batches of ten.
fn veterans(count: usize) -> Scene {
    let mut scene = Scene::new(&[("web", count)]);
    scene.spec.batch = Some(Batch::Count(10));
    for (number, pod) in scene.pods.iter_mut().enumerate() {
        (pod.restarts, pod.last_restart) = (1, Some(scene.millis / 1000 - 700 - i64::try_from(number).unwrap()));
    }
    scene
}

#[test]
fn very_many_pods_that_restarted_long_ago_are_not_blamed_and_the_status_stays_small() {
    let mut scene = veterans(100);
    for _ in 0..10 {
        scene.prove_batch("2");
        let rollout = &scene.status.rollout;
        assert!(rollout.restarts.len() <= ROOM && rollout.skipped.is_empty(), "{rollout:?}");
        assert_eq!(rollout.failure, None);
    }
    scene.rest("2");
    assert_eq!((scene.status.current.as_deref(), scene.status.phase), (Some("2"), Phase::Current));
    assert_eq!((scene.status.rollout.restarts.len(), &scene.status.rollout.restarts_counted_since), (0, &None));
}

#[test]
fn among_very_many_pods_each_that_restarts_after_the_assignment_is_blamed() {
    for batches in 1..=4 {
        for which in 0..batches * 10 {
            let mut scene = veterans(50);
            for _ in 1..batches {
                scene.prove_batch("2");
            }
            scene.rest("2");
            scene.take();
            scene.later(1_000);
            assert_eq!(scene.assigned("2"), batches * 10);
            scene.pods.sort_by_key(|pod| pod.number);
            scene.pods[which].restarts += 1;
            scene.pods[which].last_restart = Some(scene.millis / 1000);
            scene.rest("2");
            let failure = scene.status.rollout.failure.clone().unwrap();
            assert_eq!(failure.reason, Reason::ContainerRestarted, "pod {which} after {batches} batches");
            assert_eq!(scene.assigned("2"), 0);
        }
    }
}

#[test]
fn of_very_many_silent_pods_the_status_keeps_no_list() {
    let mut scene = Scene::new(&[("web", 2100)]);
    scene.spec.batch = Some(Batch::Share("100%".to_owned()));
    scene.rest("2");
    scene.later(i64::from(scene.spec.ack_timeout_seconds) * 1000);
    let held = scene.rest("2");
    assert!(held.held && reason(&held) == Some(Reason::TooManySkipped), "{held:?}");
    assert!(scene.status.rollout.skipped.is_empty());
    scene.take();
    scene.rest("2");
    scene.later(10_000);
    scene.rest("2");
    assert_eq!(scene.status.current.as_deref(), Some("2"));
}
