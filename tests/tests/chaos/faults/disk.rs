//! The volumes of an agent are full: neither its last good contents nor its files can be written.

use std::time::Duration;

use anyhow::Result;
use futures::future::LocalBoxFuture;
use rand::rngs::StdRng;

use super::{Fault, PickedPod, random_seconds};
use crate::fleet::Fleet;
use crate::history::Harms;

struct Full {
    pod: PickedPod,
    duration: Duration,
}

pub(super) fn make(random: &mut StdRng) -> Box<dyn Fault> {
    Box::new(Full { pod: PickedPod::random(random), duration: random_seconds(random, 5..=40) })
}

impl Fault for Full {
    fn name(&self) -> String {
        format!("disk: of {} full for {:?}", self.pod.affected_part(), self.duration)
    }

    fn affected_parts(&self) -> Vec<String> {
        vec![self.pod.affected_part()]
    }

    fn duration(&self) -> Duration {
        self.duration
    }

    fn begin<'a>(&'a mut self, fleet: &'a mut Fleet) -> LocalBoxFuture<'a, Result<Harms>> {
        Box::pin(async move {
            let Some(member) = self.pod.pick(fleet) else { return Ok(Harms::Nobody) };
            member.disk.fill()?;
            // It can't take a version, and says so.
            Ok(Harms::Pod(member.name.clone()))
        })
    }

    fn end<'a>(&'a mut self, fleet: &'a mut Fleet) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move { self.pod.picked(fleet).map_or(Ok(()), |member| member.disk.empty()) })
    }
}
