//! The verdict of new pods that do not become Ready with the target.

use std::collections::{HashMap, HashSet};

use nudge_api::Reason;
use nudge_protocol::plural::counted;

use super::Verdict;
use super::evidence::Evidence;
use crate::analysis::VersionNames;
use crate::owners::WorkloadId;
use crate::rollout::Observation;

/// The pods of a workload, and their templates.
#[derive(Default)]
struct WorkloadPods<'a> {
    count: u32,
    templates: HashSet<Option<&'a str>>,
}

/// Judges the target by the new pods that fail with it.
pub(super) fn judge_newborns(evidence: &Evidence, observation: &Observation<'_>, names: VersionNames<'_>) -> Verdict {
    let born = evidence.newborns(observation.pods);
    let mut verdict = Verdict::Clear;
    if born.is_empty() {
        return verdict;
    }
    let mut workloads: HashMap<Option<&WorkloadId>, WorkloadPods<'_>> = HashMap::new();
    for pod in observation.pods {
        let workload = workloads.entry(pod.workload.as_ref()).or_default();
        workload.count += 1;
        workload.templates.insert(pod.template.as_deref());
    }
    let mut single_newborns = Vec::new();
    for (&(workload, _), new) in born.iter().filter(|(_, new)| new.failing > 0) {
        let WorkloadPods { count, templates } = &workloads[&workload];
        let enough = new.failing >= if new.well_before > 0 || *count == 1 { 1 } else { 2 };
        let another = templates.len() > 1;
        let Some(pod) = new.first else { continue };
        if !enough {
            single_newborns
                .extend((new.failing_before == 0 && (new.is_template_known || !another)).then_some(&pod.name));
            continue;
        }
        let message = format!(
            "{} of {} did not become Ready with version {} (first: {})",
            counted(new.failing, "new pod"),
            workload.map_or("no workload", WorkloadId::as_str),
            names.target,
            pod.name
        );
        if new.failing_before == 0 && (new.is_template_known || !another) {
            return Verdict::Bad(Reason::NewPodsFailing.explained(message));
        }
        let message = if new.failing_before > 0 {
            format!("{message}; new pods with {} fail too", names.current)
        } else {
            format!("{message}; their template is new, too")
        };
        verdict = Verdict::Inconclusive { message, reconcile_at: None, expected: false };
    }
    // One new pod of a workload says little; one of each of several workloads says as much as several of one workload.
    if single_newborns.len() < 2 || verdict != Verdict::Clear || born.values().any(|new| new.failing_before > 0) {
        return verdict;
    }
    let workloads = counted(single_newborns.len(), "workload");
    let target = names.target;
    let first = single_newborns.into_iter().min().map_or("", String::as_str);
    let message =
        format!("a new pod of each of {workloads} did not become Ready with version {target} (first: {first})");
    Verdict::Bad(Reason::NewPodsFailing.explained(message))
}
