//! SIGSTOP for 1 to 40 s: a process that stands still and then continues as if no time had passed.

use std::time::Duration;

use anyhow::Result;
use futures::future::LocalBoxFuture;
use nix::sys::signal::Signal;
use rand::rngs::StdRng;

use super::victim::Victim;
use super::{Fault, random_seconds};
use crate::fleet::Fleet;
use crate::history::Harms;

struct Stop {
    victim: Victim,
    duration: Duration,
}

pub(super) fn make(random: &mut StdRng) -> Box<dyn Fault> {
    Box::new(Stop { victim: Victim::random(random), duration: random_seconds(random, 1..=40) })
}

impl Stop {
    fn signal(&mut self, fleet: &mut Fleet, signal: Signal, begins: bool) -> Result<()> {
        let (Victim::Agent(pod) | Victim::Application(pod)) = &mut self.victim else {
            let Victim::Role(process) = &self.victim else { return Ok(()) };
            let process = fleet.control_plane_process(process)?.0.replica.as_ref();
            process.map_or(Ok(()), |process| process.signal(signal))?;
            return Ok(());
        };
        let member = if begins { pod.pick(fleet) } else { pod.picked(fleet) };
        let Some(member) = member else { return Ok(()) };
        match &self.victim {
            // The agent may have been killed, and not be started again.
            Victim::Agent(_) if member.pod.agent.is_some() => member.signal_agent(signal)?,
            Victim::Agent(_) | Victim::Role(_) => {}
            Victim::Application(_) => member.signal_app(signal)?,
        }
        Ok(())
    }
}

impl Fault for Stop {
    fn name(&self) -> String {
        format!("stop: {} for {:?}", self.victim.name(), self.duration)
    }

    fn affected_parts(&self) -> Vec<String> {
        self.victim.affected_parts()
    }

    fn duration(&self) -> Duration {
        self.duration
    }

    fn begin<'a>(&'a mut self, fleet: &'a mut Fleet) -> LocalBoxFuture<'a, Result<Harms>> {
        Box::pin(async move { self.signal(fleet, Signal::SIGSTOP, true).map(|()| Harms::Nobody) })
    }

    fn end<'a>(&'a mut self, fleet: &'a mut Fleet) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move { self.signal(fleet, Signal::SIGCONT, false) })
    }
}
