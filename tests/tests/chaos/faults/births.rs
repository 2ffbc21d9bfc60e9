//! Pods are evicted and born, and workloads get another image, which replaces all of their pods.

use std::time::Duration;

use anyhow::Result;
use futures::future::LocalBoxFuture;
use rand::RngExt as _;
use rand::rngs::StdRng;

use super::{Fault, Picked, seconds};
use crate::fleet::Fleet;
use crate::fleet::member::WORKLOADS;
use crate::history::Harms;

enum What {
    /// A pod goes, and another comes at the end.
    Evicted(Picked, Option<usize>),
    /// There is one more meanwhile.
    Scaled(usize),
    /// The image of a workload.
    Image(usize),
}

struct Pods {
    what: What,
    lasts: Duration,
}

pub(super) fn make(random: &mut StdRng) -> Box<dyn Fault> {
    let workload = random.random_range(0..WORKLOADS.len());
    let what = match random.random_range(0..6) {
        0..3 => What::Evicted(Picked::random(random), None),
        3 | 4 => What::Scaled(workload),
        _ => What::Image(workload),
    };
    Box::new(Pods { what, lasts: seconds(random, 1..=15) })
}

impl Fault for Pods {
    fn name(&self) -> String {
        match &self.what {
            What::Evicted(pod, _) => format!("pod: {} evicted", pod.part()),
            What::Scaled(workload) => format!("pod: one more of {}", WORKLOADS[*workload].0),
            What::Image(workload) => format!("pod: all of {} with another image", WORKLOADS[*workload].0),
        }
    }

    fn parts(&self) -> Vec<String> {
        // The servers must be there.
        let all = (0..20).map(|number| format!("pod {number}"));
        let pods = match &self.what {
            What::Evicted(pod, _) => vec![pod.part()],
            What::Scaled(_) => Vec::new(),
            What::Image(_) => all.collect(),
        };
        [pods, vec!["servers".to_owned()]].concat()
    }

    fn lasts(&self) -> Duration {
        self.lasts
    }

    fn begin<'a>(&'a mut self, fleet: &'a mut Fleet) -> LocalBoxFuture<'a, Result<Harms>> {
        Box::pin(async move {
            fleet.api_answers().await?;
            match &mut self.what {
                What::Evicted(pod, workload) => {
                    let Some(member) = pod.begin(fleet) else { return Ok(Harms::Nobody) };
                    let name = member.name.clone();
                    *workload = Some(member.workload);
                    fleet.bury(&name).await?;
                }
                What::Scaled(workload) => fleet.bear(*workload).await?,
                What::Image(workload) => {
                    fleet.another_image(*workload);
                    let of = |fleet: &Fleet| fleet.names_of(*workload);
                    for name in of(fleet) {
                        fleet.bear(*workload).await?;
                        fleet.bury(&name).await?;
                    }
                }
            }
            Ok(Harms::Nobody)
        })
    }

    fn end<'a>(&'a mut self, fleet: &'a mut Fleet) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            fleet.api_answers().await?;
            match &self.what {
                What::Evicted(_, Some(workload)) => fleet.bear(*workload).await,
                What::Scaled(workload) => match fleet.names_of(*workload).first().cloned() {
                    Some(oldest) => fleet.bury(&oldest).await,
                    None => Ok(()),
                },
                What::Evicted(_, None) | What::Image(_) => Ok(()),
            }
        })
    }
}
