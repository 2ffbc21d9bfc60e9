//! How far a rollout is and how its target is judged, as `kubectl nudge status` says it.

use std::fmt;

use nudge_api::{AnalysisStatus, EvidenceStatus, Pods, ReleaseOverride, VersionedConfig, Watch};
use nudge_core::rollout::{ALL, describe_evidence};
use serde::Serialize;

/// How far a rollout is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StepReport {
    /// How many steps went out.
    number: usize,
    /// How many there are.
    of: usize,
    /// The version that pods are moved to.
    version: String,
    /// How many pods it is assigned to.
    assigned: usize,
    /// How many pods there are that have not ended; none where they may not be listed.
    pods: usize,
    /// Why it was assigned to all pods at once, without any step; empty where `spec.rollout.override` does not say it
    /// any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    at_once: Option<String>,
}

/// How far a rollout is, without its pods.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Reached {
    /// How many steps went out.
    step: usize,
    /// How many there are.
    of: usize,
    /// All pods have the version without any step.
    at_once: bool,
}

/// How far the rollout is; nothing where no step went out.
pub(crate) fn reached(config: &VersionedConfig) -> Option<Reached> {
    step(config, (0, 0)).map(|it| Reached { step: it.number, of: it.of, at_once: it.at_once.is_some() })
}

/// The step of a move; nothing where none went out.
pub(super) fn step(config: &VersionedConfig, (assigned, pods): (usize, usize)) -> Option<StepReport> {
    let status = config.status.as_ref()?;
    let (version, step, threshold) = (status.target_version.clone()?, status.rollout.step, status.internal.threshold);
    if step == 0 && threshold == 0 {
        return None;
    }
    let steps = &config.spec.rollout.steps;
    // The last step is all pods, also where it is not listed.
    let ends = steps.last().is_some_and(|last| last.selector.is_none() && last.pods == Pods::Share("100%".to_owned()));
    let of = steps.len() + usize::from(!ends);
    let reason = config.spec.rollout.overridden.as_ref().filter(|it| it.version == version).map(|it| it.reason.clone());
    let at_once = (step == 0 && threshold == ALL).then(|| reason.unwrap_or_default());
    Some(StepReport {
        // The list may be shorter now than it was.
        number: usize::try_from(step).unwrap_or(of).min(of),
        of,
        version,
        assigned,
        pods,
        at_once,
    })
}

impl fmt::Display for StepReport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.at_once {
            Some(reason) if reason.is_empty() => write!(out, "all pods at once")?,
            Some(reason) => write!(out, "all pods at once ({reason})")?,
            None => write!(out, "{} of {}", self.number, self.of)?,
        }
        if self.pods > 0 {
            write!(out, ", version {} is assigned to {} of {} pods", self.version, self.assigned, self.pods)?;
        }
        Ok(())
    }
}

/// How long a step is watched, and why.
pub(super) fn said_of_watch(Watch { seconds, reason, weak }: &Watch) -> String {
    let weak = weak.as_ref().map_or_else(String::new, |weak| format!("; weak evidence: {weak}"));
    format!("{seconds} s for each step, because {reason}{weak}")
}

/// The last numbers of an analysis, such as: errors 0.25 on 1.0.2, 0.002 on 1.0.1: Bad, measured 2026-11-25T08:00:00Z.
pub(crate) fn said_of_analysis(analysis: &AnalysisStatus, target: &str, current: &str) -> String {
    let AnalysisStatus { name, verdict, target: number, control, measure_time } = analysis;
    let control = control.as_ref().map_or_else(String::new, |control| format!(", {control} on {current}"));
    let numbers =
        number.as_ref().map_or_else(|| "no number".to_owned(), |number| format!("{number} on {target}{control}"));
    let measured =
        measure_time.as_ref().map_or_else(|| "not measured yet".to_owned(), |time| format!("measured {}", time.0));
    format!("{name} {numbers}: {verdict:?}, {measured}")
}

/// Who had a version assigned to all pods at once, and why.
pub(crate) fn said_of_override(it: &ReleaseOverride) -> String {
    let by = it.requested_by.as_deref().unwrap_or("<unknown>");
    format!("at once for {by}: {}", it.reason)
}

/// The evidence in numbers.
pub(crate) fn said_of_evidence(evidence: &EvidenceStatus, target: &str, current: &str) -> String {
    let not_waited_for = match evidence.not_waited_for {
        0 => String::new(),
        count => format!("; {count} not waited for"),
    };
    format!("{}{not_waited_for}", describe_evidence(evidence, target, current))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn message(evidence: Value) -> String {
        said_of_evidence(&serde_json::from_value(evidence).unwrap(), "1.0.2", "1.0.1")
    }

    #[test]
    fn the_evidence_is_said_in_numbers() {
        let first = |after: i64| json!({"name": "web-7d", "reason": "PodNotReady", "afterSeconds": after});
        assert_eq!(
            message(
                json!({"assigned": 40, "harmed": 3, "unassigned": 120, "reason": "PodNotReady", "first": first(12)})
            ),
            "3 of 40 pods on 1.0.2 became unready (first: web-7d, 12 s after its notification); of 120 on 1.0.1 none"
        );
        assert_eq!(
            message(
                json!({"assigned": 1, "harmed": 1, "reason": "ContainerRestarted", "first": first(-1), "notWaitedFor": 2})
            ),
            "1 of 1 pod on 1.0.2 restarted (first: web-7d, before its notification was seen); no pod runs 1.0.1 to compare with; 2 not \
             waited for"
        );
        assert_eq!(
            message(json!({"assigned": 10, "harmed": 2, "unassigned": 30, "first": first(3)})),
            "2 of 10 pods on 1.0.2 were harmed (first: web-7d, 3 s after its notification); of 30 on 1.0.1 none"
        );
        assert_eq!(
            message(json!({"assigned": 10, "unassigned": 30, "unassignedHarmed": 4})),
            "0 of 10 pods on 1.0.2 were harmed; of 30 on 1.0.1 4"
        );
    }

    #[test]
    fn steps_are_counted_with_the_last_one() {
        let said = |spec: Value, went: u32, threshold: u64| {
            let config = serde_json::from_value(json!({
                "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": "shop"},
                "spec": spec, "status": {"currentVersion": "1", "targetVersion": "2",
                    "rollout": {"stage": "Moving", "step": went}, "internal": {"threshold": threshold}},
            }));
            step(&config.unwrap(), (2, 8)).map(|step| step.to_string())
        };
        let two_of = |steps: Value| said(json!({"rollout": {"steps": steps}}), 2, 7).unwrap();
        assert_eq!(two_of(json!([{"pods": 1}, {"pods": "100%"}])), "2 of 2, version 2 is assigned to 2 of 8 pods");
        assert_eq!(two_of(json!([{"pods": 1}, {"pods": "50%"}])), "2 of 3, version 2 is assigned to 2 of 8 pods");
        let canary = json!({"pods": "100%", "selector": {"matchLabels": {"zone": "a"}}});
        assert_eq!(two_of(json!([{"pods": 1}, canary])), "2 of 3, version 2 is assigned to 2 of 8 pods");
        assert_eq!(said(json!({}), 0, 0), None);
        let at_once = json!({"version": "2", "reason": "leaked key", "untilTime": "2026-01-01T12:00:00Z"});
        let now = json!({"rollout": {"override": at_once}});
        let all = "all pods at once (leaked key), version 2 is assigned to 2 of 8 pods";
        assert_eq!(said(now.clone(), 0, ALL).as_deref(), Some(all));
        let shown = |spec: &Value, went, threshold| said(spec.clone(), went, threshold).unwrap();
        let gone = shown(&json!({}), 0, ALL);
        assert_eq!(
            gone, "all pods at once, version 2 is assigned to 2 of 8 pods",
            "the override was removed meanwhile"
        );
        assert_eq!(shown(&now, 1, 9), "1 of 4, version 2 is assigned to 2 of 8 pods");
        let by_steps = shown(&now, 4, ALL);
        assert_eq!(by_steps, "4 of 4, version 2 is assigned to 2 of 8 pods", "steps had reached all pods before");
        let shortened = json!({"rollout": {"steps": [{"pods": 1}, {"pods": "100%"}]}});
        assert_eq!(shown(&shortened, 4, 9), "2 of 2, version 2 is assigned to 2 of 8 pods");
    }
}
