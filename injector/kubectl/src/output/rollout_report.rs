//! The progress of a rollout and the evidence about its target, as `kubectl nudge status` writes them.

use std::fmt;

use nudge_api::{
    AnalysisStatus, EvidenceStatus, Pods, Release, ReleaseOverride, VersionedConfig, VersionedConfigStatus, Watch,
};
use nudge_core::rollout::{ALL, describe_evidence};
use nudge_protocol::plural::counted;
use serde::Serialize;

/// The number of pods that have not ended, and how many of these have the target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TargetCount {
    pub(crate) assigned: usize,
    /// All pods; 0 if they may not be listed.
    pub(crate) total: usize,
}

impl TargetCount {
    /// Counts a pod. `assigned` is the version that is assigned to it.
    pub(crate) fn add(&mut self, status: &VersionedConfigStatus, assigned: Option<&str>) {
        self.total += 1;
        self.assigned += usize::from(status.target_version.is_some() && assigned == status.target_version.as_deref());
    }
}

/// The progress of a rollout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StepReport {
    /// The number of steps that went out.
    number: usize,
    /// The number of all steps.
    of: usize,
    /// The version that pods are moved to.
    version: String,
    /// The number of pods that the version is assigned to.
    assigned: usize,
    /// The number of pods that have not ended; 0 if they may not be listed.
    pods: usize,
    /// The reason why the version was assigned to all pods at once, without any step; empty if `spec.rollout.override`
    /// no longer has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    at_once: Option<String>,
}

/// The progress of a rollout, without its pods.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StepProgress {
    /// The number of steps that went out.
    step: usize,
    /// The number of all steps.
    of: usize,
    /// Whether all pods have the version without any step.
    at_once: bool,
}

/// Returns the progress of the rollout, if a step went out.
pub(crate) fn step_progress(config: &VersionedConfig) -> Option<StepProgress> {
    let StepReport { number, of, at_once, .. } = step_report(config, TargetCount::default())?;
    Some(StepProgress { step: number, of, at_once: at_once.is_some() })
}

/// Returns the progress of the rollout with its pods, if a step went out.
pub(super) fn step_report(config: &VersionedConfig, count: TargetCount) -> Option<StepReport> {
    let status = config.status.as_ref()?;
    let (version, step, threshold) = (status.target_version.clone()?, status.rollout.step, status.internal.threshold);
    if step == 0 && threshold == 0 {
        return None;
    }
    let steps = &config.spec.rollout.steps;
    // The last step is all pods, even if it is not listed.
    let is_listed =
        steps.last().is_some_and(|last| last.selector.is_none() && last.pods == Pods::Share("100%".to_owned()));
    let step_count = steps.len() + usize::from(!is_listed);
    let overridden = config.spec.rollout.overridden.as_ref().filter(|overridden| overridden.version == version);
    let reason = || overridden.map(|overridden| overridden.reason.clone()).unwrap_or_default();
    let at_once = (step == 0 && threshold == ALL).then(reason);
    Some(StepReport {
        // The list of steps may have become shorter.
        number: usize::try_from(step).unwrap_or(step_count).min(step_count),
        of: step_count,
        version,
        assigned: count.assigned,
        pods: count.total,
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
            let pods = counted(self.pods, "pod");
            write!(out, ", version {} is assigned to {} of {pods}", self.version, self.assigned)?;
        }
        Ok(())
    }
}

/// Returns how long a step is watched, and why.
pub(crate) fn watch_text(Watch { seconds, reason, weak }: &Watch) -> String {
    let weak = weak.as_ref().map_or_else(String::new, |weak| format!("; weak evidence: {weak}"));
    format!("{seconds} s for each step, because {reason}{weak}")
}

/// Returns the last numbers of an analysis, such as: errors 0.25 on 1.0.2, 0.002 on 1.0.1: Bad, measured
/// 2026-11-25T08:00:00Z.
pub(crate) fn analysis_text(analysis: &AnalysisStatus, target: &str, current: &str) -> String {
    let AnalysisStatus { name, verdict, target: number, control, measure_time } = analysis;
    let control = control.as_ref().map_or_else(String::new, |control| format!(", {control} on {current}"));
    let numbers =
        number.as_ref().map_or_else(|| "no number".to_owned(), |number| format!("{number} on {target}{control}"));
    let measured =
        measure_time.as_ref().map_or_else(|| "not measured yet".to_owned(), |time| format!("measured {}", time.0));
    format!("{name} {numbers}: {verdict:?}, {measured}")
}

/// Returns who had a version assigned to all pods at once, and why.
pub(crate) fn override_text(overridden: &ReleaseOverride) -> String {
    let requester = overridden.requested_by.as_deref().unwrap_or("<unknown>");
    format!("at once for {requester}: {}", overridden.reason)
}

/// Returns the reason why a release ended, with its message.
pub(crate) fn release_reason(release: &Release) -> Option<String> {
    let message = release.message.as_ref().map_or_else(String::new, |message| format!(": {message}"));
    release.reason.map(|reason| format!("{reason}{message}"))
}

/// Returns the evidence in numbers.
pub(crate) fn evidence_text(evidence: &EvidenceStatus, target: &str, current: &str) -> String {
    let not_waited_for = match evidence.not_waited_for {
        0 => String::new(),
        count => format!("; {count} not waited for"),
    };
    let unchanged = match evidence.unchanged {
        0 => String::new(),
        count => format!("; {count} read no key that changed"),
    };
    format!("{}{not_waited_for}{unchanged}", describe_evidence(evidence, target, current))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn message(evidence: Value) -> String {
        evidence_text(&serde_json::from_value(evidence).unwrap(), "1.0.2", "1.0.1")
    }

    #[test]
    fn the_evidence_is_written_in_numbers() {
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
        let text = |spec: Value, went: u32, threshold: u64| {
            let config = serde_json::from_value(json!({
                "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": "shop"},
                "spec": spec, "status": {"currentVersion": "1", "targetVersion": "2",
                    "rollout": {"stage": "Moving", "step": went}, "internal": {"threshold": threshold}},
            }));
            step_report(&config.unwrap(), TargetCount { assigned: 2, total: 8 }).map(|step| step.to_string())
        };
        let two_of = |steps: Value| text(json!({"rollout": {"steps": steps}}), 2, 7).unwrap();
        assert_eq!(two_of(json!([{"pods": 1}, {"pods": "100%"}])), "2 of 2, version 2 is assigned to 2 of 8 pods");
        assert_eq!(two_of(json!([{"pods": 1}, {"pods": "50%"}])), "2 of 3, version 2 is assigned to 2 of 8 pods");
        let canary = json!({"pods": "100%", "selector": {"matchLabels": {"zone": "a"}}});
        assert_eq!(two_of(json!([{"pods": 1}, canary])), "2 of 3, version 2 is assigned to 2 of 8 pods");
        assert_eq!(text(json!({}), 0, 0), None);
        let at_once = json!({"version": "2", "reason": "leaked key", "untilTime": "2026-01-01T12:00:00Z"});
        let now = json!({"rollout": {"override": at_once}});
        let all = "all pods at once (leaked key), version 2 is assigned to 2 of 8 pods";
        assert_eq!(text(now.clone(), 0, ALL).as_deref(), Some(all));
        let text_of = |spec: &Value, went, threshold| text(spec.clone(), went, threshold).unwrap();
        let gone = text_of(&json!({}), 0, ALL);
        assert_eq!(
            gone, "all pods at once, version 2 is assigned to 2 of 8 pods",
            "the override was removed meanwhile"
        );
        assert_eq!(text_of(&now, 1, 9), "1 of 4, version 2 is assigned to 2 of 8 pods");
        let by_steps = text_of(&now, 4, ALL);
        assert_eq!(by_steps, "4 of 4, version 2 is assigned to 2 of 8 pods", "steps had reached all pods before");
        let shortened = json!({"rollout": {"steps": [{"pods": 1}, {"pods": "100%"}]}});
        assert_eq!(text_of(&shortened, 4, 9), "2 of 2, version 2 is assigned to 2 of 8 pods");
    }
}
