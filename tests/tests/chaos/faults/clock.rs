//! A process is started again with a wall clock that is up to five minutes off, and then with a correct clock.

use std::time::Duration;

use anyhow::Result;
use futures::future::LocalBoxFuture;
use rand::RngExt as _;
use rand::rngs::StdRng;

use super::{Fault, PROCESS_NAMES, PickedPod, pick_any, random_seconds};
use crate::fleet::Fleet;
use crate::history::Harms;

/// The largest offset of a clock: five minutes, in seconds.
const MAX_OFFSET_SECONDS: i64 = 300;

enum Victim {
    Agent(PickedPod),
    Role(&'static str),
}

struct Clock {
    victim: Victim,
    offset_seconds: i64,
    duration: Duration,
}

pub(super) fn make(random: &mut StdRng) -> Box<dyn Fault> {
    let victim = match random.random_range(0..3) {
        0 => Victim::Agent(PickedPod::random(random)),
        _ => Victim::Role(pick_any(random, &PROCESS_NAMES)),
    };
    Box::new(Clock {
        victim,
        offset_seconds: random.random_range(-MAX_OFFSET_SECONDS..=MAX_OFFSET_SECONDS),
        duration: random_seconds(random, 10..=60),
    })
}

impl Clock {
    fn restart(&mut self, fleet: &mut Fleet, offset_seconds: i64, begins: bool) -> Result<()> {
        let variables = if offset_seconds == 0 { Vec::new() } else { fleet.clocks.variables(offset_seconds) };
        match &mut self.victim {
            Victim::Agent(pod) => {
                let member = if begins { pod.pick(fleet) } else { pod.picked(fleet) };
                let Some(member) = member else { return Ok(()) };
                member.kill_agent()?;
                member.pod.variables = variables;
                member.start_agent()
            }
            Victim::Role(name) => {
                let (process, cluster) = fleet.control_plane_process(name)?;
                process.kill()?;
                process.set_variables(variables);
                process.start(cluster)
            }
        }
    }
}

impl Fault for Clock {
    fn name(&self) -> String {
        match &self.victim {
            Victim::Agent(pod) => {
                format!("clock: of the agent of {} off by {} s", pod.affected_part(), self.offset_seconds)
            }
            Victim::Role(name) => format!("clock: of {name} off by {} s", self.offset_seconds),
        }
    }

    fn affected_parts(&self) -> Vec<String> {
        match &self.victim {
            Victim::Agent(pod) => vec![pod.affected_part()],
            Victim::Role(name) => vec![(*name).to_owned()],
        }
    }

    fn duration(&self) -> Duration {
        self.duration
    }

    fn begin<'a>(&'a mut self, fleet: &'a mut Fleet) -> LocalBoxFuture<'a, Result<Harms>> {
        Box::pin(async move { self.restart(fleet, self.offset_seconds, true).map(|()| Harms::Nobody) })
    }

    fn end<'a>(&'a mut self, fleet: &'a mut Fleet) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move { self.restart(fleet, 0, false) })
    }
}
