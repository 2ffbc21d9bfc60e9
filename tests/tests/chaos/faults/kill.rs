//! kill -9 of any process: a pod's agent or application, or one of the control plane. Its kubelet starts it again after
//! some seconds.

use std::time::Duration;

use anyhow::Result;
use futures::future::LocalBoxFuture;
use nix::sys::signal::Signal;
use rand::rngs::StdRng;

use super::victim::Victim;
use super::{Fault, random_seconds};
use crate::fleet::Fleet;
use crate::history::Harms;

struct Kill {
    victim: Victim,
    duration: Duration,
}

pub(super) fn make(random: &mut StdRng) -> Box<dyn Fault> {
    Box::new(Kill { victim: Victim::random(random), duration: random_seconds(random, 1..=8) })
}

impl Fault for Kill {
    fn name(&self) -> String {
        format!("kill: {}", self.victim.name())
    }

    fn affected_parts(&self) -> Vec<String> {
        self.victim.affected_parts()
    }

    fn duration(&self) -> Duration {
        self.duration
    }

    fn begin<'a>(&'a mut self, fleet: &'a mut Fleet) -> LocalBoxFuture<'a, Result<Harms>> {
        Box::pin(async move {
            match &mut self.victim {
                Victim::Agent(pod) => {
                    let Some(member) = pod.pick(fleet) else { return Ok(Harms::Nobody) };
                    member.kill_agent()?;
                    Ok(Harms::Nobody)
                }
                Victim::Application(pod) => {
                    let Some(member) = pod.pick(fleet) else { return Ok(Harms::Nobody) };
                    member.signal_app(Signal::SIGKILL)?;
                    Ok(Harms::Pod(member.name.clone()))
                }
                Victim::Role(process) => {
                    fleet.control_plane_process(process)?.0.kill()?;
                    Ok(Harms::Nobody)
                }
            }
        })
    }

    fn end<'a>(&'a mut self, fleet: &'a mut Fleet) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            match &self.victim {
                Victim::Agent(pod) => pod.picked(fleet).map_or(Ok(()), crate::fleet::member::Member::start_agent),
                // The shell around it has started it again at once.
                Victim::Application(_) => Ok(()),
                Victim::Role(process) => {
                    let (process, cluster) = fleet.control_plane_process(process)?;
                    process.start(cluster)
                }
            }
        })
    }
}
