//! Connections end at unexpected points: agents' in the middle of an answer of the hub, and watches in the middle of an
//! object. Or they stay, and nothing comes.

use std::time::Duration;

use anyhow::Result;
use futures::future::LocalBoxFuture;
use rand::RngExt as _;
use rand::rngs::StdRng;

use super::{Fault, PROCESS_NAMES, pick_any, random_seconds};
use crate::fleet::Fleet;
use crate::history::Harms;

#[derive(Clone, Copy, Debug)]
enum CutKind {
    Hubs,
    HubsInAnswers,
    HubsSilent,
    WatchesOf(&'static str),
}

struct Cut {
    what: CutKind,
    duration: Duration,
}

pub(super) fn make(random: &mut StdRng) -> Box<dyn Fault> {
    let what = match random.random_range(0..6) {
        0 => CutKind::Hubs,
        1 | 2 => CutKind::HubsInAnswers,
        3 => CutKind::HubsSilent,
        _ => CutKind::WatchesOf(pick_any(random, &PROCESS_NAMES[..4])),
    };
    let duration = if matches!(what, CutKind::HubsSilent) { random_seconds(random, 1..=20) } else { Duration::ZERO };
    Box::new(Cut { what, duration })
}

impl Fault for Cut {
    fn name(&self) -> String {
        format!("cut: {:?} for {:?}", self.what, self.duration)
    }

    fn affected_parts(&self) -> Vec<String> {
        match self.what {
            CutKind::WatchesOf(process) => vec![format!("way of {process}")],
            _ => vec!["way to the hubs".to_owned()],
        }
    }

    fn duration(&self) -> Duration {
        self.duration
    }

    fn begin<'a>(&'a mut self, fleet: &'a mut Fleet) -> LocalBoxFuture<'a, Result<Harms>> {
        Box::pin(async move {
            match self.what {
                CutKind::Hubs => fleet.control_plane.hubs.cut_connections(),
                CutKind::HubsInAnswers => fleet.control_plane.hubs.cut_in_answers(),
                CutKind::HubsSilent => fleet.control_plane.hubs.set_held(true),
                CutKind::WatchesOf(process) => fleet.control_plane_process(process)?.0.proxy.cut_watches(),
            }
            Ok(Harms::Nobody)
        })
    }

    fn end<'a>(&'a mut self, fleet: &'a mut Fleet) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            if matches!(self.what, CutKind::HubsSilent) {
                fleet.control_plane.hubs.set_held(false);
            }
            Ok(())
        })
    }
}
