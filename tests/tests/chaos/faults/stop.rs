//! SIGSTOP for 1 to 40 s: a process that stands still and then goes on as if no time had passed.

use std::time::Duration;

use anyhow::Result;
use futures::future::LocalBoxFuture;
use nix::sys::signal::Signal;
use rand::rngs::StdRng;

use super::victim::Victim;
use super::{Fault, seconds};
use crate::fleet::Fleet;
use crate::history::Harms;

struct Stop {
    victim: Victim,
    lasts: Duration,
}

pub(super) fn make(random: &mut StdRng) -> Box<dyn Fault> {
    Box::new(Stop { victim: Victim::random(random), lasts: seconds(random, 1..=40) })
}

impl Stop {
    fn signal(&mut self, fleet: &mut Fleet, signal: Signal, begins: bool) -> Result<()> {
        let (Victim::Agent(pod) | Victim::Application(pod)) = &mut self.victim else {
            let Victim::Role(station) = &self.victim else { return Ok(()) };
            let process = fleet.station(station)?.0.process.as_ref();
            process.map_or(Ok(()), |process| process.signal(signal))?;
            return Ok(());
        };
        let member = if begins { pod.begin(fleet) } else { pod.again(fleet) };
        let Some(member) = member else { return Ok(()) };
        match &self.victim {
            // Its agent may have been killed, and not be back.
            Victim::Agent(_) if member.pod.agent.is_some() => member.signal_agent(signal)?,
            Victim::Agent(_) | Victim::Role(_) => {}
            Victim::Application(_) => member.signal_app(signal)?,
        }
        Ok(())
    }
}

impl Fault for Stop {
    fn name(&self) -> String {
        format!("stop: {} for {:?}", self.victim.name(), self.lasts)
    }

    fn parts(&self) -> Vec<String> {
        self.victim.parts()
    }

    fn lasts(&self) -> Duration {
        self.lasts
    }

    fn begin<'a>(&'a mut self, fleet: &'a mut Fleet) -> LocalBoxFuture<'a, Result<Harms>> {
        Box::pin(async move { self.signal(fleet, Signal::SIGSTOP, true).map(|()| Harms::Nobody) })
    }

    fn end<'a>(&'a mut self, fleet: &'a mut Fleet) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move { self.signal(fleet, Signal::SIGCONT, false) })
    }
}
