//! The step of a move that each pod is in, as far as it can be foreseen: pods come and go between steps.

use nudge_api::{Pods, RolloutSpec, Step};

use super::{Subject, Thresholds};

/// Returns for each pod the number of the step, from 1, that assigns it the target if the move begins now.
pub fn planned_steps(spec: &RolloutSpec, pods: &[Subject]) -> Vec<usize> {
    let last_step = Step::of(Pods::Share("100%".to_owned()));
    let mut planned = vec![0; pods.len()];
    let mut thresholds = Thresholds::default();
    for (index, step) in spec.steps.iter().chain([&last_step]).enumerate() {
        thresholds = thresholds.raise(pods, &step.pods, step.selector.as_ref());
        for (planned, pod) in planned.iter_mut().zip(pods) {
            if *planned == 0 && thresholds.is_assigned(pod) {
                *planned = index + 1;
            }
        }
    }
    planned
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::identity::Identity;
    use crate::keys::PodUid;
    use crate::pods::PodState;

    fn pods(workloads: &[(&str, usize)]) -> Vec<Subject> {
        let of = |workload: &str, number: usize| {
            let pod = PodState {
                uid: PodUid::new(&format!("{workload}-{number}")).unwrap(),
                workload: Some(workload.into()),
                labels: Arc::new([("app".to_owned(), workload.to_owned())].into()),
                ..PodState::default()
            };
            Subject::of(Arc::new(pod), "shop", Identity::of_uid("c"), true).unwrap()
        };
        workloads.iter().flat_map(|&(name, count)| (0..count).map(move |number| of(name, number))).collect()
    }

    fn sizes(steps: &Value, pods: &[Subject]) -> Vec<usize> {
        let spec: RolloutSpec = serde_json::from_value(json!({"steps": steps})).unwrap();
        let planned = planned_steps(&spec, pods);
        (1..=planned.iter().copied().max().unwrap_or(0))
            .map(|step| planned.iter().filter(|&&one| one == step).count())
            .collect()
    }

    #[test]
    fn steps_have_their_share_and_the_last_one_is_all() {
        let pods = pods(&[("web", 30), ("api", 10)]);
        assert_eq!(sizes(&json!([{"pods": 1}, {"pods": "25%"}, {"pods": "50%"}]), &pods), [1, 9, 10, 20]);
        assert_eq!(sizes(&json!([{"pods": "100%"}]), &pods), [40]);
        let canary = json!([{"pods": "100%", "selector": {"matchLabels": {"app": "api"}}}, {"pods": "50%"}]);
        assert_eq!(sizes(&canary, &pods)[0], 10);
        assert_eq!(sizes(&json!([{"pods": 1}]), &[]), [0; 0]);
    }

    proptest! {
        #[test]
        fn every_pod_has_a_step(counts in proptest::collection::vec(0..40_usize, 0..4), shares in proptest::collection::vec(1..100_u8, 0..4)) {
            let named: Vec<(String, usize)> = counts.iter().enumerate().map(|(at, &count)| (format!("w{at}"), count)).collect();
            let named: Vec<(&str, usize)> = named.iter().map(|(name, count)| (name.as_str(), *count)).collect();
            let pods = pods(&named);
            let steps = shares.iter().map(|share| Step::of(Pods::Share(format!("{share}%")))).collect::<Vec<_>>();
            let most = steps.len() + 1;
            let planned = planned_steps(&RolloutSpec { steps, ..RolloutSpec::default() }, &pods);
            prop_assert!(planned.len() == pods.len() && planned.iter().all(|step| (1..=most).contains(step)));
        }
    }
}
