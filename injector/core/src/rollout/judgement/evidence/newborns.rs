//! New pods, with the target and without it: whether they start.

use std::collections::HashMap;

use super::Evidence;
use super::history::Growth;
use crate::owners::WorkloadId;
use crate::rollout::Subject;

/// The new pods of one template.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::rollout) struct Newborns<'a> {
    /// The number of new pods with the target that fail.
    pub(in crate::rollout) failing: u32,
    /// The first new pod with the target that fails.
    pub(in crate::rollout) first: Option<&'a Subject>,
    /// The number of new pods with the current version that fail too.
    pub(in crate::rollout) failing_before: u32,
    /// The number of new pods with the current version that became healthy.
    pub(in crate::rollout) well_before: u32,
    /// Whether pods of this template were healthy that started before this leader observed them.
    pub(in crate::rollout) is_template_known: bool,
}

impl Evidence {
    /// Returns new pods by workload and template, or none if no new pod with the target fails.
    pub(in crate::rollout) fn newborns<'a>(
        &self,
        pods: &'a [Subject],
    ) -> HashMap<(Option<&'a WorkloadId>, Option<&'a str>), Newborns<'a>> {
        let mut templates: HashMap<_, Newborns<'_>> = HashMap::new();
        if self.trial.as_ref().is_none_or(|trial| trial.failing == 0) {
            return templates;
        }
        // Pods of Jobs end by themselves.
        for pod in pods.iter().filter(|pod| !pod.is_of_job()) {
            let Some(history) = self.pods.get(&pod.uid) else { continue };
            let newborns = templates.entry((pod.workload.as_ref(), pod.template.as_deref())).or_default();
            match history.birth.map(|birth| (birth.on_target, birth.growth)) {
                Some((true, Growth::Failing)) => {
                    newborns.failing += 1;
                    newborns.first = newborns.first.or(Some(pod));
                }
                Some((false, Growth::Failing)) => newborns.failing_before += 1,
                Some((false, Growth::Grown)) => newborns.well_before += 1,
                Some(_) => {}
                None => newborns.is_template_known |= history.role.judges(),
            }
        }
        templates
    }
}
