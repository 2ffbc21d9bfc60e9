//! One process is held back: all that its watches bring arrives up to a minute late, while its other requests are answered at once.

use std::time::Duration;

use anyhow::Result;
use futures::future::LocalBoxFuture;
use rand::rngs::StdRng;

use super::{Fault, STATIONS, any, seconds};
use crate::fleet::Fleet;
use crate::history::Harms;

struct Late {
    station: &'static str,
    by: Duration,
    lasts: Duration,
}

pub(super) fn make(random: &mut StdRng) -> Box<dyn Fault> {
    Box::new(Late {
        station: any(random, &STATIONS[..4]),
        by: seconds(random, 2..=60),
        lasts: seconds(random, 10..=60),
    })
}

impl Fault for Late {
    fn name(&self) -> String {
        format!("late: {} by {:?} for {:?}", self.station, self.by, self.lasts)
    }

    fn parts(&self) -> Vec<String> {
        vec![format!("way of {}", self.station)]
    }

    fn lasts(&self) -> Duration {
        self.lasts
    }

    fn begin<'a>(&'a mut self, fleet: &'a mut Fleet) -> LocalBoxFuture<'a, Result<Harms>> {
        Box::pin(async move {
            fleet.station(self.station)?.0.way.late(self.by);
            Ok(Harms::Nobody)
        })
    }

    fn end<'a>(&'a mut self, fleet: &'a mut Fleet) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            fleet.station(self.station)?.0.way.late(Duration::ZERO);
            Ok(())
        })
    }
}
