//! Connections end where nobody expects it: agents' in the middle of an answer of the hub, and watches in the middle of an object. Or they
//! stay, and nothing comes.

use std::time::Duration;

use anyhow::Result;
use futures::future::LocalBoxFuture;
use rand::RngExt as _;
use rand::rngs::StdRng;

use super::{Fault, STATIONS, any, seconds};
use crate::fleet::Fleet;
use crate::history::Harms;

#[derive(Clone, Copy, Debug)]
enum What {
    Hubs,
    HubsInAnswers,
    HubsSilent,
    WatchesOf(&'static str),
}

struct Cut {
    what: What,
    lasts: Duration,
}

pub(super) fn make(random: &mut StdRng) -> Box<dyn Fault> {
    let what = match random.random_range(0..6) {
        0 => What::Hubs,
        1 | 2 => What::HubsInAnswers,
        3 => What::HubsSilent,
        _ => What::WatchesOf(any(random, &STATIONS[..4])),
    };
    let lasts = if matches!(what, What::HubsSilent) { seconds(random, 1..=20) } else { Duration::ZERO };
    Box::new(Cut { what, lasts })
}

impl Fault for Cut {
    fn name(&self) -> String {
        format!("cut: {:?} for {:?}", self.what, self.lasts)
    }

    fn parts(&self) -> Vec<String> {
        match self.what {
            What::WatchesOf(station) => vec![format!("way of {station}")],
            _ => vec!["way to the hubs".to_owned()],
        }
    }

    fn lasts(&self) -> Duration {
        self.lasts
    }

    fn begin<'a>(&'a mut self, fleet: &'a mut Fleet) -> LocalBoxFuture<'a, Result<Harms>> {
        Box::pin(async move {
            match self.what {
                What::Hubs => fleet.control_plane.hubs.cut(),
                What::HubsInAnswers => fleet.control_plane.hubs.cut_in_answer(),
                What::HubsSilent => fleet.control_plane.hubs.hold(true),
                What::WatchesOf(station) => fleet.station(station)?.0.way.cut(),
            }
            Ok(Harms::Nobody)
        })
    }

    fn end<'a>(&'a mut self, fleet: &'a mut Fleet) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            if matches!(self.what, What::HubsSilent) {
                fleet.control_plane.hubs.hold(false);
            }
            Ok(())
        })
    }
}
