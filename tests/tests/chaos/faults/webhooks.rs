//! The webhooks can't be reached: the API server does without them if their failure policy allows that, and otherwise
//! refuses the request.

use std::time::Duration;

use anyhow::Result;
use futures::future::LocalBoxFuture;
use rand::rngs::StdRng;

use super::{Fault, random_seconds};
use crate::fleet::Fleet;
use crate::history::Harms;

struct Webhooks {
    duration: Duration,
}

pub(super) fn make(random: &mut StdRng) -> Box<dyn Fault> {
    Box::new(Webhooks { duration: random_seconds(random, 2..=20) })
}

impl Fault for Webhooks {
    fn name(&self) -> String {
        format!("webhook: none for {:?}", self.duration)
    }

    fn affected_parts(&self) -> Vec<String> {
        vec!["webhooks".to_owned()]
    }

    fn duration(&self) -> Duration {
        self.duration
    }

    fn begin<'a>(&'a mut self, fleet: &'a mut Fleet) -> LocalBoxFuture<'a, Result<Harms>> {
        Box::pin(async move {
            fleet.control_plane.webhooks.set_refused(true);
            Ok(Harms::Nobody)
        })
    }

    fn end<'a>(&'a mut self, fleet: &'a mut Fleet) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            fleet.control_plane.webhooks.set_refused(false);
            Ok(())
        })
    }
}
