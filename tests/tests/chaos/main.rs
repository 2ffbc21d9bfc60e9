//! A fleet of real processes under random faults, and a checker of its applications' readings.
//!
//! A run prints its seed. `NUDGE_CHAOS_SEED=SEED` does the same to the fleet again, at the same times; the rest is up
//! to the machine.

mod check;
mod driver;
mod faults;
mod fleet;
mod history;
mod proxy;
mod schedule;
mod settings;

use std::time::Duration;

use anyhow::{Result, ensure};

use crate::check::Report;
use crate::check::planted::Planted;
use crate::settings::Settings;

/// The shortest duration of a run that has rollouts of every kind.
const MIN_COMPLETE_RUN_DURATION: Duration = Duration::from_mins(5);

#[tokio::test(flavor = "multi_thread")]
async fn applications_see_what_they_are_assigned_whatever_happens() -> Result<()> {
    let settings = Settings::from_env()?;
    if settings.duration.is_zero() {
        return Ok(());
    }
    eprintln!("NUDGE_CHAOS_SEED={}", settings.seed);
    let Some(history) = driver::run(&settings).await? else { return Ok(()) };
    let report = Report::of(&history);
    eprintln!("{report}");
    let Planted { unfound, unplanted } = Planted::of(&history);
    eprintln!("defects without a place in this history: {unplanted:?}");
    ensure!(report.violations.is_empty(), "seed {}: {report}", settings.seed);
    ensure!(report.is_decided(), "seed {}: too much can't be decided: {report}", settings.seed);
    ensure!(unfound.is_empty(), "seed {}: the checker does not find {unfound:?} once planted", settings.seed);
    // A short run may lack a rollout of some kind; a long one has them all.
    ensure!(
        unplanted.is_empty() || settings.duration < MIN_COMPLETE_RUN_DURATION,
        "seed {}: nowhere to plant {unplanted:?}",
        settings.seed
    );
    Ok(())
}
