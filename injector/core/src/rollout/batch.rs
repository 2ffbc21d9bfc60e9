//! How many pods a batch has, and which.

use std::collections::BTreeMap;

use nudge_api::{Batch, GroupStatus};

use super::Subject;

/// The threshold that every pod is below.
pub const ALL: u64 = 1 << 32;

/// The share of a batch in percent where the spec names none.
const DEFAULT_PERCENT: usize = 25;

/// How many of `pods` a batch has: at least one.
pub(super) fn size(batch: Option<&Batch>, pods: usize) -> usize {
    let share = |percent: usize| (pods * percent.min(100)).div_ceil(100);
    let count = match batch {
        None => share(DEFAULT_PERCENT),
        Some(Batch::Count(count)) => usize::try_from(*count).unwrap_or(usize::MAX),
        // The API server accepts shares from 1% to 100% only; anything else counts as the smallest.
        Some(Batch::Share(text)) => share(text.strip_suffix('%').and_then(|number| number.parse().ok()).unwrap_or(1)),
    };
    count.max(1)
}

/// The thresholds with one more pod of the config: one that `judges`, if there is any. Pods of its workload that come before it in the order
/// can't judge, and go with it. Of several workloads, the one is chosen where the fewest of these pods are Ready.
pub(super) fn with_one(
    groups: &[GroupStatus],
    pods: &[Subject],
    judges: impl Fn(&Subject) -> bool,
) -> Vec<GroupStatus> {
    let mut workloads: BTreeMap<&str, Vec<&Subject>> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| !is_assigned(groups, pod)) {
        workloads.entry(&pod.workload).or_default().push(pod);
    }
    let judge = |unassigned: &mut Vec<&'_ Subject>| {
        unassigned.sort_by_key(|pod| pod.number);
        let at = unassigned.iter().position(|pod| judges(pod))?;
        Some((unassigned[..at].iter().filter(|pod| pod.ready).count(), unassigned[at].number))
    };
    let best = workloads.iter_mut().filter_map(|(workload, unassigned)| Some((judge(unassigned)?, *workload))).min();
    let lowest =
        || pods.iter().filter(|pod| !is_assigned(groups, pod)).map(|pod| ((0, pod.number), &*pod.workload)).min();
    let Some(((_, number), workload)) = best.or_else(lowest) else { return groups.to_vec() };
    let mut sisters = pods.iter().filter(|pod| pod.workload == workload);
    let threshold = if sisters.all(|pod| pod.number <= number) { ALL } else { u64::from(number) + 1 };
    let others = groups.iter().filter(|group| group.workload != workload).cloned();
    let mut next: Vec<GroupStatus> = others.chain([GroupStatus { workload: workload.to_owned(), threshold }]).collect();
    next.sort_by(|one, other| one.workload.cmp(&other.workload));
    next
}

/// Whether a batch is all pods at once.
pub(super) fn is_all(batch: Option<&Batch>) -> bool {
    matches!(batch, Some(Batch::Share(share)) if share == "100%")
}

/// The threshold of a workload.
pub(super) fn threshold(groups: &[GroupStatus], workload: &str) -> u64 {
    groups.iter().find(|group| group.workload == workload).map_or(0, |group| group.threshold)
}

/// Whether the target is assigned to the pod.
pub(super) fn is_assigned(groups: &[GroupStatus], pod: &Subject) -> bool {
    u64::from(pod.number) < threshold(groups, &pod.workload)
}

/// The thresholds with one more batch: of each workload at most a batch, and where that is a share, of all pods together no more than that
/// share. A workload all of whose pods have the target gets [`ALL`], so that pods which are created later get it too.
pub(super) fn raised(groups: &[GroupStatus], pods: &[Subject], batch: Option<&Batch>) -> Vec<GroupStatus> {
    let mut totals: BTreeMap<&str, usize> = BTreeMap::new();
    for pod in pods {
        *totals.entry(&pod.workload).or_default() += 1;
    }
    let mut room = match batch {
        Some(Batch::Count(_)) => usize::MAX,
        share => size(share, pods.len()),
    };
    let mut unassigned: Vec<&Subject> = pods.iter().filter(|pod| !is_assigned(groups, pod)).collect();
    unassigned.sort_by_key(|pod| pod.number);
    let mut left: BTreeMap<&str, usize> = BTreeMap::new();
    let mut taken: BTreeMap<&str, (usize, u64)> = BTreeMap::new();
    for pod in unassigned {
        let (count, threshold) = taken.entry(&pod.workload).or_default();
        // Pods with the same number go together, which is one in four thousand million.
        if *threshold > u64::from(pod.number) {
            continue;
        }
        if room > 0 && *count < size(batch, totals[pod.workload.as_str()]) {
            (*count, *threshold, room) = (*count + 1, u64::from(pod.number) + 1, room - 1);
        } else {
            *left.entry(&pod.workload).or_default() += 1;
        }
    }
    // A workload without pods at the moment keeps what it has: its next pods are assigned what the last ones were.
    let empty = groups.iter().filter(|group| !totals.contains_key(group.workload.as_str())).cloned();
    let raise = |&workload: &&str| {
        let raised = taken.get(workload).map_or(0, |(_, threshold)| *threshold);
        let all = left.get(workload).is_none_or(|&left| left == 0);
        let threshold = if all { ALL } else { raised.max(threshold(groups, workload)) };
        GroupStatus { workload: workload.to_owned(), threshold }
    };
    let mut next: Vec<GroupStatus> =
        totals.keys().map(raise).filter(|group| group.threshold > 0).chain(empty).collect();
    next.sort_by(|one, other| one.workload.cmp(&other.workload));
    next
}

/// Whether the target is assigned to every pod, and to every pod that its workload may create.
pub(super) fn is_complete(groups: &[GroupStatus], pods: &[Subject]) -> bool {
    pods.iter().all(|pod| threshold(groups, &pod.workload) == ALL)
}
