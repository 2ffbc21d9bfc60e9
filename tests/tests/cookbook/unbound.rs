//! Unbound: an address changes, while clients ask.

use std::fs;
use std::net::{Ipv4Addr, UdpSocket};
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::load::{Count, Load};
use crate::measure::{twenty_switches, wait_until_serving};
use crate::recipe::Recipe;

#[tokio::test]
async fn unbound() -> Result<()> {
    let Some(recipe) = Recipe::find("unbound", "unbound", &["unbound", "dnsperf"])? else { return Ok(()) };
    let mut software = recipe.start().await?;
    let port = software.port;
    let expected = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)];
    wait_until_serving(&software, &expected[0], async || resolve(port)).await?;
    let queries = software.folder.join("queries");
    fs::write(&queries, "db.shop.test A\n")?;
    let load = Load::rounds(move || {
        let mut dnsperf = Command::new("dnsperf");
        dnsperf.args(["-s", "127.0.0.1", "-c2", "-T1", "-l2", "-t2", "-Q1000", "-p", &port.to_string(), "-d"]);
        let output = dnsperf.arg(&queries).output()?;
        count(&output).with_context(|| format!("can't understand dnsperf: {output:?}"))
    });
    twenty_switches(&mut software, load, expected, async || resolve(port)).await?;
    software.switch_until_ended(("zones.conf", "nonsense\n"), 1).await
}

/// Returns what `dnsperf` reports.
fn count(output: &Output) -> Option<Count> {
    let text = String::from_utf8_lossy(&output.stdout);
    let number = |name: &str| {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(name))?;
        line.split_whitespace().next()?.parse().ok()
    };
    Some(Count { done: number("Queries completed:")?, dropped: number("Queries lost:")?, ..Count::default() })
}

/// Returns the address of `db.shop.test`.
fn resolve(port: u16) -> Result<Ipv4Addr> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.set_read_timeout(Some(Duration::from_secs(1)))?;
    // RFC 1035: a number, the flag that requests recursion, one question; the name, type A, class IN.
    let question = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x02db\x04shop\x04test\x00\x00\x01\x00\x01";
    socket.send_to(question, (Ipv4Addr::LOCALHOST, port))?;
    let mut reply = [0; 512];
    let length = socket.recv(&mut reply)?;
    // The low half of the byte is the code of the reply; then one answer.
    ensure!(reply[3] % 16 == 0 && reply[7] == 1, "no address: {:?}", &reply[..length]);
    // The one record is the last, and ends in the address.
    let address: [u8; 4] = reply[..length].last_chunk().copied().context("too short")?;
    Ok(address.into())
}
