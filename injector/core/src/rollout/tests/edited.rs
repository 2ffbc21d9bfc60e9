//! Steps that are edited in the middle of a move.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use nudge_api::{Pods, Step, StepSelector};
use proptest::prelude::*;

use super::TestRollout;
use crate::rollout::Subject;

/// The values of the label `track` that selectors name.
const TRACKS: [&str; 3] = ["a", "b", "c"];

fn track(value: &str) -> BTreeMap<String, String> {
    BTreeMap::from([("track".to_owned(), value.to_owned())])
}

/// Twenty pods, and two of each track.
fn tracked() -> TestRollout {
    let mut rollout = TestRollout::new(&[("web", 20), ("a", 2), ("b", 2), ("c", 2)]);
    for pod in rollout.pods.iter_mut().filter(|pod| TRACKS.contains(&pod.workload_name())) {
        pod.labels = Arc::new(track(pod.workload_name()));
    }
    rollout
}

fn canary(name: &str, value: &str) -> Step {
    let selector = Some(StepSelector { match_labels: track(value) });
    Step { name: Some(name.to_owned()), selector, ..Step::of(Pods::Share("100%".to_owned())) }
}

fn share(name: &str, share: &str) -> Step {
    Step { name: Some(name.to_owned()), ..Step::of(Pods::Share(share.to_owned())) }
}

fn workloads(rollout: &mut TestRollout) -> BTreeSet<String> {
    rollout.with("2").iter().map(|pod| pod.workload_name().to_owned()).collect()
}

#[test]
fn a_corrected_selector_moves_its_own_pods_and_no_others() {
    let mut rollout = tracked();
    rollout.spec.steps = vec![canary("canary", "a"), share("half", "50%")];
    rollout.pods.iter_mut().filter(|pod| pod.workload_name() == "a").for_each(Subject::fall);
    rollout.watch("2", 60);
    assert_eq!(workloads(&mut rollout), BTreeSet::from(["a".to_owned()]));
    rollout.spec.steps[0] = canary("canary", "b");
    rollout.rest("2");
    rollout.rest("2");
    assert_eq!(workloads(&mut rollout), BTreeSet::from(["a".to_owned(), "b".to_owned()]));
}

#[test]
fn the_step_that_went_out_last_is_found_by_its_name() {
    let mut rollout = tracked();
    rollout.spec.steps = vec![share("first", "10%"), Step { pause_seconds: 600, ..share("half", "50%") }];
    rollout.rest("2");
    rollout.take();
    rollout.watch("2", 60);
    rollout.take();
    assert_eq!(rollout.assigned("2"), 13);
    rollout.spec.steps.insert(0, share("before", "5%"));
    let waits = rollout.watch("2", 60).continuation.explanation().unwrap().message.clone();
    assert!(waits.contains("step half pauses for 600 s"), "{waits}");
    // The step is removed: the next step is the first that pods have not reached.
    rollout.spec.steps = vec![share("first", "10%"), share("three", "75%")];
    rollout.watch("2", 60);
    assert_eq!((rollout.assigned("2"), rollout.status.rollout.step_name.as_deref()), (20, Some("three")));
}

proptest! {
    #[test]
    fn no_pod_outside_of_all_selectors_gets_the_target_before_the_step_of_all(
        edits in proptest::collection::vec((0_usize..3, 0_usize..3, any::<bool>(), 1_i64..90), 1..12),
    ) {
        let mut rollout = tracked();
        let mut named = BTreeSet::from(["a".to_owned()]);
        let mut canaries = vec![canary("c0", "a")];
        for (number, value, removes, seconds) in edits {
            let name = format!("c{number}");
            canaries.retain(|step| step.name.as_ref() != Some(&name));
            if !removes {
                canaries.insert(number.min(canaries.len()), canary(&name, TRACKS[value]));
            }
            if canaries.is_empty() {
                canaries.push(canary("c0", "a"));
            }
            named.extend(canaries.iter().map(|step| step.selector.as_ref().unwrap().match_labels["track"].clone()));
            rollout.spec.steps = [canaries.clone(), vec![share("half", "50%")]].concat();
            rollout.watch("2", seconds);
            rollout.take();
            if rollout.status.rollout.step_name.as_deref().is_some_and(|name| !name.starts_with('c')) {
                break;
            }
            let moved = workloads(&mut rollout);
            prop_assert!(moved.is_subset(&named), "{moved:?}, of {named:?}");
        }
    }
}
