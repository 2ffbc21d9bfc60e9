//! The judgement of a step or of the bake by the numbers of `spec.rollout.analysis`, and the pods whose numbers are
//! requested.

use std::collections::HashSet;

use nudge_api::{AnalysisStatus, Reason, RolloutAnalysisSpec};

use super::evidence::Evidence;
use super::tally::Tally;
use crate::analysis::{RoundJudgement, RoundStart, RoundVerdict, VersionNames, judge_round, sample_pods};
use crate::owners::WorkloadId;
use crate::rollout::state::{Rollout, Stage, Transfer};
use crate::rollout::{Effects, Observation, Subject};

/// Returns whether numbers judge versions now. A version that can't wait does not wait for them.
fn is_analyzed(observation: &Observation<'_>) -> bool {
    !observation.spec.analysis.is_empty() && observation.override_reason.is_none()
}

/// Judges the numbers since the pods of this step have proven the target; `None` before that.
pub(in crate::rollout) fn judge_analyses(
    transfer: &Transfer,
    evidence: &mut Evidence,
    observation: &Observation<'_>,
) -> Option<RoundJudgement> {
    if !is_analyzed(observation) {
        return None;
    }
    begin_round(evidence, observation)?;
    let memory = &mut evidence.trial.as_mut()?.analysis;
    let now = observation.now.steady.0;
    let names = VersionNames { target: &transfer.target, current: &transfer.base.current };
    Some(judge_round(&observation.spec.analysis, observation.measured, memory, names, transfer.step <= 1, now))
}

/// Returns the name of the round of answers that count.
fn begin_round<'a>(evidence: &'a mut Evidence, observation: &Observation<'_>) -> Option<&'a str> {
    let trial = evidence.trial.as_mut()?;
    let proven = trial.proven_since?;
    let generation = observation.generation;
    // By the time of day: another leader has another steady clock.
    let name = || format!("{generation}-{}", observation.now.time.0.as_microsecond());
    Some(trial.analysis.round(RoundStart { at: proven.0, generation }, name))
}

/// Returns the numbers for the status: the last numbers stay until there are newer numbers.
pub(in crate::rollout) fn analysis_statuses(
    transfer: &Transfer,
    judgement: Option<&RoundJudgement>,
    observation: &Observation<'_>,
) -> Vec<AnalysisStatus> {
    match judgement {
        Some(judgement) => judgement.numbers.clone(),
        None if is_analyzed(observation) => {
            transfer.evidence.as_ref().map(|evidence| evidence.analysis.clone()).unwrap_or_default()
        }
        None => Vec::new(),
    }
}

/// Returns why the numbers hold the move, or nothing if they are good. The progress deadline does not end the hold: the
/// version is not to blame if numbers can't be measured.
pub(in crate::rollout) fn analysis_wait(
    judgement: Option<&RoundJudgement>,
    tally: &Tally,
    observation: &Observation<'_>,
) -> Option<Effects> {
    if !is_analyzed(observation) || tally.judges == 0 {
        return None;
    }
    // The pods have proven the target a moment ago.
    let Some(RoundJudgement { verdict, recheck_after, .. }) = judgement else {
        let message = "the numbers of spec.rollout.analysis are not known yet".to_owned();
        return Some(Effects::wait(Reason::Progressing, message, Some(observation.now.steady)));
    };
    let recheck_at = Some(observation.now.steady + *recheck_after);
    match verdict {
        RoundVerdict::Clear | RoundVerdict::Bad(_) => None,
        RoundVerdict::Pending(message) => Some(Effects::wait(Reason::Progressing, message.clone(), recheck_at)),
        RoundVerdict::Inconclusive(message) => Some(Effects {
            reconcile_at: recheck_at,
            ..Effects::blocked(Reason::AnalysisInconclusive, message.clone())
        }),
    }
}

/// Returns the pods whose numbers should be requested.
pub(in crate::rollout) fn question(
    rollout: &Rollout,
    evidence: &mut Evidence,
    observation: &Observation<'_>,
) -> Option<RolloutAnalysisSpec> {
    let Rollout::Forward(transfer) = rollout else { return None };
    if !is_analyzed(observation) || transfer.stopped_by.is_some() || transfer.stage == Stage::Restarting {
        return None;
    }
    let round = begin_round(evidence, observation)?.to_owned();
    let is_assigned = |pod: &&Subject| transfer.thresholds.is_assigned(pod);
    let is_affected = |pod: &&Subject| pod.has_taken(&transfer.target) && !pod.is_unaffected_by(&transfer.target);
    let pods: Vec<&Subject> = observation.pods.iter().filter(is_assigned).filter(is_affected).collect();
    let runs_current = |pod: &&Subject| pod.is_reachable() && pod.runs.as_ref() == Some(&transfer.base.current);
    let others: Vec<&Subject> = observation.pods.iter().filter(|pod| !is_assigned(pod)).filter(runs_current).collect();
    // Other workloads have other numbers.
    let workloads: HashSet<Option<&WorkloadId>> = pods.iter().map(|pod| pod.workload.as_ref()).collect();
    let alike: Vec<&Subject> =
        others.iter().copied().filter(|pod| workloads.contains(&pod.workload.as_ref())).collect();
    let control = if alike.is_empty() { others } else { alike };
    // The order differs from the order of moving, or the sample would be the first step alone.
    let names = |pods: &[&Subject]| sample_pods(pods.iter().map(|pod| (pod.number.reverse_bits(), pod.name.as_str())));
    Some(RolloutAnalysisSpec {
        target_version: Some(transfer.target.clone()),
        generation: observation.generation,
        round,
        pods: names(&pods),
        control: names(&control),
    })
}
