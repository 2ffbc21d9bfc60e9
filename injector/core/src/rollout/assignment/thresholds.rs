//! The thresholds of a move: the target is assigned to the pods whose number is below a threshold.
//!
//! One threshold decides for the config. Workloads with many pods have their own threshold, so that a step has its
//! share of each of them. Pods that a selector matches also have the target if they are below the selector's threshold.

use std::collections::{BTreeMap, BTreeSet};

use nudge_api::{InternalStatus, Pods, SelectorThreshold, StepSelector, WorkloadThreshold};

use crate::owners::WorkloadId;
use crate::rollout::Subject;

/// The threshold that every pod is below.
pub const ALL: u64 = 1 << 32;

/// The minimum number of pods that gives a workload its own threshold.
const LARGE_WORKLOAD_PODS: usize = 20;
/// A step moves at most a quarter of the pods that restart in place at the same time, as a Deployment does by default.
const IN_PLACE_DIVISOR: usize = 4;
/// The maximum number of large workloads.
const MAX_LARGE_WORKLOADS: usize = 100;
/// The maximum number of kept thresholds, including those of workloads that have shrunk or are gone. The thresholds of
/// such workloads are forgotten first.
pub(in crate::rollout) const MAX_WORKLOAD_THRESHOLDS: usize = 2 * MAX_LARGE_WORKLOADS;
/// The maximum size in bytes of the thresholds of large workloads in the status. If names are long, fewer workloads
/// have a threshold.
const MAX_LARGE_WORKLOADS_BYTES: usize = 6 * 1024;
/// The size in bytes of a threshold without the name.
const THRESHOLD_OVERHEAD_BYTES: usize = 40;

/// The thresholds of a move.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thresholds {
    /// The threshold of pods whose workload is not listed.
    pub config: u64,
    /// The thresholds of large workloads, sorted by their names.
    pub workloads: Vec<WorkloadThreshold>,
    /// The thresholds of pods that selectors match.
    pub selectors: Vec<SelectorThreshold>,
}

/// The properties of a pod that decide which version it is assigned.
#[derive(Clone, Copy, Debug)]
pub(in crate::rollout) struct PodPlace<'a> {
    pub(in crate::rollout) number: u32,
    pub(in crate::rollout) workload: Option<&'a WorkloadId>,
    pub(in crate::rollout) labels: &'a BTreeMap<String, String>,
}

impl Subject {
    /// Returns the properties of the pod that decide which version it is assigned.
    pub(in crate::rollout) fn place(&self) -> PodPlace<'_> {
        PodPlace { number: self.number, workload: self.workload.as_ref(), labels: &self.labels }
    }
}

/// Returns whether the selector matches these labels.
fn matches(selector: &StepSelector, labels: &BTreeMap<String, String>) -> bool {
    selector.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
}

/// Returns whether the selector matches the pod.
pub(in crate::rollout) fn selects(selector: &StepSelector, pod: &Subject) -> bool {
    matches(selector, &pod.labels)
}

/// Returns whether the count means all pods, including all that are created later.
fn is_whole(count: &Pods) -> bool {
    matches!(count, Pods::Share(share) if share == "100%")
}

/// Returns whether the target of this rollout is assigned to the pod.
pub(in crate::rollout) fn is_below(status: &InternalStatus, pod: PodPlace<'_>) -> bool {
    let workload = pod.workload.map_or("", WorkloadId::as_str);
    let entry = status.workloads.iter().find(|entry| entry.workload == workload);
    below(entry.map_or(status.threshold, |entry| entry.threshold), &status.selectors, pod)
}

/// Returns whether the pod's number is below the threshold of its workload, or of a selector.
fn below(threshold: u64, selectors: &[SelectorThreshold], pod: PodPlace<'_>) -> bool {
    let number = u64::from(pod.number);
    number < threshold || selectors.iter().any(|other| number < other.threshold && matches(&other.selector, pod.labels))
}

impl Thresholds {
    /// Returns thresholds that assign the target to all pods, including all that are created later.
    pub(in crate::rollout) fn all() -> Self {
        Self { config: ALL, ..Self::default() }
    }

    /// Returns whether the thresholds assign the target to all pods.
    pub(in crate::rollout) fn is_all(&self) -> bool {
        self.config == ALL
    }

    pub(crate) fn from_status(status: &InternalStatus) -> Self {
        let mut workloads = status.workloads.clone();
        // The status may have been edited, so the order is not certain.
        workloads.sort_by(|one, other| one.workload.cmp(&other.workload));
        Self { config: status.threshold, workloads, selectors: status.selectors.clone() }
    }

    /// Returns whether the target is assigned to the pod.
    pub(crate) fn is_assigned(&self, pod: &Subject) -> bool {
        let entry = self.workloads.binary_search_by(|entry| entry.workload.as_str().cmp(pod.workload_name()));
        let entry = entry.ok().map(|index| &self.workloads[index]);
        below(entry.map_or(self.config, |entry| entry.threshold), &self.selectors, pod.place())
    }

    /// Returns the thresholds that give `count` pods the target, of the pods that the selector matches or of the
    /// config. No threshold is lowered.
    pub(crate) fn raise(&self, pods: &[Subject], count: &Pods, selector: Option<&StepSelector>) -> Self {
        match selector {
            Some(selector) => self.raise_selector(pods, count, selector),
            None => self.raise_config(pods, count),
        }
    }

    /// Returns the raised thresholds, but with no more pods that are Ready and restart in place than may be away at the
    /// same time.
    pub(in crate::rollout) fn raise_in_part(
        &self,
        pods: &[Subject],
        count: &Pods,
        selector: Option<&StepSelector>,
    ) -> Self {
        let whole_part = self.raise(pods, count, selector);
        let max_away = (pods.iter().filter(|pod| pod.is_in_place()).count() / IN_PLACE_DIVISOR).max(1);
        let end_count = |pod: &&Subject| {
            pod.is_in_place() && pod.is_ready() && whole_part.is_assigned(pod) && !self.is_assigned(pod)
        };
        if pods.iter().filter(end_count).count() <= max_away {
            return whole_part;
        }
        let matched = pods.iter().filter(|pod| selector.is_none_or(|selector| selects(selector, pod)));
        let assigned_count = matched.filter(|pod| self.is_assigned(pod)).count();
        self.raise(pods, &Pods::Count(u32::try_from(assigned_count + max_away).unwrap_or(u32::MAX)), selector)
    }

    fn raise_selector(&self, pods: &[Subject], count: &Pods, selector: &StepSelector) -> Self {
        let matched: Vec<&Subject> = pods.iter().filter(|pod| selects(selector, pod)).collect();
        let threshold = if is_whole(count) { ALL } else { self.threshold_for(&matched, count.count_of(matched.len())) };
        self.with_selector(selector, threshold)
    }

    /// Returns the thresholds with at least this one for the selector. If a step was edited, its old selector keeps its
    /// threshold. Pods that no selector matches do not get the target from it.
    fn with_selector(&self, selector: &StepSelector, threshold: u64) -> Self {
        let mut next = self.clone();
        match next.selectors.iter().position(|other| other.selector == *selector) {
            Some(index) => next.selectors[index].threshold = next.selectors[index].threshold.max(threshold),
            // A spec has no more selectors, but edits may have left others behind. Pods of this selector get the target
            // with a later step.
            None if next.selectors.len() >= StepSelector::MAX_SELECTORS => {}
            None => next.selectors.push(SelectorThreshold { selector: selector.clone(), threshold }),
        }
        next
    }

    /// Returns the threshold that gives `wanted` of these pods the target. New pods above the threshold do not get it.
    fn threshold_for(&self, pods: &[&Subject], wanted: usize) -> u64 {
        let assigned = pods.iter().filter(|pod| self.is_assigned(pod)).count();
        let mut open: Vec<u32> = pods.iter().filter(|pod| !self.is_assigned(pod)).map(|pod| pod.number).collect();
        open.sort_unstable();
        let missing = wanted.saturating_sub(assigned);
        missing.checked_sub(1).and_then(|last| open.get(last)).map_or(0, |number| u64::from(*number) + 1)
    }

    /// Shares the wanted pods out among the large workloads, by their size, and all other pods together: so a step
    /// shows what the target does in each of them. No threshold falls, because no pod may go back: a workload that has
    /// shrunk keeps its own until the config's has passed it. If there are too many, those of workloads without pods
    /// give way.
    fn raise_config(&self, pods: &[Subject], count: &Pods) -> Self {
        let wanted = count.count_of(pods.len());
        if is_whole(count) {
            return Self::all();
        }
        let mut groups: BTreeMap<&str, Vec<&Subject>> = BTreeMap::new();
        for pod in pods {
            groups.entry(pod.workload_name()).or_default().push(pod);
        }
        let large = large_workloads(&groups, &self.workloads);
        let small: Vec<&Subject> = pods.iter().filter(|pod| !large.contains(pod.workload_name())).collect();
        // Workloads that are not large any more keep their thresholds: no pod goes back.
        let mut next = Self { workloads: Vec::new(), ..self.clone() };
        next.workloads
            .extend(self.workloads.iter().filter(|entry| !groups.contains_key(entry.workload.as_str())).cloned());
        let mut lists: Vec<(Option<&str>, Vec<&Subject>)> =
            large.iter().map(|&workload| (Some(workload), groups.remove(workload).unwrap_or_default())).collect();
        if !small.is_empty() {
            lists.push((None, small));
        }
        let have = |list: &[&Subject]| list.iter().filter(|pod| self.is_assigned(pod)).count();
        let counts: Vec<(usize, usize)> = lists.iter().map(|(_, list)| (list.len(), have(list))).collect();
        for ((workload, list), wanted) in lists.iter().zip(share_out(&counts, wanted)) {
            let threshold = self.threshold_for(list, wanted);
            match workload {
                None => next.config = next.config.max(threshold),
                Some(workload) => {
                    let known = self.workloads.iter().find(|entry| entry.workload == *workload);
                    let threshold = threshold.max(known.map_or(self.config, |entry| entry.threshold));
                    next.workloads.push(WorkloadThreshold { workload: (*workload).to_owned(), threshold });
                }
            }
        }
        // A workload that has shrunk keeps its own threshold, unless it is the config's.
        let listed: BTreeSet<String> = next.workloads.iter().map(|entry| entry.workload.clone()).collect();
        let shrunk =
            self.workloads.iter().filter(|entry| !listed.contains(&entry.workload) && entry.threshold > next.config);
        next.workloads.extend(shrunk.cloned().collect::<Vec<_>>());
        next.workloads.retain(|entry| entry.threshold != next.config);
        if next.workloads.len() > MAX_WORKLOAD_THRESHOLDS {
            let present_workloads: BTreeSet<&str> = pods.iter().map(|pod| pod.workload_name()).collect();
            next.workloads.sort_by_key(|entry| !present_workloads.contains(entry.workload.as_str()));
            next.workloads.truncate(MAX_WORKLOAD_THRESHOLDS);
        }
        next.workloads.sort_by(|one, other| one.workload.cmp(&other.workload));
        next
    }

    /// Returns the thresholds that give the target to one more pod of the selector that `is_judge` accepts, and to all
    /// pods before this pod in the order. The choice falls on the pod with the fewest Ready pods before it.
    pub(in crate::rollout) fn with_judge(
        &self,
        pods: &[Subject],
        selector: Option<&StepSelector>,
        is_judge: impl Fn(&Subject) -> bool,
    ) -> Self {
        if let Some(selector) = selector {
            let of_step = pods.iter().filter(|pod| is_judge(pod) && selects(selector, pod));
            let lowest = of_step.map(|pod| u64::from(pod.number) + 1).min();
            return self.with_selector(selector, lowest.unwrap_or(0));
        }
        let has_own = |pod: &Subject| self.workloads.iter().any(|entry| entry.workload == pod.workload_name());
        let mut groups: BTreeMap<Option<&str>, Vec<&Subject>> = BTreeMap::new();
        for pod in pods.iter().filter(|pod| !self.is_assigned(pod)) {
            groups.entry(has_own(pod).then_some(pod.workload_name())).or_default().push(pod);
        }
        let judge = |open: &mut Vec<&Subject>| {
            open.sort_by_key(|pod| pod.number);
            let index = open.iter().position(|pod| is_judge(pod))?;
            Some((open[..index].iter().filter(|pod| pod.is_ready()).count(), open[index].number))
        };
        let best = groups.iter_mut().filter_map(|(group, open)| Some((judge(open)?, *group))).min();
        let lowest = || {
            let open = pods.iter().filter(|pod| !self.is_assigned(pod));
            open.map(|pod| ((0, pod.number), has_own(pod).then_some(pod.workload_name()))).min()
        };
        let mut next = self.clone();
        let Some(((_, number), group)) = best.or_else(lowest) else { return next };
        let threshold = u64::from(number) + 1;
        match group {
            None => next.config = threshold,
            Some(workload) => {
                next.workloads
                    .iter_mut()
                    .filter(|entry| entry.workload == workload)
                    .for_each(|entry| entry.threshold = threshold);
            }
        }
        next
    }
}

/// Returns the workloads that have their own threshold. A workload with pods keeps the threshold that it has, or its
/// pods would go back. Others get a threshold while there is room.
fn large_workloads<'a>(groups: &BTreeMap<&'a str, Vec<&Subject>>, known: &[WorkloadThreshold]) -> BTreeSet<&'a str> {
    let mut large: Vec<(usize, &str)> = groups
        .iter()
        .filter(|(_, pods)| pods.len() >= LARGE_WORKLOAD_PODS)
        .map(|(workload, pods)| (pods.len(), *workload))
        .collect();
    // A single group gets all pods.
    if large.len() == 1 && groups.len() == 1 {
        return BTreeSet::new();
    }
    large.sort_by(|one, other| other.cmp(one));
    let mut bytes = 0;
    let fits_limit = |(_, workload): &(usize, &str)| {
        bytes += workload.len() + THRESHOLD_OVERHEAD_BYTES;
        bytes <= MAX_LARGE_WORKLOADS_BYTES
    };
    let is_known = |workload: &str| known.iter().any(|entry| entry.workload == workload);
    let kept = known.iter().filter(|entry| groups.contains_key(entry.workload.as_str())).count();
    let mut room = MAX_WORKLOAD_THRESHOLDS.saturating_sub(kept);
    let has_room = |workload: &&str| {
        let listed = is_known(workload) || room > 0;
        room -= usize::from(listed && !is_known(workload));
        listed
    };
    large
        .into_iter()
        .take(MAX_LARGE_WORKLOADS)
        .take_while(fits_limit)
        .map(|(_, workload)| workload)
        .filter(has_room)
        .collect()
}

/// Returns how many of `wanted` pods each group gets, by its size; no group gets less than it has already. The groups
/// with the largest remainders get one more.
fn share_out(groups: &[(usize, usize)], wanted: usize) -> Vec<usize> {
    let all: usize = groups.iter().map(|(size, _)| size).sum();
    if all == 0 {
        return vec![0; groups.len()];
    }
    let mut shares: Vec<usize> = groups.iter().map(|(size, have)| (size * wanted / all).max(*have)).collect();
    let mut order: Vec<usize> = (0..groups.len()).collect();
    order.sort_by_key(|&index| std::cmp::Reverse((groups[index].0 * wanted % all, groups[index].0)));
    let mut left = wanted.saturating_sub(shares.iter().sum());
    while left > 0 {
        let before = left;
        for &index in &order {
            if left > 0 && shares[index] < groups[index].0 {
                (shares[index], left) = (shares[index] + 1, left - 1);
            }
        }
        if left == before {
            break;
        }
    }
    shares
}
