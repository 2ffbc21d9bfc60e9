//! The writes of one process are done, and their answers are lost.

use std::time::Duration;

use anyhow::Result;
use futures::future::LocalBoxFuture;
use rand::rngs::StdRng;

use super::{Fault, STATIONS, any, seconds};
use crate::fleet::Fleet;
use crate::history::Harms;

struct Answers {
    station: &'static str,
    lasts: Duration,
}

pub(super) fn make(random: &mut StdRng) -> Box<dyn Fault> {
    Box::new(Answers { station: any(random, &STATIONS), lasts: seconds(random, 1..=8) })
}

impl Fault for Answers {
    fn name(&self) -> String {
        format!("answer: lost to {} for {:?}", self.station, self.lasts)
    }

    fn parts(&self) -> Vec<String> {
        vec![format!("writes of {}", self.station)]
    }

    fn lasts(&self) -> Duration {
        self.lasts
    }

    fn begin<'a>(&'a mut self, fleet: &'a mut Fleet) -> LocalBoxFuture<'a, Result<Harms>> {
        Box::pin(async move {
            fleet.station(self.station)?.0.way.lose_answers(true);
            Ok(Harms::Nobody)
        })
    }

    fn end<'a>(&'a mut self, fleet: &'a mut Fleet) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            fleet.station(self.station)?.0.way.lose_answers(false);
            Ok(())
        })
    }
}
