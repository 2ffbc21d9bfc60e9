//! One look at the pods, which finds what happened to each since the last one.

use std::collections::HashSet;

use super::super::clock::{Millis, Now, seconds};
use super::super::harm::{Harm, HarmKind};
use super::super::{Observation, Subject};
use super::history::{Assignment, PodHistory, Role};
use super::{Evidence, UNREADY_TOLERANCE};
use crate::pods::SlowestProbe;

/// Clocks of nodes may differ by so many seconds.
const CLOCKS_DIFFER: i64 = 60;

/// The time and the bounds of one look.
struct Look<'a> {
    number: u64,
    /// Whether this leader has not looked before, or not for a while.
    first: bool,
    /// Whether the trial of the target begins.
    begins: bool,
    target: Option<&'a str>,
    /// When the target was last assigned to more pods, in seconds since 1970.
    stepped_at: i64,
    /// For how long a pod must be healthy to count again.
    window: Millis,
    now: Millis,
    now_seconds: i64,
}

/// What happened to a pod since the last look.
enum Fate {
    /// The pod does not count, was harmed before, or restarts by order.
    Unknown,
    /// The pod is not harmed.
    Unharmed,
    /// The pod is harmed since that time.
    Harmed(HarmKind, Millis),
}

/// The findings of one look.
#[derive(Default)]
struct Findings<'a> {
    harms: Vec<Harm>,
    /// Pods that were harmed before, and crashed since the last look.
    crashed: HashSet<&'a str>,
    /// Pods with the target, and without it, that could have been harmed and were not.
    at_risk: (u32, u32),
    /// New pods with the target that fail.
    failing: usize,
}

impl Evidence {
    /// Looks at the pods. `window`: for how many seconds a pod must be healthy to count again. `stepped_at`: when the target was last assigned to
    /// more pods, in seconds since 1970.
    pub(in crate::rollout) fn look(
        &mut self,
        seen: &Observation<'_>,
        is_assigned: impl Fn(&Subject) -> bool,
        window: u32,
        stepped_at: i64,
        now: Now<'_>,
    ) {
        let target = self.target.clone();
        self.look += 1;
        let look = Look {
            number: self.look,
            first: self.looked.is_none(),
            begins: std::mem::take(&mut self.begins),
            target: target.as_deref(),
            stepped_at,
            window: seconds(window),
            now: now.steady,
            now_seconds: now.time.0.as_second(),
        };
        self.add_time(window, now.steady);
        let mut findings = Findings::default();
        for pod in seen.pods {
            self.look_at(pod, target.is_some() && is_assigned(pod), &look, &mut findings);
        }
        self.failing = findings.failing;
        self.turn_into_crashes(&findings.crashed, now.steady);
        self.forgive(now.steady);
        self.forget_gone(seen.pods.len());
        self.at_risk = findings.at_risk;
        self.write_down(findings.harms);
        self.excuse(seen, now.steady);
        self.note_excuses();
    }

    /// Adds the time since the last look to what was watched.
    fn add_time(&mut self, window: u32, now: Millis) {
        let passed = self.looked.replace(now).map_or(0, |looked| u64::try_from(now - looked).unwrap_or(0));
        self.exposure += passed * u64::from(self.at_risk.0);
        self.background.0 += passed * u64::from(self.at_risk.1);
        self.turn_epoch(window, passed, now);
    }

    fn look_at<'a>(&mut self, pod: &'a Subject, assigned: bool, look: &Look<'_>, findings: &mut Findings<'a>) {
        let uid = pod.uid.as_str();
        // One that is seen to appear is new: it counts when it was healthy for as long as a step is watched.
        let new = !self.pods.contains_key(uid);
        if new {
            self.pods.insert(uid.into(), PodHistory::new(pod, pod.is_healthy(look.now_seconds), look.first));
        }
        let Some(history) = self.pods.get_mut(uid) else { return };
        history.look = look.number;
        let crashed = history.count_restarts(pod, look.now);
        history.note_assignment(pod, assigned, new, look);
        history.note_readiness(pod, assigned, look.now);
        if assigned && history.role.judges() {
            self.judged = Some(look.now);
        }
        let long = history.note_health(pod, crashed, look);
        findings.failing += usize::from(history.grow(pod, assigned, long, look.now));
        let crashed = crashed && !look.first;
        if crashed && history.role.is_harmed() {
            findings.crashed.insert(uid);
        }
        match history.fate(pod, assigned, crashed, look) {
            Fate::Unknown => {}
            Fate::Unharmed if assigned => findings.at_risk.0 += 1,
            Fate::Unharmed => findings.at_risk.1 += 1,
            Fate::Harmed(kind, since) => {
                history.role = Role::Harmed { judges: true };
                findings.harms.push(history.harm(pod, assigned, kind, since));
            }
        }
    }

    /// Turns unreadiness that probes noticed too soon into crashes: what has crashed since did not become unready because of what was before.
    fn turn_into_crashes(&mut self, crashed: &HashSet<&str>, now: Millis) {
        for harm in
            self.harms.iter_mut().filter(|harm| harm.began_before_notification() && crashed.contains(harm.uid.as_str()))
        {
            (harm.kind, harm.at, harm.excused) = (HarmKind::Restarted, now, false);
        }
    }

    /// Forgets the pods that this look has not found, which are those beyond `present`.
    fn forget_gone(&mut self, present: usize) {
        if self.pods.len() > present {
            self.pods.retain(|_, history| history.look == self.look);
        }
    }

    /// Records harm, one after the other: each with the share of pods with the target among those that were not harmed then.
    fn write_down(&mut self, harms: Vec<Harm>) {
        let count = |assigned| harms.iter().filter(|harm| harm.assigned == assigned).map(|_| 1).sum::<u32>();
        let mut left = (self.at_risk.0 + count(true), self.at_risk.1 + count(false));
        for mut harm in harms {
            harm.share = f64::from(left.0) / f64::from(left.0 + left.1);
            if harm.assigned {
                left.0 -= 1;
            } else {
                (left.1, self.background.1) = (left.1 - 1, self.background.1 + 1);
            }
            self.harms.extend(self.target.is_some().then_some(harm));
        }
    }

    fn note_excuses(&mut self) {
        for harm in &self.harms {
            if let Some(history) = self.pods.get_mut(harm.uid.as_str()) {
                history.excused = harm.excused.then_some(harm.at);
            }
        }
    }
}

impl PodHistory {
    /// Notes whether the target is assigned to the pod, whether the pod judges it, and when it says that it runs it.
    fn note_assignment(&mut self, pod: &Subject, assigned: bool, new: bool, look: &Look<'_>) {
        if !assigned {
            self.assignment = None;
        } else if self.assignment.is_none() {
            let since = look.now;
            let watched = Assignment::Watched { since, notified: None };
            self.assignment = Some(if look.first { Assignment::Inherited { since } } else { watched });
            let changed = if pod.ready { pod.last_restart } else { pod.unready_since };
            let fell = pod.was_ready && changed.is_some_and(|changed| changed + CLOCKS_DIFFER > look.stepped_at);
            let well = pod.is_healthy(look.now_seconds) && (look.first || !new);
            self.role = self.role.assigned(well || (look.first && fell && pod.is_reachable()));
        }
        if look.first && self.role == Role::Judge && !pod.ready {
            self.role = Role::FellUnseen;
        }
        if let Some(Assignment::Watched { notified, .. }) = &mut self.assignment
            && pod.runs.as_deref() == look.target
        {
            notified.get_or_insert(look.now);
        }
    }

    /// Notes since when the containers are not ready although they should be.
    fn note_readiness(&mut self, pod: &Subject, assigned: bool, now: Millis) {
        let is_no_harm = pod.containers_ready || !pod.is_reachable() || self.starts(now);
        self.unready = if is_no_harm { None } else { self.unready.or(Some(now)) };
        // One that starts does not flap.
        if !assigned && self.unready.is_some() && pod.was_ready {
            self.unwell_before = Some(now);
        }
    }

    /// Notes since when the pod is healthy, and that it counts again. Returns whether it is healthy for as long as a step is watched.
    fn note_health(&mut self, pod: &Subject, crashed: bool, look: &Look<'_>) -> bool {
        let healthy = pod.ready && pod.containers_ready && pod.is_reachable() && !crashed;
        self.healthy = if healthy { self.healthy.or(Some(look.now)) } else { None };
        let long = self.healthy.is_some_and(|since| look.now - since >= look.window);
        // Those that are healthy when a version comes on trial are what it is compared with.
        let counts = (long || (look.begins && pod.is_healthy(look.now_seconds))) && !pod.is_of_job();
        self.role = match self.role {
            Role::Bystander if counts => Role::Judge,
            Role::FellUnseen if healthy => Role::Judge,
            harmed if long && look.target.is_none() => harmed.mended(),
            role => role,
        };
        long
    }

    /// Returns what happened to the pod. A report says more than a crash, and a crash more than unreadiness.
    fn fate(&self, pod: &Subject, assigned: bool, crashed: bool, look: &Look<'_>) -> Fate {
        if !self.role.judges() || self.role.is_harmed() {
            return Fate::Unknown;
        }
        let reported = look.target.filter(|_| assigned).and_then(|target| pod.reported(target));
        let unready = self.unready.filter(|since| look.now - since >= UNREADY_TOLERANCE);
        match (reported, unready) {
            (Some(why), _) => Fate::Harmed(HarmKind::Reported(why.clone()), look.now),
            _ if crashed && pod.is_reachable() => Fate::Harmed(HarmKind::Restarted, look.now),
            (_, Some(since)) if self.role != Role::FellUnseen => Fate::Harmed(HarmKind::Unready, since),
            _ if self.starts(look.now) => Fate::Unknown,
            _ => Fate::Unharmed,
        }
    }

    /// The harm to the pod, before it is known how many others could have been harmed.
    fn harm(&self, pod: &Subject, assigned: bool, kind: HarmKind, at: Millis) -> Harm {
        let notified = self.assignment.and_then(Assignment::notified);
        Harm {
            name: pod.name.clone(),
            uid: pod.uid.to_string(),
            node: pod.node.clone(),
            kind,
            at,
            after: notified.map(|notified| at - notified),
            assigned,
            share: 0.0,
            excused: false,
            notices_after: pod.notices_after,
            interval: pod.slowest_probe.as_ref().map_or(0, SlowestProbe::interval),
        }
    }
}
