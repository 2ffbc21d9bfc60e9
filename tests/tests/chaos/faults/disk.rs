//! The volumes of an agent are full: neither its last good contents nor its files can be written.

use std::time::Duration;

use anyhow::Result;
use futures::future::LocalBoxFuture;
use rand::rngs::StdRng;

use super::{Fault, Picked, seconds};
use crate::fleet::Fleet;
use crate::history::Harms;

struct Full {
    pod: Picked,
    lasts: Duration,
}

pub(super) fn make(random: &mut StdRng) -> Box<dyn Fault> {
    Box::new(Full { pod: Picked::random(random), lasts: seconds(random, 5..=40) })
}

impl Fault for Full {
    fn name(&self) -> String {
        format!("disk: of {} full for {:?}", self.pod.part(), self.lasts)
    }

    fn parts(&self) -> Vec<String> {
        vec![self.pod.part()]
    }

    fn lasts(&self) -> Duration {
        self.lasts
    }

    fn begin<'a>(&'a mut self, fleet: &'a mut Fleet) -> LocalBoxFuture<'a, Result<Harms>> {
        Box::pin(async move {
            let Some(member) = self.pod.begin(fleet) else { return Ok(Harms::Nobody) };
            member.disk.fill()?;
            // It can't take a version, and says so.
            Ok(Harms::Pod(member.name.clone()))
        })
    }

    fn end<'a>(&'a mut self, fleet: &'a mut Fleet) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move { self.pod.again(fleet).map_or(Ok(()), |member| member.disk.empty()) })
    }
}
