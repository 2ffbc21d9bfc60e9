//! The evidence of one leader about a config's pods: when each became healthy, which were harmed, and how long they
//! were watched.
//!
//! Evidence is kept in memory, and measured with a clock that never jumps. A new leader begins without evidence: events
//! that no leader observed do not count. Evidence about pods that are gone is dropped.

mod background;
mod excuse;
mod history;
mod newborns;
mod observe;
mod sighting;

use std::collections::{HashMap, HashSet};

use self::history::{Assignment, Growth, PodHistory};
use super::harm::Harm;
use crate::analysis::RoundMemory;
use crate::hub_health::HubAway;
use crate::keys::PodUid;
use crate::rollout::clock::{Millis, SteadyTime, seconds};
use crate::rollout::{PublishFailure, Subject};

/// The time that containers must be unready before this counts as harm.
pub(in crate::rollout) const UNREADY_TOLERANCE: Millis = 3_000;
/// How long evidence is added up before the sums restart.
const EPOCH: Millis = 900_000;

/// The evidence of one leader.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    observations: u64,
    /// The time of the last observation; `None` before the first one and after a gap.
    observed_at: Option<SteadyTime>,
    /// Whether a trial began or ended since the last observation.
    begins: bool,
    pods: HashMap<PodUid, PodHistory>,
    /// The pods that could have been harmed at the last observation.
    at_risk: AtRisk,
    epoch: Epoch,
    background: Background,
    /// The time when pods began to return, or when this leader first observed that they do.
    returning_since: Option<SteadyTime>,
    /// The evidence about the version on trial.
    pub(in crate::rollout) trial: Option<Trial>,
}

/// The evidence about a version on trial.
#[derive(Clone, Debug, Default)]
pub(in crate::rollout) struct Trial {
    /// The version of the assignments and harms.
    target: String,
    /// The harms of this epoch.
    harms: Vec<Harm>,
    /// The total time in milliseconds that healthy pods with the target were watched in this epoch.
    exposure: u64,
    /// The number of new pods with the target that fail.
    failing: usize,
    /// The time when the last step went out.
    pub(in crate::rollout) stepped_at: Option<SteadyTime>,
    /// The time when the last awaited pod proved the target; since then, no awaited pod has lost this state.
    pub(in crate::rollout) proven_since: Option<SteadyTime>,
    /// The times when answers of spec.rollout.analysis came.
    pub(in crate::rollout) analysis: RoundMemory,
    /// The time until which harm is looked for after the version became current.
    suspected_until: Option<SteadyTime>,
    progress: Option<ProvenProgress>,
    /// The time when the target first could not be published.
    pub(in crate::rollout) unpublished_since: Option<SteadyTime>,
    /// The time when the move began to wait only for time to pass.
    quiet_since: Option<SteadyTime>,
    hub_contact: HubContact,
    /// The time when a pod with the target last counted.
    pub(in crate::rollout) judged_at: Option<SteadyTime>,
}

/// The contact of pods to the hub during a trial.
#[derive(Clone, Copy, Debug, Default)]
enum HubContact {
    /// The hub was never away.
    #[default]
    Unbroken,
    /// The hub was away at the last observation, which was at this time.
    Lost(SteadyTime),
    /// The hub has been back since this time.
    Back(SteadyTime),
}

impl HubContact {
    /// Returns since when pods reach the hub, if it was away.
    fn since(self) -> Option<SteadyTime> {
        match self {
            Self::Unbroken => None,
            Self::Lost(time) | Self::Back(time) => Some(time),
        }
    }
}

/// The maximum number of pods that had proven the target so far, and the time when that number was reached.
#[derive(Clone, Copy, Debug)]
struct ProvenProgress {
    proven: usize,
    since: SteadyTime,
}

/// The numbers of healthy pods that were not harmed.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::rollout) struct AtRisk {
    /// The number of pods with the target.
    pub(in crate::rollout) assigned: u32,
    /// The number of pods without it.
    pub(in crate::rollout) unassigned: u32,
}

/// The judges of a group of pods with the target.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::rollout) struct HarmCount {
    pub(in crate::rollout) judges: u32,
    /// The number of judges that were harmed.
    pub(in crate::rollout) harmed: u32,
}

impl AtRisk {
    /// Returns the number of pods with the target if `assigned`, or else without it.
    fn of(&mut self, assigned: bool) -> &mut u32 {
        if assigned { &mut self.assigned } else { &mut self.unassigned }
    }
}

/// The 15 minutes whose evidence is added up.
#[derive(Clone, Copy, Debug, Default)]
struct Epoch {
    began: Option<SteadyTime>,
    number: u32,
}

/// The evidence about pods without the target that is not written into the status yet.
#[derive(Clone, Debug, Default)]
struct Background {
    since: Option<SteadyTime>,
    /// The total time in milliseconds that healthy pods were watched.
    watched: u64,
    harmed: u64,
}

impl Evidence {
    /// Begins to collect evidence about this target, unless that has begun.
    pub(in crate::rollout) fn collect_about(&mut self, target: &str) {
        if self.trial.as_ref().is_none_or(|trial| trial.target != target) {
            self.change_trial(Some(Trial { target: target.to_owned(), ..Trial::default() }));
        }
    }

    /// Ends the trial: no version is on trial any more.
    pub(in crate::rollout) fn stop_collecting(&mut self) {
        if self.trial.is_some() {
            self.change_trial(None);
        }
    }

    fn change_trial(&mut self, trial: Option<Trial>) {
        let pods = std::mem::take(&mut self.pods);
        *self = Self {
            observations: self.observations,
            observed_at: self.observed_at,
            begins: true,
            pods: pods.into_iter().map(|(uid, history)| (uid, history.for_another_target())).collect(),
            background: std::mem::take(&mut self.background),
            trial,
            ..Self::default()
        };
    }

    /// Notes that nothing was observed for a while: pods must prove the target again, and events in between are not
    /// harm.
    pub fn reset_after_gap(&mut self) {
        self.blind_to_nodes();
        if let Some(trial) = &mut self.trial {
            (trial.progress, trial.quiet_since) = (None, None);
        }
    }

    /// Notes that nodes could not be read, so that harm they may have caused was not seen. Waits continue up to their
    /// deadline.
    pub fn blind_to_nodes(&mut self) {
        self.observed_at = None;
        // The epoch begins again with the same error budget.
        self.epoch.number = self.epoch.number.saturating_sub(u32::from(self.epoch.began.take().is_some()));
        self.at_risk = AtRisk::default();
        if let Some(trial) = &mut self.trial {
            (trial.proven_since, trial.exposure) = (None, 0);
            trial.harms.clear();
        }
        for history in self.pods.values_mut() {
            // A pod that is harmed still shows this at the next observation, and holds the move.
            (history.healthy_since, history.unready_since, history.role) = (None, None, history.role.without_harm());
        }
    }

    /// Notes that another step went out, or that another stage began.
    pub(in crate::rollout) fn step(&mut self, now: SteadyTime) {
        if let Some(trial) = &mut self.trial {
            (trial.proven_since, trial.stepped_at) = (None, Some(now));
            trial.progress = Some(ProvenProgress { proven: 0, since: now });
        }
    }

    /// Notes that the target is assigned to these pods now. The health of pods that are healthy now counts as evidence,
    /// even if they fall before the next observation.
    pub(in crate::rollout) fn assign<'a>(
        &mut self,
        pods: impl Iterator<Item = &'a Subject>,
        now: SteadyTime,
        now_seconds: i64,
    ) {
        for pod in pods {
            if let Some(history) = self.pods.get_mut(&pod.uid) {
                history.assignment = Some(Assignment::Watched { since: now, notified: None });
                history.role = history.role.on_assignment(pod.is_healthy(now_seconds));
            }
        }
    }

    /// Begins the sums again every 15 minutes, unless a harm is still undecided. A longer time without observations
    /// counts as quiet, as if pods had been observed: new harm is weighed against the time watched since the last turn.
    fn turn_epoch(&mut self, watch_seconds: u32, passed: u64, now: SteadyTime) {
        let is_undecided = |harm: &Harm| {
            let unwell = !self.is_well(&harm.uid);
            harm.assigned && (unwell || now < harm.comparison_time().max(harm.at + 2 * seconds(watch_seconds)))
        };
        let Epoch { began, number } = self.epoch;
        if began.is_some_and(|began| now - began < EPOCH) || self.harms().any(is_undecided) {
            return;
        }
        let turns = began.map_or(1, |began| (now - began) / EPOCH);
        let began = began.map_or(now, |began| began + turns * EPOCH);
        let number = number.saturating_add(u32::try_from(turns).unwrap_or(u32::MAX));
        self.epoch = Epoch { began: Some(began), number };
        if let Some(trial) = &mut self.trial {
            let watched = u64::try_from(now - began).unwrap_or(0).min(passed);
            trial.exposure = watched.saturating_mul(u64::from(self.at_risk.assigned));
            trial.harms.clear();
        }
        for history in self.pods.values_mut().filter(|history| history.healthy_since.is_some()) {
            history.role = history.role.without_harm();
        }
    }

    /// Returns how many times 15 minutes of evidence have begun.
    pub(in crate::rollout) fn epoch(&self) -> u32 {
        self.epoch.number.max(1)
    }

    /// Returns the pod-seconds that healthy pods with the target were watched in this epoch.
    pub(in crate::rollout) fn exposure_seconds(&self) -> u64 {
        self.trial.as_ref().map_or(0, |trial| trial.exposure / 1000)
    }

    /// Returns the harms of this epoch that are not excused.
    pub(in crate::rollout) fn harms(&self) -> impl Iterator<Item = &Harm> {
        self.trial.iter().flat_map(|trial| &trial.harms).filter(|harm| !harm.excused)
    }

    /// Returns the numbers of healthy pods with the target, and without it, that were not harmed.
    pub(in crate::rollout) fn at_risk(&self) -> AtRisk {
        self.at_risk
    }

    /// Returns the judges that had the target before this step, and those that got it then, with the number of them
    /// that were harmed between both times.
    pub(in crate::rollout) fn by_age(&self, stepped: SteadyTime, until: SteadyTime) -> [HarmCount; 2] {
        let harmed = |harm: &&Harm| harm.assigned && (stepped..until).contains(&harm.at);
        let harmed: HashSet<&PodUid> = self.harms().filter(harmed).map(|harm| &harm.uid).collect();
        let mut counts = [HarmCount::default(); 2];
        for (uid, history) in self.pods.iter().filter(|(_, history)| history.role.judges()) {
            let Some(assignment) = history.assignment else { continue };
            let count = &mut counts[usize::from(assignment.since() >= stepped)];
            count.judges += 1;
            count.harmed += u32::from(harmed.contains(uid));
        }
        counts
    }

    /// Ends the trial, because pods return to another version.
    pub(in crate::rollout) fn begin_return(&mut self, now: SteadyTime) {
        self.stop_collecting();
        self.returning_since = Some(now);
    }

    /// Returns when pods began to return, or when this leader first observed that they do.
    pub(in crate::rollout) fn returning_since(&mut self, now: SteadyTime) -> SteadyTime {
        *self.returning_since.get_or_insert(now)
    }

    /// Returns since when all pods that are waited for have proven the target, which they have now.
    pub(in crate::rollout) fn proven_since(&mut self, now: SteadyTime) -> SteadyTime {
        self.trial.as_mut().map_or(now, |trial| *trial.proven_since.get_or_insert(now))
    }

    /// Notes that pods do not prove the target any more.
    pub(in crate::rollout) fn unprove(&mut self) {
        if let Some(trial) = &mut self.trial {
            trial.proven_since = None;
        }
    }

    /// Notes that the move waits only for time to pass.
    pub(in crate::rollout) fn note_quiet(&mut self, now: SteadyTime) {
        if let Some(trial) = &mut self.trial {
            trial.quiet_since.get_or_insert(now);
        }
    }

    /// Returns when the move is overdue, unless it makes progress. Time spent only watching the move does not count.
    /// Once that time is as long as the move may wait, earlier waits do not count either.
    pub(in crate::rollout) fn deadline(&mut self, proven: usize, max_wait: Millis, now: SteadyTime) -> SteadyTime {
        let Some(trial) = &mut self.trial else { return now + max_wait };
        let before = trial.progress.unwrap_or(ProvenProgress { proven: 0, since: now });
        let watched = trial.quiet_since.take().map_or(0, |quiet| now - quiet.max(before.since));
        let since = if proven > before.proven || watched >= max_wait { now } else { before.since + watched };
        trial.progress = Some(ProvenProgress { proven: proven.max(before.proven), since });
        since + max_wait
    }

    /// Notes whether publishing the target fails. Returns the time of the first failure.
    pub(in crate::rollout) fn unpublished_since(
        &mut self,
        failure: Option<&PublishFailure>,
        now: SteadyTime,
    ) -> Option<SteadyTime> {
        let trial = self.trial.as_mut()?;
        trial.unpublished_since = failure.map(|_| trial.unpublished_since.unwrap_or(now));
        trial.unpublished_since
    }

    /// Looks for harm up to this time after the version became current.
    pub(in crate::rollout) fn suspect_until(&mut self, time: SteadyTime) {
        if let Some(trial) = &mut self.trial {
            trial.suspected_until = Some(time);
        }
    }

    /// Returns until when harm is looked for after the version became current.
    pub(in crate::rollout) fn suspected_until(&self) -> Option<SteadyTime> {
        self.trial.as_ref()?.suspected_until
    }

    /// Returns whether harm to the pod counts.
    pub(in crate::rollout) fn judges(&self, pod: &Subject) -> bool {
        self.pods.get(&pod.uid).is_some_and(|history| history.role.judges())
    }

    /// Returns whether the pod may show more about the target: it was not harmed, is healthy again, or was harmed for
    /// another reason a short time ago.
    pub(in crate::rollout) fn is_waited_for(&self, pod: &PodUid, patience: Millis, now: SteadyTime) -> bool {
        let Some(history) = self.pods.get(pod) else { return false };
        !history.role.is_harmed()
            || history.healthy_since.is_some()
            || history.excused_at.is_some_and(|excused_at| now < excused_at + patience)
    }

    /// Notes whether the hub is away: pods have all their time to acknowledge the target again when it is back.
    pub(in crate::rollout) fn note_hub(&mut self, away: Option<HubAway>, now: SteadyTime) {
        let Some(trial) = &mut self.trial else { return };
        trial.hub_contact = match (away, trial.hub_contact) {
            (Some(_), _) => HubContact::Lost(now),
            (None, HubContact::Lost(_)) => HubContact::Back(now),
            (None, contact) => contact,
        };
    }

    /// Returns whether the pod is healthy now, or gone.
    pub(in crate::rollout) fn is_well(&self, pod: &PodUid) -> bool {
        self.pods.get(pod).is_none_or(|history| history.healthy_since.is_some())
    }

    /// Returns since when the pod can acknowledge the target that is assigned to it.
    pub(in crate::rollout) fn assigned_since(&self, pod: &Subject) -> Option<SteadyTime> {
        let assignment = self.pods.get(&pod.uid).and_then(|history| history.assignment);
        assignment.map(Assignment::since).max(self.trial.as_ref().and_then(|trial| trial.hub_contact.since()))
    }

    /// Returns when harm will have lasted for long enough, or a pod will count again: the time of the next observation
    /// although nothing changes.
    pub(in crate::rollout) fn ripens(&self, watch_seconds: u32, now: SteadyTime) -> Option<SteadyTime> {
        let pods = self.pods.values().filter(|history| !history.role.is_harmed());
        let times = pods.flat_map(|history| {
            let judges = history.role.judges();
            let harm = history.unready_since.filter(|_| judges).map(|since| since + UNREADY_TOLERANCE);
            let counts = history.healthy_since.filter(|_| !judges).map(|since| since + seconds(watch_seconds));
            let starts = history.birth.filter(|birth| birth.growth == Growth::Starting).and_then(|birth| birth.due);
            [harm, counts, starts]
        });
        times.flatten().filter(|time| *time > now).min()
    }
}
