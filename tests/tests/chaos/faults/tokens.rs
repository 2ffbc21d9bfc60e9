//! The agent's token is not what the API server takes, until its kubelet has fetched another one.

use std::time::Duration;

use anyhow::Result;
use futures::future::LocalBoxFuture;
use rand::rngs::StdRng;

use super::{Fault, Picked, seconds};
use crate::fleet::Fleet;
use crate::fleet::member::renew_token;
use crate::history::Harms;

struct Token {
    pod: Picked,
    lasts: Duration,
}

pub(super) fn make(random: &mut StdRng) -> Box<dyn Fault> {
    Box::new(Token { pod: Picked::random(random), lasts: seconds(random, 1..=30) })
}

impl Fault for Token {
    fn name(&self) -> String {
        format!("token: of {} refused for {:?}", self.pod.part(), self.lasts)
    }

    fn parts(&self) -> Vec<String> {
        vec![self.pod.part()]
    }

    fn lasts(&self) -> Duration {
        self.lasts
    }

    fn begin<'a>(&'a mut self, fleet: &'a mut Fleet) -> LocalBoxFuture<'a, Result<Harms>> {
        Box::pin(async move {
            if let Some(member) = self.pod.begin(fleet) {
                member.pod.write_token("not.a.token")?;
            }
            // It is read for new connections.
            fleet.control_plane.hubs.cut();
            Ok(Harms::Nobody)
        })
    }

    fn end<'a>(&'a mut self, fleet: &'a mut Fleet) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let space = fleet.space.clone();
            if let Some(member) = self.pod.again(fleet) {
                let (object, file) = (member.object.clone(), member.pod.path("hub-token"));
                // The API server may be away.
                fleet.users.spawn(async move { renew_token(&space, &object, &file).await });
            }
            Ok(())
        })
    }
}
