//! The acts of users: versions are created, activated, taken back and deleted, configs held, and configs deleted
//! although pods have them. The acts are tasks of their own, which try again while the API server is away.

use std::time::Duration;

use anyhow::Result;
use futures::future::LocalBoxFuture;
use rand::RngExt as _;
use rand::rngs::StdRng;
use serde_json::json;

use super::{Fault, pick_any, random_seconds};
use crate::fleet::Fleet;
use crate::fleet::versions::CONFIGS;
use crate::history::Harms;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum VersionFault {
    Good,
    Bad,
    /// An earlier good version is requested again.
    Back,
    /// A good version, in the middle of which the config is put on hold.
    Held,
    /// A bad version, in the middle of which the config is put on hold, and which goes back meanwhile.
    HeldBad,
    /// Old versions are deleted.
    Deleted,
    /// The config is deleted, and created again at the end.
    ForceDeleted,
}

struct Change {
    what: VersionFault,
    config: &'static str,
    duration: Duration,
}

pub(super) fn make(random: &mut StdRng) -> Box<dyn Fault> {
    let what = match random.random_range(0..20) {
        0..8 => VersionFault::Good,
        8..13 => VersionFault::Bad,
        13..15 => VersionFault::Back,
        15 => VersionFault::Held,
        16 => VersionFault::HeldBad,
        17 => VersionFault::Deleted,
        _ => VersionFault::ForceDeleted,
    };
    // Most rollouts have time to end; some are overtaken.
    let duration =
        if random.random_range(0..4) > 0 { random_seconds(random, 25..=45) } else { random_seconds(random, 2..=15) };
    let config = if what == VersionFault::ForceDeleted { "flags" } else { pick_any(random, &CONFIGS) };
    Box::new(Change { what, config, duration })
}

/// Returns a good version and a bad one, with time for both.
pub(super) fn opening_faults() -> [Box<dyn Fault>; 2] {
    let duration = Duration::from_secs(40);
    let change = |what, config| -> Box<dyn Fault> { Box::new(Change { what, config, duration }) };
    [change(VersionFault::Good, "shop"), change(VersionFault::Bad, "flags")]
}

impl Fault for Change {
    fn name(&self) -> String {
        format!("version: {:?} of {}", self.what, self.config)
    }

    fn affected_parts(&self) -> Vec<String> {
        vec![format!("config {}", self.config)]
    }

    fn duration(&self) -> Duration {
        self.duration
    }

    fn begin<'a>(&'a mut self, fleet: &'a mut Fleet) -> LocalBoxFuture<'a, Result<Harms>> {
        Box::pin(async move {
            let (user, config, duration) = (fleet.user.clone(), self.config, self.duration);
            match self.what {
                VersionFault::Good | VersionFault::Bad | VersionFault::Held | VersionFault::HeldBad => {
                    let (version, bad) =
                        (fleet.next_version(config), [VersionFault::Bad, VersionFault::HeldBad].contains(&self.what));
                    fleet.record_version(config, &version, bad);
                    fleet.record_request(config, &version, bad);
                    let holds = [VersionFault::Held, VersionFault::HeldBad].contains(&self.what);
                    fleet.user_tasks.spawn(async move {
                        user.create_version(config, &version, bad).await?;
                        user.request_version(config, &version).await?;
                        if holds {
                            // The hold comes at any moment of the rollout, so nothing is waited for.
                            tokio::time::sleep(duration / 4).await;
                            user.patch_spec(config, json!({"rollout": {"hold": {"reason": "chaos"}}})).await?;
                        }
                        Ok(())
                    });
                }
                VersionFault::Back => {
                    let Some(version) = fleet.earlier_good_version(config) else { return Ok(Harms::Nobody) };
                    fleet.record_request(config, &version, false);
                    fleet.user_tasks.spawn(async move { user.request_version(config, &version).await });
                }
                VersionFault::Deleted => {
                    let old = fleet.take_old_versions(config);
                    fleet.user_tasks.spawn(async move {
                        for version in old {
                            user.delete_version(config, &version).await;
                        }
                        Ok(())
                    });
                }
                VersionFault::ForceDeleted => {
                    fleet.forget_config(config);
                    fleet.user_tasks.spawn(async move { user.force_delete_config(config).await });
                }
            }
            Ok(Harms::Nobody)
        })
    }

    fn end<'a>(&'a mut self, fleet: &'a mut Fleet) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let (user, config) = (fleet.user.clone(), self.config);
            match self.what {
                VersionFault::Held | VersionFault::HeldBad => {
                    fleet
                        .user_tasks
                        .spawn(async move { user.patch_spec(config, json!({"rollout": {"hold": null}})).await });
                }
                VersionFault::ForceDeleted => {
                    let version = fleet.next_version(config);
                    fleet.record_version(config, &version, false);
                    fleet.record_request(config, &version, false);
                    fleet.user_tasks.spawn(async move {
                        user.force_delete_config(config).await?;
                        user.create_version(config, &version, false).await?;
                        user.create_config(config, &version).await
                    });
                }
                _ => {}
            }
            Ok(())
        })
    }
}
