//! The API server or etcd is killed, or stands still, and comes back.

use std::time::Duration;

use anyhow::Result;
use futures::future::LocalBoxFuture;
use rand::RngExt as _;
use rand::rngs::StdRng;

use super::{Fault, random_seconds};
use crate::fleet::Fleet;
use crate::history::Harms;

#[derive(Clone, Copy, Debug)]
enum How {
    ApiServerKilled,
    ApiServerFrozen,
    EtcdKilled,
    /// etcd forgets its history, and the API server what it remembers of it.
    Compacted,
}

struct Server {
    how: How,
    duration: Duration,
}

pub(super) fn make(random: &mut StdRng) -> Box<dyn Fault> {
    let kinds = [How::ApiServerKilled, How::ApiServerFrozen, How::EtcdKilled, How::Compacted];
    Box::new(Server { how: kinds[random.random_range(0..kinds.len())], duration: random_seconds(random, 1..=10) })
}

impl Fault for Server {
    fn name(&self) -> String {
        format!("server: {:?} for {:?}", self.how, self.duration)
    }

    fn affected_parts(&self) -> Vec<String> {
        vec!["servers".to_owned()]
    }

    fn duration(&self) -> Duration {
        self.duration
    }

    fn begin<'a>(&'a mut self, fleet: &'a mut Fleet) -> LocalBoxFuture<'a, Result<Harms>> {
        Box::pin(async move {
            match self.how {
                How::ApiServerKilled => fleet.cluster.kill_apiserver()?,
                How::ApiServerFrozen => fleet.cluster.freeze_apiserver().await?,
                How::EtcdKilled => fleet.cluster.kill_etcd()?,
                How::Compacted => {
                    fleet.cluster.compact().await?;
                    fleet.cluster.kill_apiserver()?;
                }
            }
            Ok(Harms::Nobody)
        })
    }

    fn end<'a>(&'a mut self, fleet: &'a mut Fleet) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            match self.how {
                How::ApiServerKilled | How::Compacted => fleet.cluster.start_apiserver().await,
                How::ApiServerFrozen => fleet.cluster.thaw_apiserver(),
                How::EtcdKilled => fleet.cluster.start_etcd().await,
            }
        })
    }
}
