//! One run: rounds of faults, after each of which everything has time to find its place.

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
use crate::history::{History, What};
use crate::schedule::{Planned, round};
use crate::settings::Settings;

/// How long everything may take to find its place once nothing is wrong any more: a rollout's deadline, and what goes before it.
const SETTLE: Duration = Duration::from_mins(4);

/// The history of a run; `None` where a program is missing.
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
        if began.elapsed() >= settings.lasts {
            break;
        }
        fleet.renew_tokens().await?;
        play(&mut fleet, round(settings.seed, number, &kinds)).await.with_context(|| format!("round {number}"))?;
        settle(&mut fleet, number).await?;
        // What has gone wrong goes on being wrong.
        if !Report::of(&fleet.recorder.history()).violations.is_empty() {
            break;
        }
    }
    let history = fleet.recorder.history();
    if let Some(folder) = &settings.keep {
        fleet.keep_logs(folder)?;
        write(&history, &folder.join("history.jsonl"))?;
    }
    Ok(Some(history))
}

/// Begins and ends faults, each at its time.
async fn play(fleet: &mut Fleet, planned: Vec<Planned>) -> Result<()> {
    let began = Instant::now();
    let mut waiting = planned.into_iter().peekable();
    let mut under_way: Vec<Planned> = Vec::new();
    loop {
        fleet.revive()?;
        let ends = under_way.iter().map(|planned| planned.at + planned.fault.lasts());
        let next_end = ends.enumerate().min_by_key(|(_, end)| *end);
        let begins = waiting.peek().map(|planned| planned.at);
        match (begins, next_end) {
            (Some(at), end) if end.is_none_or(|(_, end)| at < end) => {
                sleep_until((began + at).into()).await;
                let Some(mut planned) = waiting.next() else { continue };
                let name = planned.fault.name();
                let harms = planned.fault.begin(fleet).await.with_context(|| format!("beginning {name}"))?;
                eprintln!("{:>8} begins {name}", fleet.recorder.now());
                fleet.recorder.note(What::Fault { name, harms });
                under_way.push(planned);
            }
            (_, Some((index, end))) => {
                sleep_until((began + end).into()).await;
                let mut planned = under_way.swap_remove(index);
                let name = planned.fault.name();
                planned.fault.end(fleet).await.with_context(|| format!("ending {name}"))?;
                eprintln!("{:>8} ended  {name}", fleet.recorder.now());
                fleet.recorder.note(What::Healed { name });
            }
            _ => return Ok(()),
        }
    }
}

/// Waits until everybody is where it belongs, or the time is over. What the history holds then decides.
async fn settle(fleet: &mut Fleet, round: u64) -> Result<()> {
    let began = Instant::now();
    fleet.api_answers().await?;
    fleet.users_are_done().await?;
    for config in CONFIGS {
        // A hold that was late has come after its end.
        let user = fleet.user.clone();
        fleet.users.spawn(async move { user.sets(config, json!({"rollout": {"hold": null}})).await });
    }
    fleet.users_are_done().await?;
    if !fleet.finds_its_place(SETTLE).await? {
        eprintln!("round {round}: not in place: {}", fleet.unplaced().join("; "));
    }
    fleet.recorder.note(What::Settled);
    eprintln!("round {round}: settled after {:?}", began.elapsed());
    for config in CONFIGS {
        let (user, surplus) = (fleet.user.clone(), fleet.surplus(config));
        fleet.users.spawn(async move {
            for version in surplus {
                user.deletes(config, &version).await;
            }
            Ok(())
        });
    }
    fleet.users_are_done().await?;
    fleet.look_for_secrets().await
}
