//! The bounds of thresholds, crossed.

use std::sync::Arc;

use nudge_api::{Pods, StepSelector};

use crate::identity::Identity;
use crate::keys::PodUid;
use crate::owners::WorkloadId;
use crate::pods::PodState;
use crate::rollout::Subject;
use crate::rollout::assignment::thresholds::{MAX_WORKLOAD_THRESHOLDS, Thresholds};

/// Returns 100 workloads of this name, each with the given number of pods.
fn workloads(name: char, pods: u32) -> Vec<Subject> {
    let pod = |workload: u32, number: u32| {
        let uid = format!("0af7651c-d43b-41d5-{:04x}-{:012x}", u32::from(name), workload * 1000 + number);
        let workload = Some(WorkloadId::new("Deployment", &format!("{name}{workload:03}")));
        let labels = Arc::new([("zone".to_owned(), (number % 10).to_string())].into());
        let pod = PodState { uid: PodUid::new(&uid).unwrap(), workload, labels, ..PodState::default() };
        Subject::of(Arc::new(pod), "shop", Identity::of_uid("uid"), true).unwrap()
    };
    (0..100).flat_map(|workload| (0..pods).map(move |number| pod(workload, number))).collect()
}

fn assigned(thresholds: &Thresholds, pods: &[Subject]) -> Vec<String> {
    pods.iter().filter(|pod| thresholds.is_assigned(pod)).map(|pod| pod.uid.to_string()).collect()
}

#[test]
fn thresholds_of_workloads_that_are_gone_are_forgotten_first() {
    let mut thresholds = Thresholds::default();
    for (name, share) in ('a'..='d').zip(["30%", "40%", "50%", "60%"]) {
        let pods = workloads(name, 20);
        thresholds = thresholds.raise(&pods, &Pods::Share(share.to_owned()), None);
        assert!(thresholds.workloads.len() <= MAX_WORKLOAD_THRESHOLDS, "{}", thresholds.workloads.len());
        let half = assigned(&thresholds, &pods).len();
        let wanted = Pods::Share(share.to_owned()).count_of(pods.len());
        assert_eq!(half, wanted, "each has its own threshold");
    }
    let names = thresholds.workloads.iter().filter(|own| own.workload.starts_with("Deployment/d"));
    assert!(names.count() > 90 && thresholds.workloads.len() == MAX_WORKLOAD_THRESHOLDS, "more were to be listed");
}

#[test]
fn no_pod_goes_back_when_more_workloads_are_large_than_can_be_listed() {
    let mut thresholds = Thresholds::default();
    let mut old: Vec<Subject> = Vec::new();
    let mut most = 0;
    // Steps that were edited: the threshold of all other pods stays below those of the workloads.
    for (name, share) in ('a'..='e').zip(["60%", "55%", "50%", "45%", "40%"]) {
        // Workloads that were large are small now.
        let pods: Vec<Subject> = old.iter().cloned().chain(workloads(name, 20)).collect();
        let before = assigned(&thresholds, &pods);
        thresholds = thresholds.raise(&pods, &Pods::Share(share.to_owned()), None);
        let after = assigned(&thresholds, &pods);
        let sunk = before.iter().filter(|pod| !after.contains(pod)).count();
        assert_eq!(sunk, 0, "{name}: pods that lose the version");
        assert!(thresholds.workloads.len() <= MAX_WORKLOAD_THRESHOLDS, "{name}");
        most = most.max(thresholds.workloads.len());
        old.extend(workloads(name, 12));
    }
    assert_eq!(most, MAX_WORKLOAD_THRESHOLDS, "the bound is reached");
}

#[test]
fn a_ninth_selector_gives_nobody_the_version_and_takes_it_from_nobody() {
    let pods = workloads('a', 20);
    let selector = |zone: usize| StepSelector { match_labels: [("zone".to_owned(), zone.to_string())].into() };
    let half = Pods::Share("50%".to_owned());
    // A step that was edited leaves its selector behind, so a valid spec can come to a ninth.
    let mut thresholds = Thresholds::default();
    for zone in 0..StepSelector::MAX_SELECTORS {
        let next = thresholds.raise(&pods, &half, Some(&selector(zone)));
        assert!(assigned(&next, &pods).len() > assigned(&thresholds, &pods).len(), "{zone}");
        thresholds = next;
    }
    let full = thresholds.raise(&pods, &half, Some(&selector(StepSelector::MAX_SELECTORS)));
    assert_eq!(full, thresholds);
    assert_eq!(full.with_judge(&pods, Some(&selector(StepSelector::MAX_SELECTORS)), |_| true), thresholds);
    let more = full.raise(&pods, &Pods::Share("100%".to_owned()), Some(&selector(0)));
    assert!(assigned(&more, &pods).len() > assigned(&full, &pods).len(), "one that is listed still rises");
    let all = full.raise(&pods, &Pods::Share("100%".to_owned()), None);
    assert_eq!(assigned(&all, &pods).len(), pods.len());
}
