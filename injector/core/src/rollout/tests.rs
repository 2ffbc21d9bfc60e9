//! Single cases of the transition. The simulation covers the orders of events.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use nudge_api::{Batch, OnFailure, Phase, Reason, RolloutSpec, RolloutStage, VersionedConfigStatus};

use super::restart_counts::ROOM;
use super::{Effects, Observation, Restarts, Rollout, Subject, next, pod_number, to_publish, version_by_number};
use crate::identity::Identity;

/// A rollout that a test moves by hand, and its clock.
pub(super) struct TestRollout {
    pub(super) spec: RolloutSpec,
    pub(super) status: VersionedConfigStatus,
    pub(super) pods: Vec<Subject>,
    pub(super) neighbour: Option<&'static str>,
    restart: Restarts,
    generation: i64,
    millis: i64,
}

impl TestRollout {
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
            pod.runs = version_by_number(status, Identity::of_uid("uid"), &pod.uid, &pod.workload).map(str::to_owned);
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
        let assigned = |pod: &&Subject| {
            version_by_number(&self.status, Identity::of_uid("uid"), &pod.uid, &pod.workload) == Some(version)
        };
        self.pods.iter().filter(assigned).count()
    }
}

pub(super) fn pod(workload: &str, number: usize) -> Subject {
    let uid = format!("{workload}-{number}");
    Subject {
        name: uid.clone(),
        number: pod_number(Identity::of_uid("uid"), &uid),
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
    let mut rollout = TestRollout::new(&[("web", 3), ("api", 1)]);
    rollout.rest("2");
    assert_eq!(rollout.assigned("2"), 2, "one of each workload");
    for assigned in [3, 4] {
        rollout.take();
        rollout.rest("2");
        rollout.later(9_999);
        rollout.rest("2");
        assert_eq!(rollout.assigned("2"), assigned - 1);
        rollout.later(1);
        rollout.rest("2");
        assert_eq!(rollout.assigned("2"), assigned);
    }
    rollout.take();
    rollout.rest("2");
    rollout.later(10_000);
    rollout.rest("2");
    assert_eq!((rollout.status.current.as_deref(), rollout.status.phase), (Some("2"), Phase::Current));
    assert_eq!(rollout.status.previous.as_deref(), Some("1"));
}

#[test]
fn a_version_that_no_pod_of_a_workload_takes_is_held_until_one_does() {
    let mut rollout = TestRollout::new(&[("web", 1), ("api", 1)]);
    rollout.rest("2");
    rollout.take();
    rollout.pods[1].runs = Some("1".to_owned());
    rollout.rest("2");
    rollout.later(i64::from(rollout.spec.ack_timeout_seconds) * 1000);
    assert_eq!(reason(&rollout.rest("2")), Some(Reason::Progressing), "the others are watched");
    rollout.later(10_000);
    let held = rollout.rest("2");
    assert!(held.held && reason(&held) == Some(Reason::TooManySkipped), "{held:?}");
    let message = held.waits_for.unwrap().message;
    assert!(message.contains("no pod of api has taken version 2"), "{message}");
    assert_eq!(rollout.status.rollout.stage, Some(RolloutStage::Moving));
    rollout.take();
    rollout.rest("2");
    rollout.later(10_000);
    rollout.rest("2");
    assert_eq!(rollout.status.current.as_deref(), Some("2"));
}

#[test]
fn one_pod_that_was_sick_before_holds_nothing_up() {
    let mut rollout = TestRollout::new(&[("web", 1)]);
    rollout.pods[0].ready = false;
    let held = rollout.rest("2");
    assert_eq!(reason(&held), Some(Reason::NobodyToJudge), "its agent has not taken the version yet");
    rollout.take();
    rollout.rest("2");
    assert_eq!(rollout.status.current.as_deref(), Some("2"), "{:?}", rollout.status);
}

#[test]
fn an_agent_that_ends_is_waited_for_and_a_container_that_ends_is_not() {
    let mut rollout = TestRollout::new(&[("web", 2)]);
    rollout.rest("2");
    rollout.take();
    let first = rollout.pods.iter().position(|pod| pod.runs.as_deref() == Some("2")).unwrap();
    (rollout.pods[first].ready, rollout.pods[first].agent_away) = (false, true);
    rollout.later(60_000);
    assert_eq!(reason(&rollout.rest("2")), Some(Reason::Progressing));
    assert_eq!(rollout.assigned("2"), 1, "the next one gets it after this one has proven it");
    (rollout.pods[first].ready, rollout.pods[first].agent_away) = (true, false);
    rollout.pods[first].restarts = 1;
    rollout.rest("2");
    assert_eq!((rollout.status.phase, rollout.assigned("1")), (Phase::RollingBack, 2));
    rollout.take();
    let failed = rollout.rest("2");
    assert!(failed.held && reason(&failed) == Some(Reason::Failed), "{failed:?}");
    let failure = rollout.status.rollout.failure.clone().unwrap();
    assert_eq!((failure.version.as_str(), failure.reason), ("2", Reason::ContainerRestarted));
    // Any change of the spec tries it again; that one restart is known by then.
    rollout.generation += 1;
    rollout.rest("2");
    assert_eq!((rollout.status.rollout.stage, rollout.assigned("2")), (Some(RolloutStage::Moving), 1));
}

#[test]
fn a_target_that_is_not_requested_any_more_is_left_before_the_next_move_begins() {
    let mut rollout = TestRollout::new(&[("web", 2)]);
    rollout.rest("2");
    rollout.take();
    rollout.rest("3");
    assert_eq!((rollout.status.rollout.stage, rollout.assigned("1")), (Some(RolloutStage::Leaving), 2));
    assert_eq!(rollout.status.target.as_deref(), Some("2"), "what is left");
    rollout.take();
    rollout.rest("3");
    assert_eq!((rollout.status.target.as_deref(), rollout.assigned("3")), (Some("3"), 1));
}

#[test]
fn a_neighbour_and_a_pause_hold_the_beginning() {
    let mut rollout = TestRollout::new(&[("web", 2)]);
    rollout.neighbour = Some("keys");
    let waits = rollout.rest("2");
    assert!(reason(&waits) == Some(Reason::WaitingFor) && waits.look_again.is_some(), "{waits:?}");
    rollout.neighbour = None;
    rollout.spec.paused = true;
    let paused = rollout.rest("2");
    assert!(reason(&paused) == Some(Reason::Paused) && paused.held && rollout.assigned("2") == 0, "{paused:?}");
    rollout.spec.paused = false;
    rollout.rest("2");
    assert_eq!(rollout.assigned("2"), 1);
}

#[test]
fn no_pod_in_time_is_a_failure() {
    let mut rollout = TestRollout::new(&[("web", 2)]);
    rollout.rest("2");
    rollout.take();
    // Born while it moves, and never Ready: not sick before, and not well.
    rollout.pods.iter_mut().filter(|pod| pod.runs.as_deref() == Some("2")).for_each(|pod| {
        (pod.ready, pod.was_ready) = (false, false);
    });
    rollout.later(i64::from(rollout.spec.progress_deadline_seconds) * 1000 - 1);
    assert_eq!(reason(&rollout.rest("2")), Some(Reason::Progressing));
    rollout.later(1);
    rollout.rest("2");
    let failure = rollout.status.rollout.failure.clone().unwrap();
    assert_eq!(failure.reason, Reason::ProgressDeadlineExceeded);
}

#[test]
fn a_pod_whose_work_is_done_is_neither_blamed_nor_waited_for() {
    let mut rollout = TestRollout::new(&[("Job", 1), ("web", 1)]);
    rollout.rest("2");
    rollout.take();
    (rollout.pods[0].ready, rollout.pods[0].ending) = (false, true);
    rollout.rest("2");
    rollout.later(10_000);
    rollout.rest("2");
    assert_eq!((rollout.status.current.as_deref(), rollout.status.phase), (Some("2"), Phase::Current));
}

#[test]
fn workloads_that_come_during_the_bake_do_not_begin_it_anew() {
    let mut rollout = TestRollout::new(&[("web", 1)]);
    rollout.spec.bake_seconds = 60;
    rollout.prove_batch("2");
    assert_eq!(rollout.status.rollout.stage, Some(RolloutStage::Baking));
    // One every fifteen seconds, as a CronJob or previews of changes make them.
    for number in 0..3 {
        rollout.later(15_000);
        rollout.pods.push(pod(&format!("preview-{number}"), 0));
        rollout.rest("2");
        assert_eq!(rollout.assigned("2"), rollout.pods.len());
        rollout.take();
        rollout.rest("2");
        assert_eq!(rollout.status.rollout.stage, Some(RolloutStage::Baking));
    }
    // The last one has been Ready for as long as all must be.
    rollout.later(15_000);
    rollout.rest("2");
    assert_eq!(rollout.status.current.as_deref(), Some("2"));
}

#[test]
fn a_short_absence_is_not_overdue_because_the_bake_is_long() {
    let mut rollout = TestRollout::new(&[("web", 1)]);
    rollout.spec.bake_seconds = 3600;
    rollout.prove_batch("2");
    rollout.later(1_200_000);
    (rollout.pods[0].ready, rollout.pods[0].agent_away) = (false, true);
    assert_eq!(reason(&rollout.rest("2")), Some(Reason::Progressing));
    rollout.later(2_000);
    (rollout.pods[0].ready, rollout.pods[0].agent_away) = (true, false);
    assert_eq!(reason(&rollout.rest("2")), Some(Reason::Progressing), "watched again for a while");
    rollout.later(10_000);
    assert_eq!(reason(&rollout.rest("2")), Some(Reason::Baking));
    assert_eq!(rollout.status.rollout.failure, None);
}

#[test]
fn a_long_pause_is_not_held_against_the_pods_of_the_last_batch() {
    let mut rollout = TestRollout::new(&[("web", 2)]);
    rollout.rest("2");
    rollout.spec.paused = true;
    assert_eq!(reason(&rollout.rest("2")), Some(Reason::Paused));
    rollout.later(i64::from(rollout.spec.progress_deadline_seconds) * 2000);
    rollout.spec.paused = false;
    let waits = rollout.rest("2");
    assert_eq!((reason(&waits), rollout.assigned("2")), (Some(Reason::Progressing), 1), "{:?}", rollout.status);
}

#[test]
fn on_failure_pause_stands_still_whatever_the_pod_does_next_until_the_spec_changes() {
    let mut rollout = TestRollout::new(&[("web", 2)]);
    rollout.spec.on_failure = OnFailure::Pause;
    rollout.rest("2");
    rollout.take();
    let first = rollout.pods.iter().position(|pod| pod.runs.as_deref() == Some("2")).unwrap();
    rollout.pods[first].ready = false;
    let held = rollout.rest("2");
    assert!(held.held && reason(&held) == Some(Reason::Failed), "{held:?}");
    rollout.pods[first].ready = true;
    rollout.later(60_000);
    let held = rollout.rest("2");
    assert!(held.held && reason(&held) == Some(Reason::Failed) && rollout.assigned("2") == 1, "{held:?}");
    rollout.generation += 1;
    rollout.rest("2");
    rollout.later(10_000);
    rollout.rest("2");
    assert_eq!(rollout.assigned("2"), 2);
}

#[test]
fn nothing_is_published_that_no_pod_of_a_workload_proves_in_the_bake() {
    let mut rollout = TestRollout::new(&[("web", 3)]);
    rollout.spec.batch = Some(Batch::Count(3));
    rollout.spec.bake_seconds = 60;
    rollout.prove_batch("2");
    assert_eq!(rollout.status.rollout.stage, Some(RolloutStage::Baking));
    // All are replaced, more than a batch of them, and none of the new ones starts.
    rollout.spec.batch = Some(Batch::Count(1));
    rollout.pods = (10..13)
        .map(|number| Subject { running: false, ready: false, was_ready: false, ..pod("web", number) })
        .collect();
    rollout.later(60_000);
    let held = rollout.rest("2");
    assert!(held.held && reason(&held) == Some(Reason::NobodyToJudge), "{held:?}");
    assert_eq!(rollout.status.current.as_deref(), Some("1"));
}

#[test]
fn a_node_that_comes_back_while_workloads_restart_is_no_reason_to_go_back() {
    let mut rollout = TestRollout::new(&[("web", 1)]);
    rollout.restart = Restarts::Busy("Deployment/api is on its way".to_owned());
    rollout.rest("2");
    rollout.take();
    rollout.rest("2");
    rollout.later(10_000);
    assert_eq!(reason(&rollout.rest("2")), Some(Reason::Restarting));
    (rollout.pods[0].node_ready, rollout.pods[0].ready) = (false, false);
    rollout.rest("2");
    // The node is seen before its pods are, and they were all started anew.
    rollout.pods[0].node_ready = true;
    rollout.pods[0].restarts = 1;
    rollout.pods[0].last_restart = Some(rollout.millis / 1000);
    rollout.rest("2");
    rollout.pods[0].ready = true;
    rollout.restart = Restarts::Done;
    rollout.rest("2");
    assert_eq!((rollout.status.current.as_deref(), rollout.status.phase), (Some("2"), Phase::Current));
}

#[test]
fn pods_that_restarted_before_are_looked_at_again_when_that_is_long_ago() {
    let mut rollout = TestRollout::new(&[("web", 2)]);
    for pod in &mut rollout.pods {
        pod.last_restart = Some(rollout.millis / 1000 - 100);
    }
    rollout.spec.batch = Some(Batch::Count(1));
    rollout.rest("2");
    rollout.take();
    let held = rollout.rest("2");
    assert!(held.held && reason(&held) == Some(Reason::NobodyToJudge), "{held:?}");
    assert_eq!(held.look_again.map(|time| time.0.as_second()), Some(1_000 - 100 + 600));
    rollout.later(500_000);
    rollout.prove_batch("2");
    rollout.prove_batch("2");
    assert_eq!(rollout.status.current.as_deref(), Some("2"));
}

/// All have restarted once, long ago, and get the version in batches of ten.
fn veterans(count: usize) -> TestRollout {
    let mut rollout = TestRollout::new(&[("web", count)]);
    rollout.spec.batch = Some(Batch::Count(10));
    for (number, pod) in rollout.pods.iter_mut().enumerate() {
        (pod.restarts, pod.last_restart) = (1, Some(rollout.millis / 1000 - 700 - i64::try_from(number).unwrap()));
    }
    rollout
}

#[test]
fn very_many_pods_that_restarted_long_ago_are_not_blamed_and_the_status_stays_small() {
    let mut rollout = veterans(100);
    for _ in 0..10 {
        rollout.prove_batch("2");
        let stored = &rollout.status.rollout;
        assert!(stored.restarts.len() <= ROOM && stored.skipped.is_empty(), "{stored:?}");
        assert_eq!(stored.failure, None);
    }
    rollout.rest("2");
    assert_eq!((rollout.status.current.as_deref(), rollout.status.phase), (Some("2"), Phase::Current));
    assert_eq!((rollout.status.rollout.restarts.len(), &rollout.status.rollout.restarts_counted_since), (0, &None));
}

#[test]
fn among_very_many_pods_each_that_restarts_after_the_assignment_is_blamed() {
    for batches in 1..=4 {
        for which in 0..batches * 10 {
            let mut rollout = veterans(50);
            for _ in 1..batches {
                rollout.prove_batch("2");
            }
            rollout.rest("2");
            rollout.take();
            rollout.later(1_000);
            assert_eq!(rollout.assigned("2"), batches * 10);
            rollout.pods.sort_by_key(|pod| pod.number);
            rollout.pods[which].restarts += 1;
            rollout.pods[which].last_restart = Some(rollout.millis / 1000);
            rollout.rest("2");
            let failure = rollout.status.rollout.failure.clone().unwrap();
            assert_eq!(failure.reason, Reason::ContainerRestarted, "pod {which} after {batches} batches");
            assert_eq!(rollout.assigned("2"), 0);
        }
    }
}

#[test]
fn of_very_many_silent_pods_the_status_keeps_no_list() {
    let mut rollout = TestRollout::new(&[("web", 2100)]);
    rollout.spec.batch = Some(Batch::Share("100%".to_owned()));
    rollout.rest("2");
    rollout.later(i64::from(rollout.spec.ack_timeout_seconds) * 1000);
    let held = rollout.rest("2");
    assert!(held.held && reason(&held) == Some(Reason::TooManySkipped), "{held:?}");
    assert!(rollout.status.rollout.skipped.is_empty());
    rollout.take();
    rollout.rest("2");
    rollout.later(10_000);
    rollout.rest("2");
    assert_eq!(rollout.status.current.as_deref(), Some("2"));
}
