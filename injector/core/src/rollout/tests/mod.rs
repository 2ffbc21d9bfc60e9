//! Rollouts over time: fixtures, single cases of the transition, and tests by concept.

mod calls;
mod edited;
mod fault;
mod gate;
mod handover;
mod held;
mod hub_away;
mod in_place;
mod invariant;
mod memory;
mod refusal;
mod release;
mod rollout_analysis;
mod rollout_analysis_simulation;
mod scene;
mod thresholds;
mod unchanged;
mod verdict;
mod window;

use std::collections::{BTreeMap, HashMap};
use std::ops::DerefMut;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::PodSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use nudge_api::{
    BackgroundStatus, ConditionType, ConfigState, Explanation, OnFailure, Pods, Reason, RolloutAnalysisStatus,
    RolloutSpec, RolloutStage, Step, VersionedConfigStatus, condition, set_condition,
};
use nudge_protocol::ContainerName;
use nudge_protocol::hub::PodContainer;
use serde_json::json;

use self::invariant::check;
use super::assignment::assigned_version::version_of_place;
use super::{
    Acknowledgement, ClosedGate, Confirmation, Continuation, Effects, Evidence, Millis, Neighbours, Now, Observation,
    PublishAttempt, PublishFailure, Restarts, Rollout, RolloutChange, SteadyTime, Subject, next, pod_number,
    record_release, version_to_publish,
};
use crate::event_record::EventRecord;
use crate::hub_health::HubAway;
use crate::identity::Identity;
use crate::keys::PodUid;
use crate::pods::{PodPhase, PodState, ProbeTimes, Readiness, RestartSums};
use crate::requester::{Requester, Requesters};

/// A rollout that a test moves by hand, and its clock.
pub(super) struct TestRollout {
    pub(super) spec: RolloutSpec,
    pub(super) status: VersionedConfigStatus,
    pub(super) pods: Vec<Subject>,
    pub(super) neighbour: Option<&'static str>,
    pub(super) closed_gate: Option<ClosedGate>,
    pub(super) measured: Option<RolloutAnalysisStatus>,
    pub(super) neighbours: HashMap<String, Neighbours>,
    pub(super) evidence: Evidence,
    pub(super) background: Option<BackgroundStatus>,
    pub(super) restart: Restarts,
    pub(super) report_wait: Millis,
    pub(super) hub_away: Option<HubAway>,
    pub(super) override_reason: Option<&'static str>,
    pub(super) requesters: Requesters,
    /// Why the version can't be published.
    pub(super) unpublished: Option<Explanation>,
    /// Nodes can't be read.
    pub(super) nodes_unread: bool,
    pub(super) generation: i64,
    pub(super) events: Vec<EventRecord>,
    pub(super) suspect: Option<String>,
    /// Transitions of one observation continue with the state in memory, not with the stored status.
    pub(super) in_memory: bool,
    pub(super) millis: i64,
}

/// Somebody holds the config.
pub(super) fn on_hold() -> ClosedGate {
    ClosedGate {
        why: Reason::OnHold.explained("the config is on hold"),
        recheck_at: None,
        ends_at: None,
        keeps_message: false,
    }
}

/// The condition Ready.
fn ready(status: bool, reason: Reason, now: &Time) -> Condition {
    condition(ConditionType::Ready, status, reason, "", None, now)
}

/// Returns the status with the condition Ready of this state: the state is read from both.
fn with_ready(mut status: VersionedConfigStatus, rollout: &Rollout, now: &Time) -> VersionedConfigStatus {
    let condition = match rollout {
        Rollout::Current(_) => ready(true, Reason::Current, now),
        Rollout::Failed { .. } => ready(false, Reason::Failed, now),
        _ => ready(false, Reason::Progressing, now),
    };
    set_condition(&mut status.conditions, condition);
    status
}

impl TestRollout {
    /// Version 1 is current, each of these workloads has the given number of pods that run it, and all settings are at
    /// their defaults: each pod has a readiness probe.
    pub(super) fn new(workloads: &[(&str, usize)]) -> Self {
        let status = VersionedConfigStatus {
            current_version: Some("1".to_owned()),
            conditions: vec![ready(true, Reason::Current, &Time(Timestamp::UNIX_EPOCH))],
            ..VersionedConfigStatus::default()
        };
        let pods = workloads.iter().flat_map(|(workload, count)| (0..*count).map(move |number| pod(workload, number)));
        Self {
            spec: RolloutSpec::default(),
            status,
            pods: pods.collect(),
            neighbour: None,
            closed_gate: None,
            measured: None,
            neighbours: HashMap::new(),
            evidence: Evidence::default(),
            background: None,
            restart: Restarts::Done,
            report_wait: 0,
            hub_away: None,
            override_reason: None,
            requesters: Requesters::default(),
            unpublished: None,
            nodes_unread: false,
            generation: 1,
            events: Vec::new(),
            suspect: None,
            in_memory: false,
            millis: 1_000_000_900,
        }
    }

    /// Somebody requests another attempt.
    pub(super) fn retry(&mut self) {
        let at = Timestamp::from_millisecond(self.millis).unwrap();
        self.requesters.retry = Some(Requester::new("joe", at));
    }

    /// Makes transitions until nothing more happens at this time. Returns the effects of the last transition.
    pub(super) fn rest(&mut self, requested: &str) -> Effects {
        let mut memory = None;
        for _ in 0..50 {
            let time = Time(Timestamp::from_millisecond(self.millis).unwrap());
            let now = Now { time: &time, steady: SteadyTime(self.millis) };
            let settled = version_to_publish(&self.status).map(PublishAttempt::settled);
            let failure = self.unpublished.clone().map(|why| PublishFailure { at: now.steady, why });
            let published = settled.map(|attempt| PublishAttempt { failure, ..attempt });
            if self.nodes_unread {
                self.evidence.blind_to_nodes();
            }
            let seen = Observation {
                now,
                spec: &self.spec,
                generation: self.generation,
                requested,
                spec_version: Some(requested),
                digest: "sha256:0",
                follows_text: false,
                text_managers: &[],
                override_reason: self.override_reason,
                requesters: &self.requesters,
                pods: &self.pods,
                neighbours: &self.neighbours,
                background: self.background.as_ref(),
                waiting_for: self.neighbour,
                approvals: &[],
                closed_gate: self.closed_gate.as_ref(),
                measured: self.measured.as_ref(),
                has_objects: true,
                publish_attempt: published.as_ref(),
                current_since: None,
                restart: &self.restart,
                report_wait: self.report_wait,
                hub_away: self.hub_away,
            };
            let rollout = memory.take().unwrap_or_else(|| Rollout::from_status(&self.status, &time));
            let from = rollout.clone();
            let (rollout, mut effects) = next(rollout, &mut self.evidence, &seen);
            let releases = record_release(
                self.status.releases.clone(),
                RolloutChange { before: &from, after: &rollout },
                &effects,
                &seen,
            );
            self.background = self.evidence.background(self.background.clone(), now);
            let status = rollout.clone().into_status(VersionedConfigStatus { releases, ..self.status.clone() });
            let status = with_ready(status, &rollout, &time);
            check(self, &self.status, &status);
            memory = self.in_memory.then_some(rollout);
            // The status as it comes back from the API server: after a write, the leader observes once more.
            let before = self.status.clone();
            if before != status {
                self.status = serde_json::from_str(&serde_json::to_string(&status).unwrap()).unwrap();
            }
            let same = self.status == before;
            self.events.extend(effects.event.take());
            self.suspect = effects.suspicion.take().or(self.suspect.take());
            if effects.continuation != Continuation::AtOnce && same {
                return effects;
            }
        }
        panic!("it does not come to rest: {:?}", self.status)
    }

    /// Observes every second, and whenever a transition requests it. Returns the effects of the last observation.
    pub(super) fn watch(&mut self, requested: &str, seconds: i64) -> Effects {
        let end = self.millis + seconds * 1000;
        loop {
            let effects = self.rest(requested);
            if self.millis >= end {
                return effects;
            }
            let next = effects.reconcile_at.map_or(i64::MAX, |at| at.0).max(self.millis + 1);
            self.millis = next.min(self.millis + 1000).min(end);
        }
    }

    pub(super) fn later(&mut self, seconds: i64) {
        self.millis += seconds * 1000;
    }

    /// The version that is assigned to each pod.
    pub(super) fn versions(&self) -> Vec<Option<String>> {
        self.pods.iter().map(|pod| self.version_of(pod).map(str::to_owned)).collect()
    }

    pub(super) fn version_of(&self, pod: &Subject) -> Option<&str> {
        version_of_place(&self.status, pod.place())
    }

    /// Every pod takes its assigned version.
    pub(super) fn take(&mut self) {
        for (version, pod) in self.versions().into_iter().zip(&mut self.pods) {
            pod.runs = version;
        }
    }

    pub(super) fn assigned(&self, version: &str) -> usize {
        self.versions().iter().filter(|assigned| assigned.as_deref() == Some(version)).count()
    }

    /// The pods that the version is assigned to.
    pub(super) fn with<'a>(&'a mut self, version: &str) -> Vec<&'a mut Subject> {
        let versions = self.versions();
        let pods = self.pods.iter_mut().zip(versions);
        pods.filter(|(_, assigned)| assigned.as_deref() == Some(version)).map(|(pod, _)| pod).collect()
    }

    /// All pods take the next steps and stay well. How many pods have the version after each.
    pub(super) fn walk(&mut self, version: &str) -> Vec<usize> {
        let mut counts = Vec::new();
        for _ in 0..2000 {
            self.watch(version, 1);
            self.take();
            let count = self.assigned(version);
            if counts.last() != Some(&count) {
                counts.push(count);
            }
            if self.status.current_version.as_deref() == Some(version) {
                break;
            }
        }
        counts
    }
}

pub(super) fn pod(workload: &str, number: usize) -> Subject {
    let uid = format!("{workload}-{number}");
    let spec: PodSpec = serde_json::from_value(json!({"containers": [{"name": "app", "readinessProbe": {}}]})).unwrap();
    let container = PodContainer { name: ContainerName::new("app").unwrap(), id: String::new(), ended: false };
    let state = PodState {
        name: uid.clone(),
        uid: PodUid::new(&uid).unwrap(),
        workload: Some(workload.into()),
        template: Some("a".to_owned()),
        node: Some(format!("node-{number}")),
        readiness: Readiness::Ready,
        containers_ready: true,
        containers: vec![container],
        phase: PodPhase::Running,
        probes: ProbeTimes { start_time: Duration::from_mins(5), ..ProbeTimes::of(&spec) },
        ..PodState::default()
    };
    Subject {
        pod: Arc::new(state),
        number: pod_number(Identity::of_uid("uid"), &PodUid::new(&uid).unwrap()),
        node_ready: true,
        runs: Some("1".to_owned()),
        acknowledgement: Acknowledgement::Taken,
        in_contact: true,
        failure: None,
        is_unverified: false,
        confirmation: Confirmation::default(),
    }
}

impl DerefMut for Subject {
    fn deref_mut(&mut self) -> &mut PodState {
        Arc::make_mut(&mut self.pod)
    }
}

impl Subject {
    /// The pod's probe begins to fail now.
    pub(super) fn fall(&mut self) {
        self.containers_ready = false;
        self.lose_readiness(0);
    }

    pub(super) fn recover(&mut self) {
        (self.readiness, self.containers_ready) = (Readiness::Ready, true);
    }

    /// The pod, if Ready, stops being Ready at this second.
    pub(super) fn lose_readiness(&mut self, since: i64) {
        if self.was_ready() {
            self.readiness = Readiness::Lost { since };
        }
    }

    /// One of its containers has done its work, or has not.
    pub(super) fn end(&mut self, ended: bool) {
        self.containers.iter_mut().for_each(|container| container.ended = ended);
    }

    /// The pod crashes, and is started again.
    pub(super) fn crash(&mut self, millis: i64) {
        self.change_restarts(|sums| (sums.crashes, sums.last_crash) = (sums.crashes + 1, Some(millis / 1000)));
    }

    pub(super) fn change_restarts<T>(&mut self, change: impl FnOnce(&mut RestartSums) -> T) {
        let mut sums = self.restarts.sums();
        change(&mut sums);
        self.restarts = sums.into();
    }
}

/// Returns the reason why the rollout waits.
pub(super) fn reason(effects: &Effects) -> Option<Reason> {
    effects.continuation.explanation().map(|explanation| explanation.reason)
}

/// Why the version failed.
pub(super) fn failure(rollout: &TestRollout) -> Option<(Reason, String)> {
    rollout.status.rollout.failure.as_ref().map(|failure| (failure.reason, failure.message.clone()))
}

pub(super) fn steps(steps: &[&str]) -> Vec<Step> {
    let pods = |text: &&str| text.parse().map_or_else(|_| Pods::Share((*text).to_owned()), Pods::Count);
    steps.iter().map(|text| Step::of(pods(text))).collect()
}

#[test]
fn by_default_one_pod_comes_first_then_a_quarter_half_and_all() {
    for (workloads, counts) in [
        (vec![("web", 8)], vec![1, 2, 4, 8]),
        (vec![("web", 8), ("api", 8)], vec![1, 4, 8, 16]),
        (vec![("web", 1)], vec![1]),
        (vec![("web", 3)], vec![1, 2, 3]),
        (vec![("web", 40), ("api", 60)], vec![1, 25, 50, 100]),
    ] {
        let mut rollout = TestRollout::new(&workloads);
        rollout.rest("1");
        assert_eq!(rollout.walk("2"), counts, "{workloads:?}");
        let status = &rollout.status;
        assert_eq!((status.current_version.as_deref(), status.previous_version.as_deref()), (Some("2"), Some("1")));
    }
}

#[test]
fn a_step_is_a_share_of_the_config_also_where_each_workload_has_one_pod() {
    let names: Vec<String> = (0..200).map(|number| format!("shop-{number}")).collect();
    let workloads: Vec<(&str, usize)> = names.iter().map(|name| (name.as_str(), 1)).collect();
    let mut rollout = TestRollout::new(&workloads);
    assert_eq!(rollout.walk("2"), [1, 50, 100, 200]);
}

#[test]
fn large_workloads_have_their_share_of_each_step() {
    let mut rollout = TestRollout::new(&[("web", 40), ("api", 20), ("one", 4)]);
    rollout.spec.steps = steps(&["25%", "50%"]);
    rollout.rest("2");
    let of = |rollout: &mut TestRollout, workload: &str| {
        rollout.with("2").iter().filter(|pod| pod.workload_name() == workload).count()
    };
    assert_eq!(["web", "api", "one"].map(|workload| of(&mut rollout, workload)), [10, 5, 1]);
    assert_eq!(rollout.status.internal.workloads.len(), 2);
    rollout.take();
    rollout.watch("2", 40);
    assert_eq!(["web", "api", "one"].map(|workload| of(&mut rollout, workload)), [20, 10, 2]);
}

#[test]
fn pods_that_a_selector_matches_come_first_and_stay() {
    let mut rollout = TestRollout::new(&[("web", 8), ("canary", 2)]);
    let labels = BTreeMap::from([("track".to_owned(), "canary".to_owned())]);
    for pod in rollout.pods.iter_mut().filter(|pod| pod.workload_name() == "canary") {
        pod.labels = Arc::new(labels.clone());
    }
    let selector = Some(nudge_api::StepSelector { match_labels: labels });
    rollout.spec.steps =
        [vec![Step { selector, ..Step::of(Pods::Share("100%".to_owned())) }], steps(&["50%"])].concat();
    rollout.rest("2");
    assert!(rollout.assigned("2") == 2 && rollout.with("2").iter().all(|pod| pod.workload_name() == "canary"));
    assert_eq!(rollout.walk("2"), [2, 5, 10]);
}

#[test]
fn a_step_is_watched_until_the_probes_of_its_pods_notice_and_then_holds_as_it_says() {
    let mut rollout = TestRollout::new(&[("web", 8)]);
    rollout.spec.steps[1].pause_seconds = 600;
    rollout.rest("2");
    rollout.take();
    let watched = rollout.rest("2").continuation.explanation().unwrap().message.clone();
    let because = "because the readiness probe of container app needs 3 x 10 s + 1 s to notice a change";
    assert_eq!(watched, format!("1 of 8 pods runs version 2 and is watched for 37 s, {because}"));
    rollout.watch("2", 36);
    assert_eq!(rollout.assigned("2"), 1);
    rollout.watch("2", 2);
    assert_eq!(rollout.assigned("2"), 2);
    rollout.take();
    let held = rollout.watch("2", 40);
    assert!(held.continuation.explanation().unwrap().message.clone().contains("step 2 pauses for 600 s"));
    rollout.watch("2", 590);
    assert_eq!(rollout.assigned("2"), 2);
    rollout.watch("2", 10);
    assert_eq!(rollout.assigned("2"), 4);
}

#[test]
fn a_slow_probe_is_waited_for_at_the_first_step_only_and_weak_evidence_is_shown() {
    let spec = json!({"containers": [{"name": "app", "readinessProbe": {"periodSeconds": 600}}]});
    let slow = ProbeTimes::of(&serde_json::from_value(spec).unwrap()).slowest;
    let mut rollout = TestRollout::new(&[("web", 8)]);
    rollout.pods.iter_mut().for_each(|pod| pod.probes.slowest.clone_from(&slow));
    let watch = |rollout: &mut TestRollout| {
        rollout.rest("2");
        rollout.take();
        rollout.rest("2");
        rollout.status.rollout.watch.clone().map(|watch| (watch.seconds, watch.weak.is_some())).unwrap()
    };
    assert_eq!(watch(&mut rollout), (1807, false));
    rollout.later(1807);
    assert_eq!(watch(&mut rollout), (300, true));
    let mut rollout = TestRollout::new(&[("web", 8)]);
    rollout.pods.iter_mut().for_each(|pod| pod.probes.slowest = None);
    assert_eq!(watch(&mut rollout), (10, true), "no probe at all");
}

#[test]
fn swapped_files_alone_are_weak_evidence_and_are_judged_as_any_other() {
    use Confirmation::{Notification, SwappedFiles, Unknown};
    let weak = |confirmations: [Confirmation; 2]| {
        let mut rollout = TestRollout::new(&[("web", 8)]);
        rollout
            .pods
            .iter_mut()
            .zip(confirmations.into_iter().cycle())
            .for_each(|(pod, of_pod)| pod.confirmation = of_pod);
        rollout.rest("2");
        assert_eq!(rollout.assigned("2"), 1);
        rollout.status.rollout.watch.clone().and_then(|watch| watch.weak)
    };
    let text = weak([SwappedFiles, SwappedFiles]).unwrap();
    assert!(text.contains("watches its files, and nothing shows that it has read them"), "{text}");
    assert_eq!(weak([Unknown, Unknown]), None);
    assert_eq!(weak([Notification, Notification]), None);
}

#[test]
fn the_first_pod_is_a_healthy_one() {
    let mut rollout = TestRollout::new(&[("web", 8)]);
    rollout.pods.sort_by_key(|pod| pod.number);
    rollout.pods[..3].iter_mut().for_each(Subject::fall);
    rollout.rest("2");
    assert_eq!(rollout.assigned("2"), 4, "those before it in the order go with it");
    assert_eq!(rollout.with("2").iter().filter(|pod| pod.is_ready()).count(), 1);
}

#[test]
fn where_the_first_pod_is_gone_before_it_proves_anything_another_one_is_next() {
    let mut rollout = TestRollout::new(&[("web", 8), ("Job", 8)]);
    for gone in 0..3 {
        rollout.watch("2", 1);
        let judges: Vec<PodUid> =
            rollout.with("2").iter().filter(|pod| pod.workload_name() == "web").map(|pod| pod.uid.clone()).collect();
        assert_eq!(judges.len(), 1, "after {gone}");
        rollout.pods.retain(|pod| pod.uid != judges[0]);
    }
}

#[test]
fn pods_that_were_unhealthy_or_never_started_hold_nothing_up() {
    let mut rollout = TestRollout::new(&[("web", 8)]);
    rollout.pods[..3].iter_mut().for_each(Subject::fall);
    for pod in &mut rollout.pods[3..6] {
        (pod.phase, pod.in_contact, pod.readiness) = (PodPhase::Pending, false, Readiness::Never);
        pod.fall();
    }
    assert_eq!(rollout.walk("2").last(), Some(&8));
    assert_eq!(rollout.status.current_version.as_deref(), Some("2"));
}

#[test]
fn where_no_pod_is_healthy_the_first_step_goes_out_and_those_that_recover_speak_for_the_version() {
    let mut rollout = TestRollout::new(&[("web", 8)]);
    rollout.pods.iter_mut().for_each(Subject::fall);
    let held = rollout.watch("2", 60);
    assert_eq!(
        (reason(&held), held.continuation.is_blocked(), rollout.assigned("2")),
        (Some(Reason::NobodyToJudge), true, 1)
    );
    let message = held.continuation.explanation().unwrap().message.clone();
    assert!(message.contains("kubectl nudge rollback") && message.contains("--now"), "{message}");
    rollout.take();
    rollout.watch("2", 3600);
    assert_eq!(rollout.assigned("2"), 1, "no deadline ends that");
    rollout.with("2").into_iter().for_each(Subject::recover);
    rollout.watch("2", 36);
    assert_eq!(rollout.assigned("2"), 1);
    rollout.watch("2", 45);
    assert!(rollout.assigned("2") > 1);
    // Each pod that gets it becomes healthy.
    for _ in 0..400 {
        rollout.take();
        rollout.with("2").into_iter().for_each(Subject::recover);
        rollout.watch("2", 1);
    }
    assert_eq!(rollout.status.current_version.as_deref(), Some("2"), "{:?}", rollout.status);
}

#[test]
fn the_previous_version_is_assigned_to_all_in_one_write_even_where_none_is_healthy() {
    let mut rollout = TestRollout::new(&[("web", 8), ("api", 1)]);
    (rollout.status.current_version, rollout.status.previous_version) = (Some("2".to_owned()), Some("1".to_owned()));
    for pod in &mut rollout.pods {
        pod.runs = Some("2".to_owned());
        pod.fall();
    }
    rollout.closed_gate = Some(on_hold());
    rollout.neighbour = Some("keys");
    let waits = rollout.rest("1");
    assert_eq!(
        (reason(&waits), rollout.assigned("1"), rollout.status.state()),
        (Some(Reason::RollingBack), 9, ConfigState::RollingBack)
    );
    let status = &rollout.status;
    assert_eq!((status.rollout.stage, &status.previous_version), (Some(RolloutStage::Returning), &None));
    assert!(rollout.status.internal.workloads_restart_time.is_some(), "restarted workloads are restarted back");
    rollout.take();
    rollout.rest("1");
    assert_eq!((rollout.status.state(), rollout.status.target_version.as_deref()), (ConfigState::Current, None));
}

#[test]
fn a_target_that_is_not_requested_any_more_is_left_before_the_next_move_begins() {
    let mut rollout = TestRollout::new(&[("web", 2)]);
    rollout.rest("2");
    rollout.take();
    rollout.rest("3");
    assert_eq!((rollout.status.rollout.stage, rollout.assigned("1")), (Some(RolloutStage::Leaving), 2));
    assert_eq!(rollout.status.target_version.as_deref(), Some("2"), "what is left");
    rollout.take();
    rollout.rest("3");
    assert_eq!((rollout.status.target_version.as_deref(), rollout.assigned("3")), (Some("3"), 1));
}

#[test]
fn a_neighbour_holds_the_beginning_and_what_has_begun() {
    let mut rollout = TestRollout::new(&[("web", 2)]);
    rollout.neighbour = Some("keys");
    let waits = rollout.rest("2");
    assert!(
        reason(&waits) == Some(Reason::WaitingFor) && waits.reconcile_at.is_none(),
        "its end is observed: {waits:?}"
    );
    rollout.neighbour = None;
    rollout.rest("2");
    assert_eq!(rollout.assigned("2"), 1);
    rollout.take();
    rollout.neighbour = Some("keys");
    let waits = rollout.watch("2", 3600);
    assert!(reason(&waits) == Some(Reason::WaitingFor) && waits.continuation.yields(), "{waits:?}");
    rollout.neighbour = None;
    rollout.watch("2", 36);
    assert_eq!(rollout.assigned("2"), 1, "it is watched anew");
    rollout.watch("2", 2);
    assert_eq!(rollout.assigned("2"), 2);
}

#[test]
fn a_silent_pod_alone_stops_nothing_and_many_stop_it() {
    let mut rollout = TestRollout::new(&[("web", 40)]);
    rollout.rest("2");
    assert_eq!(reason(&rollout.watch("2", 60)), Some(Reason::NotAcknowledged), "the only one that has it is silent");
    rollout.take();
    rollout.watch("2", 38);
    assert_eq!(rollout.assigned("2"), 10);
    rollout.take();
    rollout.with("2").into_iter().take(2).for_each(|pod| pod.acknowledgement = Acknowledgement::Missing);
    rollout.watch("2", 80);
    assert_eq!(rollout.assigned("2"), 20);
    rollout.take();
    rollout.with("2").into_iter().take(6).for_each(|pod| pod.acknowledgement = Acknowledgement::Missing);
    assert_eq!(reason(&rollout.watch("2", 80)), Some(Reason::NotAcknowledged));
    rollout.watch("2", 600);
    assert_eq!(failure(&rollout).map(|failure| failure.0), Some(Reason::ProgressDeadlineExceeded));
    assert_eq!(rollout.assigned("1"), 40);
}

#[test]
fn on_failure_hold_stands_still_whatever_the_pod_does_next_until_somebody_retries() {
    let mut rollout = TestRollout::new(&[("web", 2)]);
    rollout.spec.on_failure = OnFailure::Hold;
    rollout.rest("2");
    rollout.take();
    rollout.rest("2");
    let millis = rollout.millis;
    rollout.with("2").into_iter().for_each(|pod| pod.crash(millis));
    let held = rollout.rest("2");
    assert!(held.continuation.is_blocked() && reason(&held) == Some(Reason::Failed), "{held:?}");
    let held = rollout.watch("2", 1200);
    assert!(
        held.continuation.is_blocked() && reason(&held) == Some(Reason::Failed) && rollout.assigned("2") == 1,
        "{held:?}"
    );
    rollout.generation += 1;
    rollout.watch("2", 120);
    assert_eq!(rollout.assigned("2"), 1, "a change of anything else is no request");
    rollout.retry();
    rollout.watch("2", 120);
    assert_eq!(rollout.assigned("2"), 2);
}

#[test]
fn workloads_that_come_during_the_bake_do_not_begin_it_anew() {
    let mut rollout = TestRollout::new(&[("web", 1)]);
    rollout.rest("2");
    rollout.take();
    rollout.watch("2", 40);
    assert_eq!(rollout.status.rollout.stage, Some(RolloutStage::Baking));
    // One every five seconds, as a CronJob or previews of changes make them.
    for number in 0..12 {
        rollout.pods.push(pod(&format!("preview-{number}"), 0));
        let new = rollout.pods.last_mut().unwrap();
        new.readiness = Readiness::Never;
        rollout.watch("2", 5);
        rollout.take();
        assert_eq!(rollout.assigned("2"), rollout.pods.len(), "they have it from the beginning");
    }
    rollout.watch("2", 2);
    assert_eq!(rollout.status.current_version.as_deref(), Some("2"), "{:?}", rollout.status.rollout);
}

#[test]
fn workloads_that_are_restarted_are_waited_for_and_may_fail() {
    let mut rollout = TestRollout::new(&[("web", 1)]);
    rollout.restart = Restarts::Busy("Deployment/api is on its way".to_owned());
    for _ in 0..200 {
        rollout.watch("2", 1);
        rollout.take();
    }
    assert_eq!(reason(&rollout.rest("2")), Some(Reason::Restarting));
    rollout.restart = Restarts::Failed("Deployment/api does not come up".to_owned());
    rollout.rest("2");
    assert_eq!(failure(&rollout).map(|failure| failure.0), Some(Reason::RestartFailed));
}
