//! rsyslog: messages get another owner, and none is lost.

use std::fs;
use std::io::Write as _;
use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use nudge_tests::agent::WAIT_TIMEOUT;
use nudge_tests::eventually_blocking;

use crate::load::{Count, Load};
use crate::measure::{twenty_switches, wait_until_serving};
use crate::recipe::Recipe;

/// Messages of one round, over one connection.
const MESSAGES: u64 = 100;

/// Each round has a number, by which its messages are found.
static ROUND: AtomicU64 = AtomicU64::new(0);

#[tokio::test]
async fn rsyslog() -> Result<()> {
    let Some(recipe) = Recipe::find("rsyslog", "rsyslog", &["rsyslogd"])? else { return Ok(()) };
    let mut software = recipe.start().await?;
    let (port, file) = (software.port, software.folder.join("messages"));
    let look = async || {
        let lines = log(port, &file, 1)?;
        Ok(lines.first().and_then(|line| line.split(' ').next()).context("no line")?.to_owned())
    };
    let expected = ["blue", "green"].map(str::to_owned);
    wait_until_serving(&software, &expected[0], look).await?;
    let written = file.clone();
    let load = Load::rounds(move || {
        let lines: u64 = log(port, &written, MESSAGES)?.len().try_into()?;
        Ok(Count { done: lines, dropped: MESSAGES - lines, ..Count::default() })
    });
    twenty_switches(&mut software, load, expected, look).await?;
    software.keeps_what_it_has(("owners.json", "nonsense"), "could not be reloaded", look).await
}

/// Sends messages over a new connection, and gives the lines that they become.
fn log(port: u16, file: &Path, messages: u64) -> Result<Vec<String>> {
    let mark = format!("round {};", ROUND.fetch_add(1, Ordering::Relaxed));
    let line = |number| format!("<14>Nov 23 14:00:00 host shop: {mark} {number}\n");
    let text = (0..messages).map(line).collect::<Vec<_>>().concat();
    TcpStream::connect(("127.0.0.1", port))?.write_all(text.as_bytes())?;
    let lines = || {
        let text = fs::read_to_string(file).unwrap_or_default();
        text.lines().filter(|line| line.contains(&mark)).map(str::to_owned).collect::<Vec<_>>()
    };
    let all = || Some(lines()).filter(|lines| lines.len() as u64 == messages);
    // What has not come until then is lost.
    Ok(eventually_blocking(WAIT_TIMEOUT, "all messages are written", all).unwrap_or_else(|_| lines()))
}
