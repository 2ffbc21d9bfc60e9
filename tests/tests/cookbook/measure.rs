//! Twenty switches under load: how long each takes to have its effect, and the requests that clients lose meanwhile.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use nudge_protocol::status::Outcome;
use nudge_tests::agent::WAIT_TIMEOUT;
use nudge_tests::eventually;

use crate::load::{Count, Load};
use crate::recipe::{Software, VERSIONS};

/// How often a version is switched.
const SWITCHES: usize = 20;

/// The shortest time from one switch to the next: software may be slow to end what it ran before.
const MIN_SWITCH_INTERVAL: Duration = Duration::from_millis(250);

/// Waits until a new client sees the first version, and so the software serves.
pub(crate) async fn wait_until_serving<T: PartialEq>(
    software: &Software,
    expected: &T,
    mut look: impl AsyncFnMut() -> Result<T>,
) -> Result<()> {
    let description = format!("{} serves", software.recipe.name);
    let result = eventually(WAIT_TIMEOUT, &description, async || {
        look().await.is_ok_and(|result| result == *expected).then_some(())
    });
    result.await.map_err(|error| software.agent.agent.explain(&error))
}

/// Switches there and back, twenty times, and prints the row of the table. `look` is a new client that says what it
/// sees: the first or the second of `expected`. Asserts that every switch has its effect, in the same process, and that
/// clients were served. The times and what was dropped are the machine's and the software's: they are printed.
#[allow(clippy::print_stdout)] // for a person who measures
pub(crate) async fn twenty_switches<T: PartialEq>(
    software: &mut Software,
    load: Load,
    expected: [T; 2],
    mut look: impl AsyncFnMut() -> Result<T>,
) -> Result<Count> {
    let (mut times, mut refused, mut processes) = (vec![], 0, vec![]);
    let mut tick = tokio::time::interval(MIN_SWITCH_INTERVAL);
    for number in 1..=SWITCHES {
        tick.tick().await;
        let (version, expected) = (VERSIONS[number % 2], &expected[number % 2]);
        let since = Instant::now();
        software.switch(version)?;
        let description = format!("{version} has its effect");
        let effect = eventually(WAIT_TIMEOUT, &description, async || {
            let seen = look().await;
            refused += u64::from(seen.is_err());
            seen.is_ok_and(|seen| seen == *expected).then_some(())
        });
        effect.await.map_err(|error| software.agent.agent.explain(&error))?;
        times.push(since.elapsed());
        let delivered = software.agent.notified_when("it is notified", |one| one.outcome == Outcome::Delivered).await?;
        processes.push(delivered.notified.processes);
    }
    software.has_shown_the_second_version()?;
    let mut count = load.stop().await?;
    count.dropped += refused;
    software.agent.agent.check()?;
    let count_expected = usize::from(software.recipe.has_signal());
    ensure!(
        processes.iter().all(|process| process.len() == count_expected && *process == processes[0]),
        "other processes: {processes:?}"
    );
    ensure!(count.done > 0, "no client was served");
    times.sort();
    let (median, worst) = (times[SWITCHES / 2].as_millis(), times[SWITCHES - 1].as_millis());
    let (name, version) = (software.recipe.name, &software.recipe.version);
    let Count { done, dropped, closed } = count;
    println!(
        "{name} {version}: {median} ms, worst {worst} ms; {done} served, {dropped} dropped, {closed} kept alive closed"
    );
    Ok(count)
}
