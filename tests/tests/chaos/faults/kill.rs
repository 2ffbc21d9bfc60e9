//! kill -9 of any process: a pod's agent or application, or one of the control plane. Its kubelet starts it again after some seconds.

use std::time::Duration;

use anyhow::Result;
use futures::future::LocalBoxFuture;
use nix::sys::signal::Signal;
use rand::rngs::StdRng;

use super::victim::Victim;
use super::{Fault, seconds};
use crate::fleet::Fleet;
use crate::history::Harms;

struct Kill {
    victim: Victim,
    lasts: Duration,
}

pub(super) fn make(random: &mut StdRng) -> Box<dyn Fault> {
    Box::new(Kill { victim: Victim::random(random), lasts: seconds(random, 1..=8) })
}

impl Fault for Kill {
    fn name(&self) -> String {
        format!("kill: {}", self.victim.name())
    }

    fn parts(&self) -> Vec<String> {
        self.victim.parts()
    }

    fn lasts(&self) -> Duration {
        self.lasts
    }

    fn begin<'a>(&'a mut self, fleet: &'a mut Fleet) -> LocalBoxFuture<'a, Result<Harms>> {
        Box::pin(async move {
            match &mut self.victim {
                Victim::Agent(pod) => {
                    let Some(member) = pod.begin(fleet) else { return Ok(Harms::Nobody) };
                    member.kill_agent()?;
                    Ok(Harms::Nobody)
                }
                Victim::Application(pod) => {
                    let Some(member) = pod.begin(fleet) else { return Ok(Harms::Nobody) };
                    member.signal_app(Signal::SIGKILL)?;
                    Ok(Harms::Pod(member.name.clone()))
                }
                Victim::Role(station) => {
                    fleet.station(station)?.0.kill()?;
                    Ok(Harms::Nobody)
                }
            }
        })
    }

    fn end<'a>(&'a mut self, fleet: &'a mut Fleet) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            match &self.victim {
                Victim::Agent(pod) => pod.again(fleet).map_or(Ok(()), crate::fleet::member::Member::start_agent),
                // What stands for its kubelet has started it at once.
                Victim::Application(_) => Ok(()),
                Victim::Role(station) => {
                    let (station, cluster) = fleet.station(station)?;
                    station.start(cluster)
                }
            }
        })
    }
}
