//! An observation of the pods, which finds the events of each pod since the last observation.

use std::collections::HashSet;

use super::super::harm::{Harm, HarmKind};
use super::history::{Assignment, PodHistory, Role};
use super::sighting::{Pass, Sighting};
use super::{AtRisk, Evidence, UNREADY_TOLERANCE};
use crate::keys::PodUid;
use crate::pods::Readiness;
use crate::rollout::clock::{SteadyTime, millis, seconds};
use crate::rollout::{Observation, Subject};

/// The maximum difference between the clocks of two nodes, in seconds.
const MAX_CLOCK_SKEW_SECONDS: i64 = 60;

/// The fate of a pod since the last observation.
enum Fate {
    /// The pod does not count, was harmed before, or restarts by order.
    Unknown,
    /// The pod is not harmed.
    Unharmed,
    /// The pod is harmed since that time.
    Harmed(HarmKind, SteadyTime),
}

/// The findings of one observation.
#[derive(Default)]
struct Findings<'a> {
    harms: Vec<Harm>,
    /// The pods that were harmed before, and crashed since the last observation.
    crashed: HashSet<&'a PodUid>,
    at_risk: AtRisk,
    /// The number of new pods with the target that fail.
    failing: usize,
}

impl Evidence {
    /// Observes the pods. `watch_seconds` is the time that a pod must be healthy to count again, and `stepped_at` is
    /// when the target was last assigned to more pods, in seconds since 1970.
    pub(in crate::rollout) fn observe(
        &mut self,
        observation: &Observation<'_>,
        is_assigned: impl Fn(&Subject) -> bool,
        watch_seconds: u32,
        stepped_at: i64,
    ) {
        let now = observation.now;
        let target = self.trial.as_ref().map(|trial| trial.target.clone());
        self.observations += 1;
        let pass = Pass {
            number: self.observations,
            is_first: self.observed_at.is_none(),
            begins_trial: std::mem::take(&mut self.begins),
            target: target.as_deref(),
            stepped_at,
            watch_time: seconds(watch_seconds),
            now: now.steady,
            now_seconds: now.time.0.as_second(),
        };
        self.add_time(watch_seconds, now.steady);
        let mut findings = Findings::default();
        for pod in observation.pods {
            self.observe_pod(pod, target.is_some() && is_assigned(pod), &pass, &mut findings);
        }
        if let Some(trial) = &mut self.trial {
            trial.failing = findings.failing;
        }
        self.turn_into_crashes(&findings.crashed, now.steady);
        self.forgive(now.steady);
        self.forget_gone(observation.pods.len());
        self.at_risk = findings.at_risk;
        self.record_harms(findings.harms);
        self.excuse(observation, now.steady);
        self.note_excuses();
    }

    /// Adds the time since the last observation to the watched time.
    fn add_time(&mut self, watch_seconds: u32, now: SteadyTime) {
        let passed = self.observed_at.replace(now).map_or(0, |before| u64::try_from(now - before).unwrap_or(0));
        if let Some(trial) = &mut self.trial {
            trial.exposure += passed * u64::from(self.at_risk.assigned);
        }
        self.background.watched += passed * u64::from(self.at_risk.unassigned);
        self.turn_epoch(watch_seconds, passed, now);
    }

    /// Updates the history of a pod, and finds its fate. Each step reads what the steps before it have noted: the
    /// assignment, then readiness, then health.
    fn observe_pod<'a>(&mut self, pod: &'a Subject, is_assigned: bool, pass: &Pass<'_>, findings: &mut Findings<'a>) {
        let uid = &pod.uid;
        let is_new = !self.pods.contains_key(uid);
        if is_new {
            self.pods.insert(uid.clone(), PodHistory::new(pod, pass));
        }
        let Some(history) = self.pods.get_mut(uid) else { return };
        history.observation = pass.number;
        let has_crashed = history.count_restarts(pod, pass.now);
        let sighting = Sighting { pass, pod, is_assigned, is_new, has_crashed };
        history.note_assignment(sighting);
        history.note_readiness(sighting);
        if let Some(trial) = self.trial.as_mut().filter(|_| is_assigned && history.role.judges()) {
            trial.judged_at = Some(pass.now);
        }
        history.note_health(sighting);
        findings.failing += usize::from(history.grow(sighting));
        if has_crashed && !pass.is_first && history.role.is_harmed() {
            findings.crashed.insert(uid);
        }
        match history.fate(sighting) {
            Fate::Unknown => {}
            Fate::Unharmed => *findings.at_risk.of(is_assigned) += 1,
            Fate::Harmed(kind, since) => {
                history.role = Role::Harmed { judges: true };
                findings.harms.push(history.harm(sighting, kind, since));
            }
        }
    }

    /// Turns unreadiness into a crash if it began before the pod was notified and the pod has crashed since: an earlier
    /// cause does not explain the crash.
    fn turn_into_crashes(&mut self, crashed: &HashSet<&PodUid>, now: SteadyTime) {
        let turns = |harm: &&mut Harm| harm.began_before_notification() && crashed.contains(&harm.uid);
        for harm in self.trial.iter_mut().flat_map(|trial| &mut trial.harms).filter(turns) {
            (harm.kind, harm.at, harm.excused) = (HarmKind::Restarted, now, false);
        }
    }

    /// Forgets the pods that were not found now, if there are more than `present`.
    fn forget_gone(&mut self, present: usize) {
        if self.pods.len() > present {
            self.pods.retain(|_, history| history.observation == self.observations);
        }
    }

    /// Records the harms in order. Each gets the share of pods with the target among the pods that were not harmed at
    /// that time.
    fn record_harms(&mut self, mut harms: Vec<Harm>) {
        let mut left = self.at_risk;
        for harm in &harms {
            *left.of(harm.assigned) += 1;
        }
        for harm in &mut harms {
            harm.share = f64::from(left.assigned) / f64::from(left.assigned + left.unassigned);
            *left.of(harm.assigned) -= 1;
            self.background.harmed += u64::from(!harm.assigned);
        }
        if let Some(trial) = &mut self.trial {
            trial.harms.extend(harms);
        }
    }

    fn note_excuses(&mut self) {
        for harm in self.trial.iter().flat_map(|trial| &trial.harms) {
            if let Some(history) = self.pods.get_mut(&harm.uid) {
                history.excused_at = harm.excused.then_some(harm.at);
            }
        }
    }
}

impl PodHistory {
    /// Notes whether the target is assigned to the pod, whether the pod's health counts as evidence, and when the pod
    /// reports that it runs the target.
    fn note_assignment(&mut self, sighting: Sighting<'_>) {
        let Sighting { pass, pod, is_assigned, is_new, .. } = sighting;
        if !is_assigned {
            self.assignment = None;
        } else if self.assignment.is_none() {
            let since = pass.now;
            let watched = Assignment::Watched { since, notified: None };
            self.assignment = Some(if pass.is_first { Assignment::Inherited { since } } else { watched });
            let changed = match pod.readiness {
                Readiness::Never => None,
                Readiness::Ready => pod.restarts.sums().last_crash,
                Readiness::Lost { since } => Some(since),
            };
            let fell = changed.is_some_and(|changed| changed + MAX_CLOCK_SKEW_SECONDS > pass.stepped_at);
            let well = pod.is_healthy(pass.now_seconds) && (pass.is_first || !is_new);
            self.role = self.role.on_assignment(well || (pass.is_first && fell && pod.is_reachable()));
        }
        if pass.is_first && self.role == Role::Judge && (!pod.is_ready() || sighting.lacks_proof()) {
            self.role = Role::FellUnseen;
        }
        if let Some(Assignment::Watched { notified, .. }) = &mut self.assignment
            && pod.runs.as_deref() == pass.target
        {
            notified.get_or_insert(pass.now);
        }
    }

    /// Notes since when the containers are not ready although they should be, or have not shown that they took the
    /// target.
    fn note_readiness(&mut self, sighting: Sighting<'_>) {
        let Sighting { pass, pod, is_assigned, .. } = sighting;
        let now = pass.now;
        let is_well = pod.containers_ready && !sighting.lacks_proof();
        let is_no_harm = is_well || !pod.is_reachable() || self.starts(now);
        self.unready_since = if is_no_harm { None } else { self.unready_since.or(Some(now)) };
        // A pod that starts does not flap.
        if !is_assigned && self.unready_since.is_some() && pod.was_ready() {
            self.last_unready_before = Some(now);
        }
    }

    /// Notes since when the pod is healthy, and that it counts again.
    fn note_health(&mut self, sighting: Sighting<'_>) {
        let Sighting { pass, pod, has_crashed, .. } = sighting;
        let is_ready = pod.is_ready() && pod.containers_ready && !sighting.lacks_proof();
        let is_healthy = is_ready && pod.is_reachable() && !has_crashed;
        self.healthy_since = if is_healthy { self.healthy_since.or(Some(pass.now)) } else { None };
        let is_long_healthy = self.is_long_healthy(pass);
        // A version is compared with the pods that are healthy when its trial begins.
        let counts = (is_long_healthy || (pass.begins_trial && pod.is_healthy(pass.now_seconds))) && !pod.is_of_job();
        self.role = match self.role {
            role if sighting.is_unaffected() && !role.is_harmed() => Role::Bystander,
            Role::Bystander if counts => Role::Judge,
            Role::FellUnseen if is_healthy => Role::Judge,
            harmed if is_long_healthy && pass.target.is_none() => harmed.without_harm(),
            role => role,
        };
    }

    /// Returns the fate of the pod. A report says more than a crash, and a crash more than unreadiness.
    fn fate(&self, sighting: Sighting<'_>) -> Fate {
        let Sighting { pass, pod, is_assigned, has_crashed, .. } = sighting;
        if !self.role.judges() || self.role.is_harmed() {
            return Fate::Unknown;
        }
        let reported = pass.target.filter(|_| is_assigned).and_then(|target| pod.report_against(target));
        let unready = self.unready_since.filter(|&since| pass.now - since >= UNREADY_TOLERANCE);
        match (reported, unready) {
            (Some(why), _) => Fate::Harmed(HarmKind::Reported(why.clone()), pass.now),
            _ if has_crashed && !pass.is_first && pod.is_reachable() => Fate::Harmed(HarmKind::Restarted, pass.now),
            (_, Some(since)) if self.role != Role::FellUnseen => {
                let is_unverified = pod.containers_ready && sighting.lacks_proof();
                Fate::Harmed(if is_unverified { HarmKind::Unverified } else { HarmKind::Unready }, since)
            }
            _ if self.starts(pass.now) => Fate::Unknown,
            _ => Fate::Unharmed,
        }
    }

    /// Returns the harm to the pod, before it is known how many others could have been harmed.
    fn harm(&self, Sighting { pod, is_assigned, .. }: Sighting<'_>, kind: HarmKind, at: SteadyTime) -> Harm {
        let notified = self.assignment.and_then(Assignment::notified_at);
        Harm {
            name: pod.name.clone(),
            uid: pod.uid.clone(),
            node: pod.node.clone(),
            kind,
            at,
            after_notification: notified.map(|notified| at - notified),
            assigned: is_assigned,
            share: 0.0,
            excused: false,
            notice_time: millis(pod.probes.notice_time),
            probe_interval: pod.probes.slowest.as_ref().map_or(0, |probe| millis(probe.interval())),
        }
    }
}
