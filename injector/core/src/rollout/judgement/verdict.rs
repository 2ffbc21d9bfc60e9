//! The verdict of the numbers on the target.
//!
//! Harm to pods with the target is weighed twice. Against chance: the probability that at least k pods are harmed
//! without any cause is below 0.001 × 2⁻ᵏ. Harm to k pods during E watched pod-seconds is a Poisson process. Since the
//! probabilities of all k add up to 0.001, a check after each harm is wrong in one rollout of a thousand. Against the
//! environment: if pods without the target were harmed too, the probability that at least this many of the harmed pods
//! have the target by chance is below 0.001. Each harm counts with the share of pods that had the target at that time
//! (the log-rank test; Mantel 1966). The number of harmed pods with the target has a Poisson binomial distribution.

use nudge_api::{BackgroundStatus, EvidenceStatus, Reason};
use nudge_protocol::plural::counted;

use super::Verdict;
use super::evidence::{AtRisk, Evidence};
use super::harm::{Harm, HarmKind};
use super::newborn_verdict::judge_newborns;
use super::probability::{poisson_binomial_tail, poisson_tail};
use crate::analysis::VersionNames;
use crate::rollout::Observation;
use crate::rollout::clock::{Millis, SteadyTime, seconds};

/// The maximum share of rollouts that are rolled back by chance.
const MAX_ERROR_RATE: f64 = 0.001;
const WEEK_SECONDS: u64 = 604_800;
/// The minimum rate of harm by chance: one harm per pod and week.
const MIN_HARM_RATE: f64 = 1.0 / 604_800.0;
/// The minimum probability of harm by chance that does not hold the rollout.
const MIN_EXPECTED_PROBABILITY: f64 = 0.05;

/// Returns the rate of harm by chance, per pod and second.
fn harm_rate(observation: &Observation<'_>) -> f64 {
    // Less than one pod-week is not enough for a rate: a bad first hour would excuse every version.
    #[allow(clippy::cast_precision_loss)] // numbers of harm and of pod-seconds in two weeks
    let own_rate = |status: &BackgroundStatus| status.harmed as f64 / status.pod_seconds.max(WEEK_SECONDS) as f64;
    observation.background.map_or(0.0, own_rate).max(MIN_HARM_RATE)
}

/// Returns how much of the error may be spent in this part of the evidence: most of it in the first 15 minutes, and all
/// parts together spend no more than the error.
pub(in crate::rollout) fn error_share(epoch: u32) -> f64 {
    if epoch <= 1 { 0.9 * MAX_ERROR_RATE } else { 0.1 * MAX_ERROR_RATE / f64::from(epoch) / f64::from(epoch - 1) }
}

/// The harm to pods with the target, and the facts that decide its weight.
struct HarmReview<'a> {
    evidence: &'a Evidence,
    observation: &'a Observation<'a>,
    harms: Vec<&'a Harm>,
    numbers: EvidenceStatus,
    /// The time when harm begins to count that can't be compared with other pods.
    patience: Millis,
    /// The time until which harm may have a cause from before the last step; `None` if nothing suggests that.
    sudden_harm_end: Option<SteadyTime>,
}

impl<'a> HarmReview<'a> {
    fn new(evidence: &'a Evidence, observation: &'a Observation<'a>, harms: Vec<&'a Harm>, watch_seconds: u32) -> Self {
        let numbers = evidence_status(evidence);
        let patience = 2 * seconds(watch_seconds);
        let mut review = Self { evidence, observation, harms, numbers, patience, sudden_harm_end: None };
        if !review.has_unharmed_others() {
            review.sudden_harm_end = sudden_harm_end(evidence, watch_seconds);
        }
        review
    }

    /// Returns whether there are unharmed pods without the target to compare with.
    fn has_unharmed_others(&self) -> bool {
        self.numbers.unassigned > self.numbers.unassigned_harmed
    }

    /// Returns when the harm has been compared with other pods.
    fn due_at(&self, harm: &Harm) -> SteadyTime {
        match self.has_unharmed_others() {
            _ if harm.is_immediate() => harm.at,
            true => harm.comparison_time(),
            false => harm.at + self.patience,
        }
    }

    /// Returns whether the harm is evidence. Without other pods to compare with, unreadiness that has ended is no
    /// evidence, but a restart is.
    fn counts_as_evidence(&self, harm: &Harm) -> bool {
        self.has_unharmed_others() || !harm.kind.is_state() || !self.evidence.is_well(&harm.uid)
    }

    /// Returns whether the harm counts now.
    fn is_due(&self, harm: &Harm) -> bool {
        self.observation.now.steady >= self.due_at(harm)
            && (harm.is_immediate() || self.counts_as_evidence(harm))
            && self.sudden_harm_end.is_none_or(|end| harm.at >= end)
    }

    /// Returns whether the harm that counts now shows that the target is bad.
    fn is_target_bad(&self) -> bool {
        let due: Vec<&Harm> = self.harms.iter().copied().filter(|harm| self.is_due(harm)).collect();
        self.is_too_many(due.len()) && self.rules_out_environment(&due)
    }

    fn is_too_many(&self, harmed: usize) -> bool {
        let harmed = u32::try_from(harmed).unwrap_or(u32::MAX);
        if harmed == 0 {
            return false;
        }
        match &self.observation.spec.max_harmed {
            Some(max) => u64::from(harmed) > max.limit_of(u64::from(self.numbers.assigned)),
            None => too_many_by_chance(expected_harms(self.evidence, self.observation), harmed, self.evidence.epoch()),
        }
    }

    /// Returns whether the harm is unrelated to the harm of pods without the target: more of the harmed pods have the
    /// target than by chance, or enough of them were harmed long after.
    fn rules_out_environment(&self, due: &[&Harm]) -> bool {
        let others = self.evidence.harms().filter(|harm| !harm.assigned);
        let Some(last) = others.map(|harm| harm.at).max() else { return true };
        if self.is_too_many(due.iter().filter(|harm| harm.at > last + self.patience).count()) {
            return true;
        }
        // If all pods had the target, a harm says nothing about pods without it.
        let compared = |harm: &Harm| harm.share < 1.0;
        let shares: Vec<f64> = self.evidence.harms().filter(|harm| compared(harm)).map(|harm| harm.share).collect();
        let count = due.iter().filter(|harm| compared(harm)).count();
        count > 0 && poisson_binomial_tail(&shares, u32::try_from(count).unwrap_or(u32::MAX)) < MAX_ERROR_RATE
    }

    /// Returns whether some harm is not compared yet.
    fn is_undecided(&self) -> bool {
        let now = self.observation.now.steady;
        self.harms.iter().any(|harm| now < self.due_at(harm) && self.counts_as_evidence(harm))
    }

    fn has_unwell_pods(&self) -> bool {
        self.harms.iter().any(|harm| !self.evidence.is_well(&harm.uid))
    }

    /// Returns whether the rollout waits for unwell pods without a limit. Harm that is expected by chance does not hold
    /// it.
    fn must_wait(&self) -> bool {
        self.observation.spec.max_harmed.is_none()
            && (self.sudden_harm_end.is_some()
                || self.numbers.unassigned_harmed > 0
                || harm_probability(self.evidence, self.observation, self.numbers.harmed) < MIN_EXPECTED_PROBABILITY)
    }
}

/// Reaches the verdict. `watch_seconds` is the time that a step is watched.
pub(in crate::rollout) fn reach_verdict(
    evidence: &Evidence,
    observation: &Observation<'_>,
    names: VersionNames<'_>,
    watch_seconds: u32,
) -> Verdict {
    let now = observation.now.steady;
    let harms: Vec<&Harm> = evidence.harms().filter(|harm| harm.assigned).collect();
    if observation.spec.max_harmed.is_none()
        && let Some((harm, why)) = harms.iter().find_map(|harm| match &harm.kind {
            HarmKind::Reported(why) => Some((harm, why)),
            _ => None,
        })
    {
        let message = format!("pod {} reported about version {}: {}", harm.name, names.target, why.message);
        return Verdict::Bad(why.reason.explained(message));
    }
    let Some(&first) = harms.first() else { return judge_newborns(evidence, observation, names) };
    let review = HarmReview::new(evidence, observation, harms, watch_seconds);
    let description = describe_evidence(&review.numbers, names.target, names.current);
    if review.is_target_bad() {
        return Verdict::Bad(first.kind.reason().explained(description));
    }
    let must_wait = review.must_wait();
    let patience_end = first.at + review.patience;
    if review.is_undecided() || (review.has_unwell_pods() && (must_wait || now < patience_end)) {
        let message = format!(
            "{description}: the version may not be the cause. No more pods get version {} until these are Ready again",
            names.target
        );
        let times = review.harms.iter().map(|harm| review.due_at(harm)).chain([patience_end]);
        let reconcile_at = times.filter(|time| *time > now).min();
        return Verdict::Inconclusive { message, reconcile_at, expected: !must_wait };
    }
    judge_newborns(evidence, observation, names)
}

/// Returns how many pods with the target are harmed by chance, on average.
fn expected_harms(evidence: &Evidence, observation: &Observation<'_>) -> f64 {
    #[allow(clippy::cast_precision_loss)] // pod-seconds of 15 minutes
    let exposure = evidence.exposure_seconds() as f64;
    exposure * harm_rate(observation)
}

/// Returns the probability that at least `harmed` pods with the target are harmed by chance.
fn harm_probability(evidence: &Evidence, observation: &Observation<'_>, harmed: u32) -> f64 {
    poisson_tail(expected_harms(evidence, observation), harmed)
}

/// Returns whether `harmed` pods are too many if `expected` are expected, in this part of the evidence.
pub(in crate::rollout) fn too_many_by_chance(expected: f64, harmed: u32, epoch: u32) -> bool {
    poisson_tail(expected, harmed) < error_share(epoch) * 0.5_f64.powi(harmed.min(1000).cast_signed())
}

/// Returns whether it is likely enough that `harmed` pods are harmed by chance.
pub(in crate::rollout) fn is_expected(evidence: &Evidence, observation: &Observation<'_>, harmed: usize) -> bool {
    observation.spec.max_harmed.is_none()
        && harm_probability(evidence, observation, u32::try_from(harmed).unwrap_or(u32::MAX))
            >= MIN_EXPECTED_PROBABILITY
}

/// Returns the time when harm counts again after sudden harm. Harm is sudden if a cause other than the target seems to
/// harm all pods: the harmed share of the pods that had the target before is at least half as large as that of the pods
/// that had just got it. The target would have harmed the earlier pods earlier. Probes need a while to notice such a
/// cause.
fn sudden_harm_end(evidence: &Evidence, watch_seconds: u32) -> Option<SteadyTime> {
    let stepped = evidence.trial.as_ref()?.stepped_at?;
    let until = stepped + 2 * seconds(watch_seconds);
    let first = evidence.harms().find(|harm| harm.assigned && harm.at >= stepped)?;
    if first.is_immediate() || first.at >= stepped + seconds(watch_seconds) {
        return None;
    }
    let [longer, fresh] = evidence.by_age(stepped, until);
    let product = |harmed: u32, judges: u32| u64::from(harmed) * u64::from(judges);
    let is_sudden =
        longer.harmed > 0 && 2 * product(longer.harmed, fresh.judges) >= product(fresh.harmed, longer.judges);
    is_sudden.then_some(until)
}

/// Returns the numbers of the evidence.
pub(in crate::rollout) fn evidence_status(evidence: &Evidence) -> EvidenceStatus {
    let count = |assigned: bool| {
        let harms = evidence.harms().filter(|harm| harm.assigned == assigned).count();
        u32::try_from(harms).unwrap_or(u32::MAX)
    };
    let harmed = count(true);
    let unassigned_harmed = count(false);
    let AtRisk { assigned, unassigned } = evidence.at_risk();
    let reasons = || evidence.harms().filter(|harm| harm.assigned).map(|harm| harm.kind.reason());
    EvidenceStatus {
        assigned: assigned + harmed,
        harmed,
        unassigned: unassigned + unassigned_harmed,
        unassigned_harmed,
        not_waited_for: 0,
        unchanged: 0,
        reason: reasons().next().filter(|first| reasons().all(|other| other == *first)),
        first: evidence.harms().find(|harm| harm.assigned).map(Harm::status),
        analysis: Vec::new(),
    }
}

/// Returns the numbers in words, such as: 3 of 40 pods on 1.0.2 became unready (first: web-7d, 12 s after its
/// notification); of 120 on 1.0.1 none.
pub fn describe_evidence(numbers: &EvidenceStatus, target: &str, current: &str) -> String {
    let verb = match numbers.reason {
        Some(Reason::PodNotReady) => "became unready",
        Some(Reason::ContainerRestarted) => "restarted",
        Some(Reason::NotVerified) => "did not show that the version was taken",
        _ if numbers.harmed == 1 => "was harmed",
        _ => "were harmed",
    };
    let first = numbers.first.as_ref().map_or_else(String::new, |first| {
        let after = match first.after_seconds {
            Some(..0) => ", before its notification was seen".to_owned(),
            Some(seconds) => format!(", {seconds} s after its notification"),
            None => String::new(),
        };
        format!(" (first: {}{after})", first.name)
    });
    let others = match (numbers.unassigned, numbers.unassigned_harmed) {
        (0, _) => format!("no pod runs {current} to compare with"),
        (all, 0) => format!("of {all} on {current} none"),
        (all, harmed) => format!("of {all} on {current} {harmed}"),
    };
    let pods = counted(numbers.assigned, "pod");
    format!("{} of {pods} on {target} {verb}{first}; {others}", numbers.harmed)
}
