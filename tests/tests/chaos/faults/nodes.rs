//! A node is not Ready: nobody hears of its kubelet, and its pods are not Ready by what their controller writes; they
//! run all the same.

use std::time::Duration;

use anyhow::Result;
use futures::future::LocalBoxFuture;
use rand::rngs::StdRng;

use super::{Fault, pick_any, random_seconds};
use crate::fleet::Fleet;
use crate::fleet::nodes::NODES;
use crate::history::Harms;

struct NotReady {
    node: &'static str,
    duration: Duration,
}

pub(super) fn make(random: &mut StdRng) -> Box<dyn Fault> {
    Box::new(NotReady { node: pick_any(random, &NODES), duration: random_seconds(random, 5..=40) })
}

impl Fault for NotReady {
    fn name(&self) -> String {
        format!("node: {} not Ready for {:?}", self.node, self.duration)
    }

    fn affected_parts(&self) -> Vec<String> {
        vec![self.node.to_owned()]
    }

    fn duration(&self) -> Duration {
        self.duration
    }

    fn begin<'a>(&'a mut self, fleet: &'a mut Fleet) -> LocalBoxFuture<'a, Result<Harms>> {
        Box::pin(async move {
            fleet.set_node_ready(self.node, false);
            Ok(Harms::Nobody)
        })
    }

    fn end<'a>(&'a mut self, fleet: &'a mut Fleet) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            fleet.set_node_ready(self.node, true);
            Ok(())
        })
    }
}
