//! Pods are evicted and added, and workloads get another image, which replaces all of their pods.

use std::time::Duration;

use anyhow::Result;
use futures::future::LocalBoxFuture;
use rand::RngExt as _;
use rand::rngs::StdRng;

use super::{Fault, PickedPod, random_seconds};
use crate::fleet::Fleet;
use crate::fleet::member::WORKLOADS;
use crate::history::Harms;

enum PodFault {
    /// A pod is evicted, and another one is added at the end.
    Evicted(PickedPod, Option<usize>),
    /// A workload has one more pod meanwhile.
    Scaled(usize),
    /// The image of a workload changes.
    Image(usize),
}

struct Pods {
    what: PodFault,
    duration: Duration,
}

pub(super) fn make(random: &mut StdRng) -> Box<dyn Fault> {
    let workload = random.random_range(0..WORKLOADS.len());
    let what = match random.random_range(0..6) {
        0..3 => PodFault::Evicted(PickedPod::random(random), None),
        3 | 4 => PodFault::Scaled(workload),
        _ => PodFault::Image(workload),
    };
    Box::new(Pods { what, duration: random_seconds(random, 1..=15) })
}

impl Fault for Pods {
    fn name(&self) -> String {
        match &self.what {
            PodFault::Evicted(pod, _) => format!("pod: {} evicted", pod.affected_part()),
            PodFault::Scaled(workload) => format!("pod: one more of {}", WORKLOADS[*workload].0),
            PodFault::Image(workload) => format!("pod: all of {} with another image", WORKLOADS[*workload].0),
        }
    }

    fn affected_parts(&self) -> Vec<String> {
        let all_pods = (0..20).map(|number| format!("pod {number}"));
        let pods = match &self.what {
            PodFault::Evicted(pod, _) => vec![pod.affected_part()],
            PodFault::Scaled(_) => Vec::new(),
            PodFault::Image(_) => all_pods.collect(),
        };
        [pods, vec!["servers".to_owned()]].concat()
    }

    fn duration(&self) -> Duration {
        self.duration
    }

    fn begin<'a>(&'a mut self, fleet: &'a mut Fleet) -> LocalBoxFuture<'a, Result<Harms>> {
        Box::pin(async move {
            fleet.wait_for_api_server().await?;
            match &mut self.what {
                PodFault::Evicted(pod, workload) => {
                    let Some(member) = pod.pick(fleet) else { return Ok(Harms::Nobody) };
                    let name = member.name.clone();
                    *workload = Some(member.workload);
                    fleet.remove_pod(&name).await?;
                }
                PodFault::Scaled(workload) => fleet.add_pod(*workload).await?,
                PodFault::Image(workload) => {
                    fleet.change_image(*workload);
                    for name in fleet.pod_names(*workload) {
                        fleet.add_pod(*workload).await?;
                        fleet.remove_pod(&name).await?;
                    }
                }
            }
            Ok(Harms::Nobody)
        })
    }

    fn end<'a>(&'a mut self, fleet: &'a mut Fleet) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            fleet.wait_for_api_server().await?;
            match &self.what {
                PodFault::Evicted(_, Some(workload)) => fleet.add_pod(*workload).await,
                PodFault::Scaled(workload) => match fleet.pod_names(*workload).first().cloned() {
                    Some(oldest) => fleet.remove_pod(&oldest).await,
                    None => Ok(()),
                },
                PodFault::Evicted(_, None) | PodFault::Image(_) => Ok(()),
            }
        })
    }
}
