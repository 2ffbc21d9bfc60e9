//! A process is started again with a wall clock that is up to five minutes off, and then with a right one.

use std::time::Duration;

use anyhow::Result;
use futures::future::LocalBoxFuture;
use rand::RngExt as _;
use rand::rngs::StdRng;

use super::{Fault, Picked, STATIONS, any, seconds};
use crate::fleet::Fleet;
use crate::history::Harms;

/// Five minutes, in seconds.
const MOST: i64 = 300;

enum Victim {
    Agent(Picked),
    Role(&'static str),
}

struct Clock {
    victim: Victim,
    off: i64,
    lasts: Duration,
}

pub(super) fn make(random: &mut StdRng) -> Box<dyn Fault> {
    let victim = match random.random_range(0..3) {
        0 => Victim::Agent(Picked::random(random)),
        _ => Victim::Role(any(random, &STATIONS)),
    };
    Box::new(Clock { victim, off: random.random_range(-MOST..=MOST), lasts: seconds(random, 10..=60) })
}

impl Clock {
    fn restart(&mut self, fleet: &mut Fleet, off: i64, begins: bool) -> Result<()> {
        let variables = if off == 0 { Vec::new() } else { fleet.clocks.off(off) };
        match &mut self.victim {
            Victim::Agent(pod) => {
                let member = if begins { pod.begin(fleet) } else { pod.again(fleet) };
                let Some(member) = member else { return Ok(()) };
                member.kill_agent()?;
                member.pod.variables = variables;
                member.start_agent()
            }
            Victim::Role(name) => {
                let (station, cluster) = fleet.station(name)?;
                station.kill()?;
                station.set_variables(variables);
                station.start(cluster)
            }
        }
    }
}

impl Fault for Clock {
    fn name(&self) -> String {
        match &self.victim {
            Victim::Agent(pod) => format!("clock: of the agent of {} off by {} s", pod.part(), self.off),
            Victim::Role(name) => format!("clock: of {name} off by {} s", self.off),
        }
    }

    fn parts(&self) -> Vec<String> {
        match &self.victim {
            Victim::Agent(pod) => vec![pod.part()],
            Victim::Role(name) => vec![(*name).to_owned()],
        }
    }

    fn lasts(&self) -> Duration {
        self.lasts
    }

    fn begin<'a>(&'a mut self, fleet: &'a mut Fleet) -> LocalBoxFuture<'a, Result<Harms>> {
        Box::pin(async move { self.restart(fleet, self.off, true).map(|()| Harms::Nobody) })
    }

    fn end<'a>(&'a mut self, fleet: &'a mut Fleet) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move { self.restart(fleet, 0, false) })
    }
}
