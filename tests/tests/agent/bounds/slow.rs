//! Clients that send or read slowly or not at all.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use nudge_tests::agent::IDLE;
use nudge_tests::agent::WAIT_TIMEOUT;
use nudge_tests::agent::raw::head;
use nudge_tests::{Access, AgentUnderTest, Client, ConfigDir, Finished, Raw, agent::tls, eventually, tools};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, timeout};

use crate::bounds::common::{MIB, await_promptly, connections, narrow, own_memory, with_handler};

/// How many dawdle at each stage.
const EACH: usize = 20;

/// Sends the bytes one by one, one a second, and counts them.
async fn drip(mut to: impl AsyncWriteExt + Unpin, bytes: Vec<u8>, sent: Arc<AtomicUsize>) {
    let mut second = interval(Duration::from_secs(1));
    for byte in bytes {
        second.tick().await;
        if to.write_all(&[byte]).await.is_err() || to.flush().await.is_err() {
            return;
        }
        sent.fetch_add(1, Ordering::Relaxed);
    }
}

/// Returns clients that need minutes for a handshake, a head, and a body.
async fn drippers(access: &Access, sent: &Arc<AtomicUsize>) -> Result<JoinSet<()>> {
    let mut all = JoinSet::new();
    // The beginning of a handshake, which says that more is to come.
    let hello = [&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3][..], &[0; 500]].concat();
    let request = head(access, "GET /config", &[]);
    let post = head(access, "POST /hooks", &["Content-Length: 500"]);
    for _ in 0..EACH {
        let stream = TcpStream::connect(access.address).await?;
        all.spawn(drip(stream, hello.clone(), Arc::clone(sent)));
        let stream = Raw::open(access).await?;
        all.spawn(drip(stream.into_inner(), request.clone().into_bytes(), Arc::clone(sent)));
        let mut stream = Raw::open(access).await?;
        stream.send(&post).await?;
        all.spawn(drip(stream.into_inner(), vec![b' '; 500], Arc::clone(sent)));
    }
    Ok(all)
}

#[tokio::test]
async fn clients_that_send_one_byte_a_second_delay_neither_notifications_nor_others() -> Result<()> {
    let mut agent = with_handler(AgentUnderTest::shop()?).await?;
    let sent = Arc::new(AtomicUsize::new(0));
    let mut drippers = drippers(&agent.access, &sent).await?;
    assert_eq!(connections(&mut agent.client).await?, 3 * EACH + 1);

    let mut switches = 0;
    while sent.load(Ordering::Relaxed) < 3 * 3 * EACH {
        let version = ["1.0.1", "1.0.0"][switches % 2];
        switches += 1;
        agent.dir.switch("shop", version)?;
        await_promptly("the signal comes", agent.wait_for_lines(switches, "SIGUSR1")).await?;
        let mut client = Client::new(&agent.access)?;
        let served = await_promptly("a new client is answered", client.get("/config/nudge.configs")).await?;
        assert_eq!(served.body, format!("shop={version}"));
    }
    assert!(drippers.try_join_next().is_none(), "they are still there, and so were in the way if anything was");
    Ok(())
}

/// Returns clients that request the dictionary and take nothing of the reply; each has begun to come.
async fn start_greedy_clients(access: &Access, clients: usize) -> Result<Vec<Raw>> {
    let trust = tls::trusting(&access.authority)?;
    let mut collected = Vec::new();
    for _ in 0..clients {
        let mut raw = Raw::over(narrow(access.address).await?, access.address.ip(), &trust).await?;
        raw.send(head(access, "GET /config", &[])).await?;
        collected.push(raw);
    }
    for raw in &collected {
        timeout(WAIT_TIMEOUT, raw.tcp().peek(&mut [0])).await.context("no reply begins")??;
    }
    Ok(collected)
}

/// Returns a config with one value of a mebibyte in the versions 1 to 3; 1 is current.
fn big() -> Result<ConfigDir> {
    let dir = ConfigDir::new()?;
    for version in ["1", "2", "3"] {
        dir.write_version("shop", version, [("big", vec![b'x'; MIB]), ("v", version.into())])?;
    }
    dir.switch("shop", "1")?;
    Ok(dir)
}

#[tokio::test]
async fn clients_that_never_read_cost_little_and_are_cut_when_the_dictionary_moves_on() -> Result<()> {
    const CLIENTS: usize = 100;
    let mut agent = with_handler(big()?).await?;
    agent.client.get("/config").await?;
    let before = own_memory(&agent)?;
    let greedy = start_greedy_clients(&agent.access, CLIENTS).await?;
    let cost = own_memory(&agent)?.saturating_sub(before);
    assert!(cost < 8 * MIB, "{CLIENTS} replies of 1 MiB cost {cost} bytes");

    for (signals, version) in [(1, "2"), (2, "3")] {
        agent.dir.switch("shop", version)?;
        await_promptly("the signal comes", agent.wait_for_lines(signals, "SIGUSR1")).await?;
        assert_eq!(await_promptly("others are answered", agent.client.get("/config/v")).await?.body, version);
    }
    let begun = Instant::now();
    let gone = async || (connections(&mut agent.client).await.ok()? == 1).then_some(());
    eventually(WAIT_TIMEOUT, "those who keep the oldest dictionary are cut", gone).await?;
    assert!(begun.elapsed() < Duration::from_secs(15), "that was the bound for stalled writes, not the cut");
    for mut raw in greedy {
        timeout(WAIT_TIMEOUT, raw.ended()).await?;
    }
    Ok(())
}

#[tokio::test]
async fn what_the_kernel_keeps_for_clients_that_never_read_is_bounded_too() -> Result<()> {
    const CLIENTS: usize = 20;
    let Some(ss) = tools::find("ss")? else { return Ok(()) };
    let agent = AgentUnderTest::start(big()?, &[], &IDLE).await?;
    let _greedy = start_greedy_clients(&agent.access, CLIENTS).await?;
    let filter = format!("sport = :{}", agent.access.address.port());
    let shown = Finished::of(Command::new(ss).args(["--tcp", "--numeric", "--memory", "--no-header", &filter]))?;
    // `skmem:(r0,rb131072,t0,tb3939840,f1314,w1465054,...)`: `w` is what is queued for sending.
    let queued: Vec<usize> =
        shown.stdout.split([',', '(']).filter_map(|field| field.strip_prefix('w')?.parse().ok()).collect();
    assert_eq!(queued.len(), CLIENTS, "{shown:?}");
    let all: usize = queued.iter().sum();
    assert!(all < CLIENTS * 256 * 1024, "{CLIENTS} clients cost {all} bytes");
    Ok(())
}
