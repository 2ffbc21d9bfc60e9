//! What the numbers of `spec.rollout.analysis` say of a step or of the bake, and whose numbers are asked for.

use std::collections::HashSet;

use nudge_api::{AnalysisStatus, Reason, RolloutAnalysisSpec};

use super::acknowledgements::Tally;
use super::evidence::Evidence;
use super::state::{Move, Rollout, Stage};
use super::{Effects, Now, Observation, Subject};
use crate::analysis::{Judgement, Names, Verdict, judge, sample};

/// Returns whether numbers judge versions now. A version that can't wait does not wait for them.
fn judges(seen: &Observation<'_>) -> bool {
    !seen.spec.analysis.is_empty() && seen.at_once.is_none()
}

/// Returns what the numbers say since the pods of this step have proven the target; `None` before that.
pub(super) fn measured(
    moved: &Move,
    evidence: &mut Evidence,
    seen: &Observation<'_>,
    now: Now<'_>,
) -> Option<Judgement> {
    if !judges(seen) {
        return None;
    }
    begin(evidence, seen, now)?;
    let (spec, names) = (&seen.spec.analysis, Names { target: &moved.target, current: &moved.base.current });
    Some(judge(spec, seen.measured, &mut evidence.analysis, names, moved.step <= 1, now.steady))
}

/// Returns the name of the round of answers that count.
fn begin<'a>(evidence: &'a mut Evidence, seen: &Observation<'_>, now: Now<'_>) -> Option<&'a str> {
    let (proven, generation) = (evidence.proven?, seen.generation);
    // By the time of day: another leader has another steady clock.
    let name = || format!("{generation}-{}", now.time.0.as_microsecond());
    Some(evidence.analysis.round((proven, generation), name))
}

/// Returns what the status says of the numbers: the last ones stay while there are no others.
pub(super) fn shown(moved: &Move, measured: Option<&Judgement>, seen: &Observation<'_>) -> Vec<AnalysisStatus> {
    match measured {
        Some(measured) => measured.numbers.clone(),
        None if judges(seen) => moved.evidence.as_ref().map(|known| known.analysis.clone()).unwrap_or_default(),
        None => Vec::new(),
    }
}

/// Returns why the numbers hold the move, or nothing where they are good. The progress deadline does not end that: what can't be measured is no fault
/// of the version.
pub(super) fn waits(
    measured: Option<&Judgement>,
    tally: &Tally,
    seen: &Observation<'_>,
    now: Now<'_>,
) -> Option<Effects> {
    if !judges(seen) || tally.judges == 0 {
        return None;
    }
    // The pods have proven the target a moment ago.
    let Some(Judgement { verdict, again, .. }) = measured else {
        let message = "the numbers of spec.rollout.analysis are not known yet".to_owned();
        return Some(Effects::waits(Reason::Progressing, message, Some(now.steady)));
    };
    let again = Some(now.steady + again);
    match verdict {
        Verdict::Clear | Verdict::Bad(_) => None,
        Verdict::Pending(message) => Some(Effects::waits(Reason::Progressing, message.clone(), again)),
        Verdict::Inconclusive(message) => {
            Some(Effects { look_again: again, ..Effects::held(Reason::AnalysisInconclusive, message.clone()) })
        }
    }
}

/// Returns the pods whose numbers are to be asked for.
pub(super) fn question(
    rollout: &Rollout,
    evidence: &mut Evidence,
    seen: &Observation<'_>,
    now: Now<'_>,
) -> Option<RolloutAnalysisSpec> {
    let Rollout::Forward(moved, Stage::Moving | Stage::Baking) = rollout else { return None };
    if !judges(seen) || moved.failure.is_some() {
        return None;
    }
    let round = begin(evidence, seen, now)?.to_owned();
    let has = |pod: &&Subject| moved.thresholds.is_assigned(pod);
    let pods: Vec<&Subject> = seen.pods.iter().filter(has).filter(|pod| pod.has_taken(&moved.target)).collect();
    let runs = |pod: &&Subject| pod.is_reachable() && pod.runs.as_ref() == Some(&moved.base.current);
    let others: Vec<&Subject> = seen.pods.iter().filter(|pod| !has(pod)).filter(runs).collect();
    // Other workloads have other numbers.
    let workloads: HashSet<&str> = pods.iter().map(|pod| pod.workload.as_str()).collect();
    let alike: Vec<&Subject> = others.iter().copied().filter(|pod| workloads.contains(&*pod.workload)).collect();
    let control = if alike.is_empty() { others } else { alike };
    // Another order than that in which they are moved: else the sample would be the first step alone.
    let names = |pods: &[&Subject]| sample(pods.iter().map(|pod| (pod.number.reverse_bits(), pod.name.as_str())));
    Some(RolloutAnalysisSpec {
        target_version: Some(moved.target.clone()),
        generation: seen.generation,
        round,
        pods: names(&pods),
        control: names(&control),
    })
}
