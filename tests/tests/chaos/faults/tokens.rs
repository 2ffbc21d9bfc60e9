//! The agent's token is not what the API server takes, until its kubelet has fetched another one.

use std::time::Duration;

use anyhow::Result;
use futures::future::LocalBoxFuture;
use rand::rngs::StdRng;

use super::{Fault, PickedPod, random_seconds};
use crate::fleet::Fleet;
use crate::fleet::member::renew_token;
use crate::history::Harms;

struct Token {
    pod: PickedPod,
    duration: Duration,
}

pub(super) fn make(random: &mut StdRng) -> Box<dyn Fault> {
    Box::new(Token { pod: PickedPod::random(random), duration: random_seconds(random, 1..=30) })
}

impl Fault for Token {
    fn name(&self) -> String {
        format!("token: of {} refused for {:?}", self.pod.affected_part(), self.duration)
    }

    fn affected_parts(&self) -> Vec<String> {
        vec![self.pod.affected_part()]
    }

    fn duration(&self) -> Duration {
        self.duration
    }

    fn begin<'a>(&'a mut self, fleet: &'a mut Fleet) -> LocalBoxFuture<'a, Result<Harms>> {
        Box::pin(async move {
            if let Some(member) = self.pod.pick(fleet) {
                member.pod.write_token("not.a.token")?;
            }
            // The agent reads its token for new connections only.
            fleet.control_plane.hubs.cut_connections();
            Ok(Harms::Nobody)
        })
    }

    fn end<'a>(&'a mut self, fleet: &'a mut Fleet) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let space = fleet.space.clone();
            if let Some(member) = self.pod.picked(fleet) {
                let (object, file) = (member.object.clone(), member.pod.path("hub-token"));
                // The API server may be away.
                fleet.user_tasks.spawn(async move { renew_token(&space, &object, &file).await });
            }
            Ok(())
        })
    }
}
