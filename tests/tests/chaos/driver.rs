//! One run: rounds of faults. After each round the fleet has time to settle.

#![allow(clippy::print_stderr, reason = "for a person who looks on, or looks for the cause")]

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde_json::json;
use tokio::time::sleep_until;

use crate::check::Report;
use crate::faults::{KINDS, Kind};
use crate::fleet::Fleet;
use crate::fleet::versions::CONFIGS;
use crate::history::recorder::write;
use crate::history::{History, Occurrence};
use crate::schedule::{PlannedFault, plan_round};
use crate::settings::Settings;

/// How long the fleet may take to settle once all faults have ended: a rollout's deadline, and what goes before it.
const SETTLE_TIMEOUT: Duration = Duration::from_mins(4);

/// Runs the fleet, and returns its history; `None` where a program is missing.
pub(crate) async fn run(settings: &Settings) -> Result<Option<History>> {
    let kinds: Vec<Kind> = KINDS
        .into_iter()
        .filter(|kind| {
            (settings.only.is_empty() && kind.weight > 0) || settings.only.iter().any(|name| name == kind.name)
        })
        .collect();
    let Some(mut fleet) = Fleet::start(settings.seed).await? else { return Ok(None) };
    eprintln!("the fleet runs");
    let began = Instant::now();
    for number in 0.. {
        if began.elapsed() >= settings.duration {
            break;
        }
        fleet.renew_tokens().await?;
        play_round(&mut fleet, plan_round(settings.seed, number, &kinds))
            .await
            .with_context(|| format!("round {number}"))?;
        settle(&mut fleet, number).await?;
        // A violation stays one, whatever comes later.
        if !Report::of(&fleet.recorder.history()).violations.is_empty() {
            break;
        }
    }
    let history = fleet.recorder.history();
    if let Some(folder) = &settings.keep {
        fleet.copy_logs(folder)?;
        write(&history, &folder.join("history.jsonl"))?;
    }
    Ok(Some(history))
}

/// Begins and ends faults, each at its time.
async fn play_round(fleet: &mut Fleet, planned: Vec<PlannedFault>) -> Result<()> {
    let began = Instant::now();
    let mut waiting = planned.into_iter().peekable();
    let mut under_way: Vec<PlannedFault> = Vec::new();
    loop {
        fleet.restart_ended_processes()?;
        let ends = under_way.iter().map(|planned| planned.at + planned.fault.duration());
        let next_end = ends.enumerate().min_by_key(|(_, end)| *end);
        let begins = waiting.peek().map(|planned| planned.at);
        match (begins, next_end) {
            (Some(at), end) if end.is_none_or(|(_, end)| at < end) => {
                sleep_until((began + at).into()).await;
                let Some(mut planned) = waiting.next() else { continue };
                let name = planned.fault.name();
                let harms = planned.fault.begin(fleet).await.with_context(|| format!("beginning {name}"))?;
                eprintln!("{:>8} begins {name}", fleet.recorder.now());
                fleet.recorder.note(Occurrence::Fault { name, harms });
                under_way.push(planned);
            }
            (_, Some((index, end))) => {
                sleep_until((began + end).into()).await;
                let mut planned = under_way.swap_remove(index);
                let name = planned.fault.name();
                planned.fault.end(fleet).await.with_context(|| format!("ending {name}"))?;
                eprintln!("{:>8} ended  {name}", fleet.recorder.now());
                fleet.recorder.note(Occurrence::Healed { name });
            }
            _ => return Ok(()),
        }
    }
}

/// Waits until every application has its version, or the time is over, and records what must hold then.
async fn settle(fleet: &mut Fleet, round: u64) -> Result<()> {
    let began = Instant::now();
    fleet.wait_for_api_server().await?;
    fleet.wait_for_users().await?;
    for config in CONFIGS {
        // A hold that was written late may have come after its end.
        let user = fleet.user.clone();
        fleet.user_tasks.spawn(async move { user.patch_spec(config, json!({"rollout": {"hold": null}})).await });
    }
    fleet.wait_for_users().await?;
    if !fleet.wait_until_placed(SETTLE_TIMEOUT).await? {
        eprintln!("round {round}: not in place: {}", fleet.placement_faults().join("; "));
    }
    fleet.recorder.note(Occurrence::Settled);
    eprintln!("round {round}: settled after {:?}", began.elapsed());
    for config in CONFIGS {
        let (user, surplus) = (fleet.user.clone(), fleet.take_surplus_versions(config));
        fleet.user_tasks.spawn(async move {
            for version in surplus {
                user.delete_version(config, &version).await;
            }
            Ok(())
        });
    }
    fleet.wait_for_users().await?;
    fleet.record_leaked_secrets().await
}
