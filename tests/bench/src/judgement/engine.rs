//! The rules of the control plane, driven as its leader drives them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use nudge_api::{ConditionType, ConfigState, Reason, RolloutSpec, VersionedConfigStatus, condition, set_condition};
use nudge_core::keys::PodUid;
use nudge_core::pods::{PodPhase, PodState, ProbeTimes, Readiness, Removal, RestartSums};
use nudge_core::requester::Requesters;
use nudge_core::rollout::{
    Acknowledgement, Cause, ClosedGate, Confirmation, Continuation, Evidence, Neighbours, Now, Observation,
    PublishAttempt, Restarts, Return, Rollout, SteadyTime, Subject, next, version_to_publish,
};
use nudge_protocol::ContainerName;
use nudge_protocol::hub::PodContainer;

use super::judge::{Judge, Look, Millis, Progress, SeenPod, Version, View};

/// The name of these rules in the table.
pub(crate) const NAME: &str = "after";
/// When the simulated rollout is requested, in seconds since 1970.
const BEGIN: i64 = 1_800_000_000;
/// The maximum number of transitions, as in `nudge_core::config`.
const MAX_TRANSITIONS: usize = 16;

const CURRENT: &str = "1";
const TARGET: &str = "2";

/// A leader, with its stored state and its observations.
pub(crate) struct Engine {
    status: VersionedConfigStatus,
    evidence: Evidence,
    /// The requested version has been another one until now.
    rests: bool,
    spec: RolloutSpec,
    generation: i64,
    /// The reason that keeps the target from continuing.
    closed_gate: Option<ClosedGate>,
    published: String,
    subjects: Vec<Subject>,
    /// The pod of each subject, and the subject of each pod that counts.
    pods: Vec<usize>,
    positions: Vec<Option<usize>>,
    /// When each pod became unready or restarted.
    fell: Vec<Option<Millis>>,
    /// The threshold of each workload.
    thresholds: Vec<u64>,
    probes: ProbeTimes,
}

impl Engine {
    pub(crate) fn new() -> Self {
        Self {
            status: VersionedConfigStatus {
                current_version: Some(CURRENT.to_owned()),
                conditions: vec![condition(ConditionType::Ready, true, Reason::Current, "", None, &time(0))],
                ..VersionedConfigStatus::default()
            },
            evidence: Evidence::default(),
            rests: true,
            spec: RolloutSpec::default(),
            generation: 2,
            closed_gate: None,
            published: CURRENT.to_owned(),
            subjects: Vec::new(),
            pods: Vec::new(),
            positions: Vec::new(),
            fell: Vec::new(),
            thresholds: Vec::new(),
            probes: ProbeTimes::default(),
        }
    }

    /// Takes over what changed since the last look.
    fn observe(&mut self, now: Millis, view: &View) {
        if self.positions.is_empty() {
            self.probes = ProbeTimes::of(&view.template);
            self.spec.bake_seconds = view.bake_seconds.unwrap_or(self.spec.bake_seconds);
        }
        if self.closed_gate.is_some() != view.held {
            self.closed_gate = view.held.then(on_hold);
            self.generation += 1;
        }
        for pod in self.positions.len()..view.pods.len() {
            self.positions.push(None);
            self.fell.push(None);
            self.update(pod, now, view);
        }
        for &pod in &view.changed {
            self.update(pod, now, view);
        }
        if view.nodes_changed {
            for (subject, &pod) in self.subjects.iter_mut().zip(&self.pods) {
                subject.node_ready = node_ready(&view.pods[pod], view);
            }
        }
    }

    fn update(&mut self, pod: usize, now: Millis, view: &View) {
        let pod_view = &view.pods[pod];
        match (self.positions[pod], pod_view.terminating || pod_view.gone) {
            (None, true) => {}
            (Some(position), true) => {
                self.subjects.swap_remove(position);
                self.pods.swap_remove(position);
                self.positions[pod] = None;
                if let Some(&moved) = self.pods.get(position) {
                    self.positions[moved] = Some(position);
                }
            }
            (Some(position), false) => {
                let subject = &mut self.subjects[position];
                if subject.containers_ready && !pod_view.app_ready
                    || subject.restarts.sums().crashes < pod_view.restarts
                {
                    self.fell[pod] = Some(now);
                }
                brought_up(subject, pod_view, view);
            }
            (None, false) => {
                let mut subject = subject(pod_view, view, &self.probes);
                brought_up(&mut subject, pod_view, view);
                self.positions[pod] = Some(self.subjects.len());
                self.subjects.push(subject);
                self.pods.push(pod);
            }
        }
    }

    /// Returns when pods without the target fell on the nodes of those that are not ready, as the controller finds it.
    fn neighbours(&self, view: &View) -> HashMap<String, Neighbours> {
        let serves = |pod: &&Subject| !(pod.is_ending() || pod.removal != Removal::None || pod.is_of_job());
        let unready = self.subjects.iter().filter(|pod| !pod.containers_ready).filter(serves);
        let nodes: BTreeSet<&str> = unready.filter_map(|pod| pod.node.as_deref()).collect();
        let mut all: HashMap<String, Neighbours> = HashMap::new();
        for (subject, &pod) in self.subjects.iter().zip(&self.pods) {
            if let Some(node) = subject.node.as_ref().filter(|node| nodes.contains(node.as_str()))
                && serves(&subject)
                && self.assigned(view, pod) == Version::Current
            {
                let fell = self.fell[pod].and_then(|fell| i64::try_from(fell).ok()).map(SteadyTime);
                all.entry(node.clone()).or_default().own.push(fell);
            }
        }
        all
    }

    fn progress(&self, inconclusive: bool, held: Option<Reason>) -> Progress {
        match self.status.state() {
            ConfigState::RollingBack | ConfigState::Failed => Progress::RolledBack,
            ConfigState::Current if self.status.current_version.as_deref() == Some(TARGET) => Progress::Passed,
            _ if inconclusive => Progress::Inconclusive,
            _ => match held {
                Some(Reason::OnHold) | None => Progress::Moving,
                Some(_) => Progress::Held,
            },
        }
    }
}

impl Judge for Engine {
    fn look(&mut self, now: Millis, view: &View) -> Look {
        self.observe(now, view);
        let neighbours = if self.status.target_version.is_some() { self.neighbours(view) } else { HashMap::new() };
        let steady = SteadyTime(i64::try_from(now).unwrap_or(i64::MAX));
        let now = time(now);
        let before = self.status.internal.revision;
        let mut rollout = Rollout::from_status(&self.status, &now);
        let (mut again, mut held, mut inconclusive, mut message) = (Some(steady), None, false, String::new());
        for _ in 0..MAX_TRANSITIONS {
            let seen = Observation {
                now: Now { time: &now, steady },
                spec: &self.spec,
                generation: self.generation,
                requested: if self.rests { CURRENT } else { TARGET },
                spec_version: Some(if self.rests { CURRENT } else { TARGET }),
                digest: "sha256:0",
                follows_text: false,
                text_managers: &[],
                override_reason: None,
                requesters: &Requesters::default(),
                pods: &self.subjects,
                neighbours: &neighbours,
                background: None,
                waiting_for: None,
                approvals: &[],
                closed_gate: self.closed_gate.as_ref(),
                measured: None,
                has_objects: true,
                publish_attempt: Some(&PublishAttempt::settled(&self.published)),
                current_since: None,
                restart: &Restarts::Done,
                report_wait: 0,
                hub_away: None,
            };
            let (after, effects) = next(rollout, &mut self.evidence, &seen);
            rollout = after;
            if let Some(failure) = failure(&rollout) {
                message = failure;
            }
            // The leader has looked at the pods before another version was requested.
            if std::mem::take(&mut self.rests) {
                continue;
            }
            if effects.continuation != Continuation::AtOnce {
                again = effects.reconcile_at;
                inconclusive = matches!(effects.continuation, Continuation::Inconclusive(_));
                held = match effects.continuation {
                    Continuation::Inconclusive(why) | Continuation::Blocked { why, .. } => Some(why),
                    _ => None,
                };
                break;
            }
        }
        let (ready, reason) = ready(&rollout);
        self.status = rollout.into_status(std::mem::take(&mut self.status));
        let ready = condition(ConditionType::Ready, ready, reason, "", None, &now);
        set_condition(&mut self.status.conditions, ready);
        // The published ConfigMap is written at once, and that is seen.
        if let Some(publish) = version_to_publish(&self.status).filter(|publish| *publish != self.published) {
            self.published = publish.to_owned();
            again = Some(steady);
        }
        let reassigned = self.status.internal.revision != before;
        if reassigned {
            let internal = &self.status.internal;
            let own: BTreeMap<&str, u64> =
                internal.workloads.iter().map(|own| (own.workload.as_str(), own.threshold)).collect();
            let of = |name: &String| own.get(name.as_str()).copied().unwrap_or(internal.threshold);
            self.thresholds = view.workloads.iter().map(of).collect();
            if self.status.target_version.is_none() {
                self.thresholds.clear();
            }
        }
        let progress = self.progress(inconclusive, held.as_ref().map(|held| held.reason));
        if let Some(held) = held {
            message = held.message;
        }
        Look { progress, reassigned, again: again.and_then(|at| Millis::try_from(at.0).ok()), message }
    }

    fn assigned(&self, view: &View, pod: usize) -> Version {
        let pod_view = &view.pods[pod];
        let threshold = self.thresholds.get(pod_view.workload).copied().unwrap_or_default();
        // After the rollout there are no thresholds.
        let all = self.status.current_version.as_deref() == Some(TARGET);
        if all || u64::from(pod_view.number) < threshold { Version::Target } else { Version::Current }
    }

    fn hand_over(&mut self) {
        self.evidence = Evidence::default();
    }
}

/// Somebody holds the config.
fn on_hold() -> ClosedGate {
    ClosedGate {
        why: Reason::OnHold.explained("the config is on hold"),
        recheck_at: None,
        ends_at: None,
        keeps_message: false,
    }
}

/// Returns the condition Ready. A rollout that does not move continues from it.
fn ready(rollout: &Rollout) -> (bool, Reason) {
    match rollout {
        Rollout::Current(_) => (true, Reason::Current),
        Rollout::Failed { .. } => (false, Reason::Failed),
        _ => (false, Reason::Pending),
    }
}

fn failure(rollout: &Rollout) -> Option<String> {
    match rollout {
        Rollout::Back(Return { cause: Cause::RollingBack(failure), .. }) => Some(failure.message.clone()),
        _ => None,
    }
}

fn time(now: Millis) -> Time {
    let millis = i64::try_from(now).unwrap_or(i64::MAX - BEGIN * 1000) + BEGIN * 1000;
    Time(Timestamp::from_millisecond(millis).unwrap_or(Timestamp::MAX))
}

fn node_ready(seen: &SeenPod, view: &View) -> bool {
    seen.node.is_none_or(|node| view.nodes[node].ready)
}

/// Returns what never changes of a pod.
fn subject(seen: &SeenPod, view: &View, probes: &ProbeTimes) -> Subject {
    let pod = PodState {
        name: seen.uid.clone(),
        uid: PodUid::new(&seen.uid).unwrap_or_default(),
        workload: Some(view.workloads[seen.workload].as_str().into()),
        template: Some(seen.template.to_string()),
        probes: probes.clone(),
        ..PodState::default()
    };
    Subject {
        pod: Arc::new(pod),
        number: seen.number,
        node_ready: true,
        runs: None,
        acknowledgement: Acknowledgement::Missing,
        in_contact: false,
        failure: None,
        is_unverified: false,
        confirmation: Confirmation::default(),
    }
}

/// Returns the only container, which has done its work or has not.
fn container(ended: bool) -> Option<PodContainer> {
    Some(PodContainer { name: ContainerName::new("app").ok()?, id: String::new(), ended })
}

/// Brings up to date what changes of a pod.
fn brought_up(subject: &mut Subject, seen: &SeenPod, view: &View) {
    let runs = seen.runs.map(|version| if version == Version::Target { TARGET } else { CURRENT });
    if subject.runs.as_deref() != runs {
        subject.runs = runs.map(str::to_owned);
    }
    subject.acknowledgement = if seen.acknowledged { Acknowledgement::Taken } else { Acknowledgement::Missing };
    subject.node_ready = node_ready(seen, view);
    subject.in_contact = seen.runs.is_some();
    subject.failure = seen.refused.then(|| Reason::Failed.explained("it can't take it"));
    let pod = Arc::make_mut(&mut subject.pod);
    pod.readiness = match seen.unready_since {
        _ if seen.ready => Readiness::Ready,
        since if seen.was_ready => Readiness::Lost { since: since.map_or(0, |second| BEGIN + second) },
        _ => Readiness::Never,
    };
    pod.containers_ready = seen.app_ready;
    pod.removal = if seen.disrupted { Removal::Disrupted } else { Removal::None };
    if let (Some(node), None) = (seen.node, &pod.node) {
        pod.node = Some(format!("node-{node}"));
    }
    pod.containers = container(seen.ending).into_iter().collect();
    pod.phase = if seen.running { PodPhase::Running } else { PodPhase::Pending };
    let last_crash = seen.last_restart.map(|second| BEGIN + second);
    pod.restarts = RestartSums { crashes: seen.restarts, ordered: 0, last_crash }.into();
    pod.agent.restarts = seen.agent_restarts;
}
