//! What users do: versions are created, activated, taken back and deleted, configs held, and configs deleted although pods have them.
//! They do it as tasks of their own, which try again while the API server is away.

use std::time::Duration;

use anyhow::Result;
use futures::future::LocalBoxFuture;
use rand::RngExt as _;
use rand::rngs::StdRng;
use serde_json::json;

use super::{Fault, any, seconds};
use crate::fleet::Fleet;
use crate::fleet::versions::CONFIGS;
use crate::history::Harms;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Good,
    Bad,
    /// One that was asked for before.
    Back,
    /// A good one in the middle of which the config is on hold.
    Held,
    /// The same with a bad one, which goes back meanwhile.
    HeldBad,
    /// Old versions are deleted.
    Deleted,
    /// The config is deleted, and made again at the end.
    ForceDeleted,
}

struct Change {
    what: What,
    config: &'static str,
    lasts: Duration,
}

pub(super) fn make(random: &mut StdRng) -> Box<dyn Fault> {
    let what = match random.random_range(0..20) {
        0..8 => What::Good,
        8..13 => What::Bad,
        13..15 => What::Back,
        15 => What::Held,
        16 => What::HeldBad,
        17 => What::Deleted,
        _ => What::ForceDeleted,
    };
    // Most have time to end; some are overtaken.
    let lasts = if random.random_range(0..4) > 0 { seconds(random, 25..=45) } else { seconds(random, 2..=15) };
    let config = if what == What::ForceDeleted { "flags" } else { any(random, &CONFIGS) };
    Box::new(Change { what, config, lasts })
}

/// A good version and a bad one, with time for both.
pub(super) fn opening() -> [Box<dyn Fault>; 2] {
    let lasts = Duration::from_secs(40);
    let change = |what, config| -> Box<dyn Fault> { Box::new(Change { what, config, lasts }) };
    [change(What::Good, "shop"), change(What::Bad, "flags")]
}

impl Fault for Change {
    fn name(&self) -> String {
        format!("version: {:?} of {}", self.what, self.config)
    }

    fn parts(&self) -> Vec<String> {
        vec![format!("config {}", self.config)]
    }

    fn lasts(&self) -> Duration {
        self.lasts
    }

    fn begin<'a>(&'a mut self, fleet: &'a mut Fleet) -> LocalBoxFuture<'a, Result<Harms>> {
        Box::pin(async move {
            let (user, config, lasts) = (fleet.user.clone(), self.config, self.lasts);
            match self.what {
                What::Good | What::Bad | What::Held | What::HeldBad => {
                    let (version, bad) = (fleet.next_version(config), [What::Bad, What::HeldBad].contains(&self.what));
                    fleet.made(config, &version, bad);
                    fleet.asked(config, &version, bad);
                    let holds = [What::Held, What::HeldBad].contains(&self.what);
                    fleet.users.spawn(async move {
                        user.makes(config, &version, bad).await?;
                        user.asks(config, &version).await?;
                        if holds {
                            // The moment is what is tried, nothing is waited for.
                            tokio::time::sleep(lasts / 4).await;
                            user.sets(config, json!({"rollout": {"hold": {"reason": "chaos"}}})).await?;
                        }
                        Ok(())
                    });
                }
                What::Back => {
                    let Some(version) = fleet.earlier(config) else { return Ok(Harms::Nobody) };
                    fleet.asked(config, &version, false);
                    fleet.users.spawn(async move { user.asks(config, &version).await });
                }
                What::Deleted => {
                    let old = fleet.old(config);
                    fleet.users.spawn(async move {
                        for version in old {
                            user.deletes(config, &version).await;
                        }
                        Ok(())
                    });
                }
                What::ForceDeleted => {
                    fleet.forget(config);
                    fleet.users.spawn(async move { user.force_deletes(config).await });
                }
            }
            Ok(Harms::Nobody)
        })
    }

    fn end<'a>(&'a mut self, fleet: &'a mut Fleet) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let (user, config) = (fleet.user.clone(), self.config);
            match self.what {
                What::Held | What::HeldBad => {
                    fleet.users.spawn(async move { user.sets(config, json!({"rollout": {"hold": null}})).await });
                }
                What::ForceDeleted => {
                    let version = fleet.next_version(config);
                    fleet.made(config, &version, false);
                    fleet.asked(config, &version, false);
                    fleet.users.spawn(async move {
                        user.force_deletes(config).await?;
                        user.makes(config, &version, false).await?;
                        user.makes_config(config, &version).await
                    });
                }
                _ => {}
            }
            Ok(())
        })
    }
}
