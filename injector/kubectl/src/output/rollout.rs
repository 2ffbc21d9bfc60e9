//! How far a rollout is and how its target is judged, as `kubectl nudge status` says it.

use std::fmt;

use nudge_api::{EvidenceStatus, Pods, VersionedConfig, Watch};
use nudge_core::rollout::ALL;
use serde::Serialize;

/// How far a rollout is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StepReport {
    /// How many steps went out.
    number: u32,
    /// How many there are.
    of: usize,
    /// The version that pods are moved to.
    version: String,
    /// How many pods it is assigned to.
    assigned: usize,
    /// How many pods there are; none where they may not be listed.
    pods: usize,
    /// Why it was assigned to all pods at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    at_once: Option<String>,
}

/// The step of a move; nothing where none went out.
pub(super) fn step(config: &VersionedConfig, (assigned, pods): (usize, usize)) -> Option<StepReport> {
    let status = config.status.as_ref()?;
    let (version, rollout) = (status.target.clone()?, &status.rollout);
    if rollout.step == 0 && rollout.threshold == 0 {
        return None;
    }
    let steps = &config.spec.rollout.steps;
    // The last step is all pods, also where it is not listed.
    let ends = steps.last().is_some_and(|last| last.selector.is_none() && last.pods == Pods::Share("100%".to_owned()));
    let of = steps.len() + usize::from(!ends);
    let at_once = config.spec.now.as_ref().filter(|now| now.version == version && rollout.threshold == ALL);
    Some(StepReport {
        number: rollout.step,
        of,
        version,
        assigned,
        pods,
        at_once: at_once.map(|now| now.reason.clone()),
    })
}

impl fmt::Display for StepReport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.at_once {
            Some(reason) => write!(out, "all pods at once ({reason})")?,
            None => write!(out, "{} of {}", self.number, self.of)?,
        }
        if self.pods > 0 {
            write!(out, ", {} of {} pods have version {}", self.assigned, self.pods, self.version)?;
        }
        Ok(())
    }
}

/// How long a step is watched, and why.
pub(super) fn said_of_watch(Watch { seconds, reason, weak }: &Watch) -> String {
    let weak = weak.as_ref().map_or_else(String::new, |weak| format!("; weak evidence: {weak}"));
    format!("{seconds} s for each step, because {reason}{weak}")
}

/// The evidence in numbers.
pub(super) fn said_of_evidence(evidence: &EvidenceStatus, target: &str, current: &str) -> String {
    let pods = if evidence.assigned == 1 { "pod" } else { "pods" };
    let first = evidence.first.as_ref().map_or_else(String::new, |first| {
        let when = match first.after_seconds {
            Some(..0) => ", before its notification was seen".to_owned(),
            Some(seconds) => format!(", {seconds} s after its notification"),
            None => String::new(),
        };
        format!(" (first: {}, {}{when})", first.name, first.reason)
    });
    let others = match (evidence.unassigned, evidence.unassigned_harmed) {
        (0, _) => format!("no pod runs {current} to compare with"),
        (all, 0) => format!("of {all} on {current} none"),
        (all, harmed) => format!("of {all} on {current} {harmed}"),
    };
    let not_waited_for = match evidence.not_waited_for {
        0 => String::new(),
        count => format!("; {count} not waited for"),
    };
    format!("{} of {} {pods} on {target} harmed{first}; {others}{not_waited_for}", evidence.harmed, evidence.assigned)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn said(evidence: Value) -> String {
        said_of_evidence(&serde_json::from_value(evidence).unwrap(), "1.0.2", "1.0.1")
    }

    #[test]
    fn the_evidence_is_said_in_numbers() {
        let first = |after: i64| json!({"name": "web-7d", "reason": "ContainerRestarted", "afterSeconds": after});
        assert_eq!(
            said(json!({"assigned": 40, "harmed": 3, "unassigned": 120, "first": first(12)})),
            "3 of 40 pods on 1.0.2 harmed (first: web-7d, ContainerRestarted, 12 s after its notification); of 120 on 1.0.1 none"
        );
        assert_eq!(
            said(json!({"assigned": 1, "harmed": 1, "first": first(-1), "notWaitedFor": 2})),
            "1 of 1 pod on 1.0.2 harmed (first: web-7d, ContainerRestarted, before its notification was seen); no pod runs 1.0.1 to \
             compare with; 2 not waited for"
        );
        assert_eq!(
            said(json!({"assigned": 10, "unassigned": 30, "unassignedHarmed": 4})),
            "0 of 10 pods on 1.0.2 harmed; of 30 on 1.0.1 4"
        );
    }

    #[test]
    fn steps_are_counted_with_the_last_one() {
        let said = |spec: Value, rollout: Value| {
            let config = serde_json::from_value(json!({
                "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": "shop"},
                "spec": spec, "status": {"current": "1", "target": "2", "rollout": rollout},
            }));
            step(&config.unwrap(), (2, 8)).map(|step| step.to_string())
        };
        let two_of =
            |steps: Value| said(json!({"rollout": {"steps": steps}}), json!({"step": 2, "threshold": 7})).unwrap();
        assert_eq!(two_of(json!([{"pods": 1}, {"pods": "100%"}])), "2 of 2, 2 of 8 pods have version 2");
        assert_eq!(two_of(json!([{"pods": 1}, {"pods": "50%"}])), "2 of 3, 2 of 8 pods have version 2");
        let canary = json!({"pods": "100%", "selector": {"matchLabels": {"zone": "a"}}});
        assert_eq!(two_of(json!([{"pods": 1}, canary])), "2 of 3, 2 of 8 pods have version 2");
        assert_eq!(said(json!({}), json!({"stage": "Moving"})), None);
        let now = json!({"now": {"version": "2", "reason": "leaked key"}});
        let all = "all pods at once (leaked key), 2 of 8 pods have version 2";
        assert_eq!(said(now.clone(), json!({"threshold": ALL})).as_deref(), Some(all));
        assert_eq!(
            said(now, json!({"step": 1, "threshold": 9})).as_deref(),
            Some("1 of 4, 2 of 8 pods have version 2")
        );
    }
}
