//! etcd is restored from a backup that is some seconds old, and only the API server is started again: later writes are
//! lost, revisions go back, and users request their versions again.

use std::time::Duration;

use anyhow::Result;
use futures::future::LocalBoxFuture;
use rand::rngs::StdRng;

use super::{Fault, random_seconds};
use crate::fleet::Fleet;
use crate::fleet::versions::CONFIGS;
use crate::history::Harms;

struct Restore {
    duration: Duration,
}

pub(super) fn make(random: &mut StdRng) -> Box<dyn Fault> {
    Box::new(Restore { duration: random_seconds(random, 3..=30) })
}

impl Fault for Restore {
    fn name(&self) -> String {
        format!("restore: a backup {:?} old", self.duration)
    }

    fn affected_parts(&self) -> Vec<String> {
        let configs = CONFIGS.map(|config| format!("config {config}"));
        let pods = (0..20).map(|number| format!("pod {number}"));
        configs.into_iter().chain(pods).chain(["servers".to_owned()]).collect()
    }

    fn duration(&self) -> Duration {
        self.duration
    }

    fn begin<'a>(&'a mut self, fleet: &'a mut Fleet) -> LocalBoxFuture<'a, Result<Harms>> {
        Box::pin(async move {
            // A version that was requested, and is neither in the backup nor requested again, would be waited for in
            // vain.
            fleet.wait_for_users().await?;
            fleet.cluster.back_up_etcd().await?;
            for config in ["shop", "keys"] {
                let (user, version) = (fleet.user.clone(), fleet.next_version(config));
                fleet.record_version(config, &version, false);
                fleet.record_request(config, &version, false);
                fleet.user_tasks.spawn(async move {
                    user.create_version(config, &version, false).await?;
                    user.request_version(config, &version).await
                });
            }
            Ok(Harms::Nobody)
        })
    }

    fn end<'a>(&'a mut self, fleet: &'a mut Fleet) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move { fleet.restore().await })
    }
}
