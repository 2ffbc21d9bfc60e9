//! The writes of one process are done, and their answers are lost.

use std::time::Duration;

use anyhow::Result;
use futures::future::LocalBoxFuture;
use rand::rngs::StdRng;

use super::{Fault, PROCESS_NAMES, pick_any, random_seconds};
use crate::fleet::Fleet;
use crate::history::Harms;

struct Answers {
    process: &'static str,
    duration: Duration,
}

pub(super) fn make(random: &mut StdRng) -> Box<dyn Fault> {
    Box::new(Answers { process: pick_any(random, &PROCESS_NAMES), duration: random_seconds(random, 1..=8) })
}

impl Fault for Answers {
    fn name(&self) -> String {
        format!("answer: lost to {} for {:?}", self.process, self.duration)
    }

    fn affected_parts(&self) -> Vec<String> {
        vec![format!("writes of {}", self.process)]
    }

    fn duration(&self) -> Duration {
        self.duration
    }

    fn begin<'a>(&'a mut self, fleet: &'a mut Fleet) -> LocalBoxFuture<'a, Result<Harms>> {
        Box::pin(async move {
            fleet.control_plane_process(self.process)?.0.proxy.set_losing_answers(true);
            Ok(Harms::Nobody)
        })
    }

    fn end<'a>(&'a mut self, fleet: &'a mut Fleet) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            fleet.control_plane_process(self.process)?.0.proxy.set_losing_answers(false);
            Ok(())
        })
    }
}
