//! The evidence of one leader about a config's pods: since when each is healthy, which were harmed, and for how long they were watched.
//!
//! Evidence is kept in memory, and measured with a clock that never jumps. A new leader begins without any: what happened while nobody looked is not
//! evidence. Evidence about pods that are gone is dropped.

mod background;
mod excuse;
mod history;
mod look;
mod newborns;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use self::history::{Assignment, Growth, PodHistory};
use super::Subject;
use super::clock::{Millis, seconds};
use super::harm::Harm;
use crate::analysis::Memory;

/// How long containers must be unready until that counts as harm.
pub(super) const UNREADY_TOLERANCE: Millis = 3_000;
/// How long evidence is added up before the sums begin again.
const EPOCH: Millis = 900_000;

/// The evidence of one leader.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    look: u64,
    looked: Option<Millis>,
    /// Whether nobody has looked yet since the trial of a version began.
    begins: bool,
    pods: HashMap<Arc<str>, PodHistory>,
    /// The number of new pods with the target that fail.
    failing: usize,
    /// The version that assignments, `harms` and the numbers below are about.
    target: Option<String>,
    epoch_began: Option<Millis>,
    epoch: u32,
    harms: Vec<Harm>,
    /// Milliseconds for which healthy pods with the target were watched in this epoch, added up.
    exposure: u64,
    /// The numbers of these pods at the last look, with the target and without it.
    at_risk: (u32, u32),
    /// Not written into the status yet: milliseconds for which healthy pods without the target were watched, and harm to them.
    background: (u64, u64),
    background_since: Option<Millis>,
    /// When the last step went out.
    stepped: Option<Millis>,
    /// Since when all pods that are waited for have proven the target.
    pub(super) proven: Option<Millis>,
    /// When answers of spec.rollout.analysis came.
    pub(super) analysis: Memory,
    /// Until when harm is looked for after the version became current.
    pub(super) suspected_until: Option<Millis>,
    /// The most pods that had proven the target so far, and since when.
    pub(super) progress: Option<(usize, Millis)>,
    /// Since when the target can't be published.
    pub(super) unpublished: Option<Millis>,
    /// Since when nothing is waited for but time.
    pub(super) quiet: Option<Millis>,
    /// Whether the hub was away at the last look.
    hub_away: bool,
    /// Since when the hub is back, if it was away.
    hub_back: Option<Millis>,
    /// When a pod with the target was last there of which it counts what becomes of it.
    pub(super) judged: Option<Millis>,
}

impl Evidence {
    /// Begins to collect evidence about this target, unless that has begun.
    pub(super) fn collect_about(&mut self, target: &str) {
        if self.target.as_deref() == Some(target) {
            return;
        }
        let pods = std::mem::take(&mut self.pods);
        *self = Self {
            target: Some(target.to_owned()),
            begins: true,
            pods: pods.into_iter().map(|(uid, history)| (uid, history.for_another_target())).collect(),
            look: self.look,
            looked: self.looked,
            background: self.background,
            background_since: self.background_since,
            ..Self::default()
        };
    }

    /// Forgets the target: no version is on trial.
    pub(super) fn stop_collecting(&mut self) {
        if self.target.is_some() {
            self.collect_about("");
            self.target = None;
        }
    }

    /// Notes that nobody looked since the last look: pods must prove the target again, and what happened meanwhile is not harm.
    pub fn reset_after_gap(&mut self) {
        self.looked = None;
        self.proven = None;
        self.progress = None;
        self.quiet = None;
        // The evidence begins anew, with what it may err.
        self.epoch = self.epoch.saturating_sub(u32::from(self.epoch_began.take().is_some()));
        self.exposure = 0;
        self.harms.clear();
        self.at_risk = (0, 0);
        for history in self.pods.values_mut() {
            // Of one that is harmed still, this is seen at the next look, and it holds.
            (history.healthy, history.unready, history.role) = (None, None, history.role.mended());
        }
    }

    /// Notes that nodes could not be read, and nobody saw what they may have caused. Waits go on, up to their deadline.
    pub fn blind_to_nodes(&mut self) {
        let (progress, quiet) = (self.progress, self.quiet);
        self.reset_after_gap();
        (self.progress, self.quiet) = (progress, quiet);
    }

    /// Notes that another step went out, or that another stage began.
    pub(super) fn step(&mut self, now: Millis) {
        self.proven = None;
        self.stepped = Some(now);
        self.progress = Some((0, now));
    }

    /// Notes that the target is assigned to these pods now. Healthy pods judge the target, whatever happens to them before the next look.
    pub(super) fn assign<'a>(&mut self, pods: impl Iterator<Item = &'a Subject>, now: Millis, now_seconds: i64) {
        for pod in pods {
            if let Some(history) = self.pods.get_mut(pod.uid.as_str()) {
                history.assignment = Some(Assignment::Watched { since: now, notified: None });
                history.role = history.role.assigned(pod.is_healthy(now_seconds));
            }
        }
    }

    /// Begins the sums again after each 15 minutes, unless something that happened is not decided yet. Where nobody has looked for longer, all that
    /// time was quiet, as if there had been looks: what this look finds is weighed with what was watched since the last turn.
    fn turn_epoch(&mut self, window: u32, passed: u64, now: Millis) {
        let is_undecided = |harm: &Harm| {
            let unwell = !self.is_well(&harm.uid);
            harm.assigned && !harm.excused && (unwell || now < harm.compared_at().max(harm.at + 2 * seconds(window)))
        };
        if self.epoch_began.is_some_and(|began| now - began < EPOCH) || self.harms.iter().any(is_undecided) {
            return;
        }
        let turns = self.epoch_began.map_or(1, |began| (now - began) / EPOCH);
        let began = self.epoch_began.map_or(now, |began| began + turns * EPOCH);
        self.epoch = self.epoch.saturating_add(u32::try_from(turns).unwrap_or(u32::MAX));
        self.epoch_began = Some(began);
        let watched = u64::try_from(now - began).unwrap_or(0).min(passed);
        self.exposure = watched.saturating_mul(u64::from(self.at_risk.0));
        self.harms.clear();
        for history in self.pods.values_mut().filter(|history| history.healthy.is_some()) {
            history.role = history.role.mended();
        }
    }

    /// Returns how many times 15 minutes of evidence have begun.
    pub(super) fn epoch(&self) -> u32 {
        self.epoch.max(1)
    }

    /// Returns the pod-seconds for which healthy pods with the target were watched in this epoch.
    pub(super) fn exposure_seconds(&self) -> u64 {
        self.exposure / 1000
    }

    /// Returns the harms of this epoch that are not excused.
    pub(super) fn harms(&self) -> impl Iterator<Item = &Harm> {
        self.harms.iter().filter(|harm| !harm.excused)
    }

    /// Returns the numbers of healthy pods with the target, and without it, that were not harmed.
    pub(super) fn at_risk(&self) -> (u32, u32) {
        self.at_risk
    }

    /// Returns two pairs of numbers, for pods that had the target before this step and for pods that got it then: how many judge, and how many of
    /// these were harmed between both times.
    pub(super) fn by_age(&self, stepped: Millis, until: Millis) -> [(u32, u32); 2] {
        let harmed = |harm: &&Harm| harm.assigned && (stepped..until).contains(&harm.at);
        let harmed: HashSet<&str> = self.harms().filter(harmed).map(|harm| harm.uid.as_str()).collect();
        let mut counts = [(0, 0); 2];
        for (uid, history) in self.pods.iter().filter(|(_, history)| history.role.judges()) {
            let Some(assignment) = history.assignment else { continue };
            let (judges, fallen) = &mut counts[usize::from(assignment.since() >= stepped)];
            (*judges, *fallen) = (*judges + 1, *fallen + u32::from(harmed.contains(&**uid)));
        }
        counts
    }

    /// Returns when the last step went out.
    pub(super) fn stepped(&self) -> Option<Millis> {
        self.stepped
    }

    /// Returns when pods began to return, or when this leader first saw that they do.
    pub(super) fn began_to_return(&mut self, now: Millis) -> Millis {
        *self.stepped.get_or_insert(now)
    }

    /// Returns whether harm to the pod counts.
    pub(super) fn judges(&self, pod: &Subject) -> bool {
        self.pods.get(pod.uid.as_str()).is_some_and(|history| history.role.judges())
    }

    /// Returns whether the pod may show more about the target: it was not harmed, is healthy again, or was harmed for another reason a short time
    /// ago.
    pub(super) fn is_waited_for(&self, pod: &str, patience: Millis, now: Millis) -> bool {
        let Some(history) = self.pods.get(pod) else { return false };
        !history.role.is_harmed() || history.healthy.is_some() || history.excused.is_some_and(|at| now < at + patience)
    }

    /// Notes whether the hub is away: pods have all their time to acknowledge the target again when it is back.
    pub(super) fn note_hub(&mut self, away: bool, now: Millis) {
        if std::mem::replace(&mut self.hub_away, away) || away {
            self.hub_back = Some(now);
        }
    }

    /// Returns whether the pod is healthy now, or gone.
    pub(super) fn is_well(&self, pod: &str) -> bool {
        self.pods.get(pod).is_none_or(|history| history.healthy.is_some())
    }

    /// Returns since when the pod can acknowledge the target that is assigned to it.
    pub(super) fn assigned_since(&self, pod: &Subject) -> Option<Millis> {
        let assignment = self.pods.get(pod.uid.as_str()).and_then(|history| history.assignment);
        assignment.map(Assignment::since).max(self.hub_back)
    }

    /// Returns when harm will have lasted for long enough, or a pod will count again: the next look although nothing changes.
    pub(super) fn ripens(&self, window: u32, now: Millis) -> Option<Millis> {
        let pods = self.pods.values().filter(|history| !history.role.is_harmed());
        let times = pods.flat_map(|history| {
            let judges = history.role.judges();
            let harm = history.unready.filter(|_| judges).map(|since| since + UNREADY_TOLERANCE);
            let counts = history.healthy.filter(|_| !judges).map(|since| since + seconds(window));
            let starts = history.birth.filter(|birth| birth.growth == Growth::Starting).and_then(|birth| birth.due);
            [harm, counts, starts]
        });
        times.flatten().filter(|time| *time > now).min()
    }
}
