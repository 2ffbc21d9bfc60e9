//! One process is held back: all that its watches bring arrives up to a minute late, while its other requests are
//! answered at once.

use std::time::Duration;

use anyhow::Result;
use futures::future::LocalBoxFuture;
use rand::rngs::StdRng;

use super::{Fault, PROCESS_NAMES, pick_any, random_seconds};
use crate::fleet::Fleet;
use crate::history::Harms;

struct Late {
    process: &'static str,
    delay: Duration,
    duration: Duration,
}

pub(super) fn make(random: &mut StdRng) -> Box<dyn Fault> {
    Box::new(Late {
        process: pick_any(random, &PROCESS_NAMES[..4]),
        delay: random_seconds(random, 2..=60),
        duration: random_seconds(random, 10..=60),
    })
}

impl Fault for Late {
    fn name(&self) -> String {
        format!("late: {} by {:?} for {:?}", self.process, self.delay, self.duration)
    }

    fn affected_parts(&self) -> Vec<String> {
        vec![format!("way of {}", self.process)]
    }

    fn duration(&self) -> Duration {
        self.duration
    }

    fn begin<'a>(&'a mut self, fleet: &'a mut Fleet) -> LocalBoxFuture<'a, Result<Harms>> {
        Box::pin(async move {
            fleet.control_plane_process(self.process)?.0.proxy.delay_watches(self.delay);
            Ok(Harms::Nobody)
        })
    }

    fn end<'a>(&'a mut self, fleet: &'a mut Fleet) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            fleet.control_plane_process(self.process)?.0.proxy.delay_watches(Duration::ZERO);
            Ok(())
        })
    }
}
