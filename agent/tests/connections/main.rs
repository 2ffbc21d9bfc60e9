//! Tests of connections of an endpoint in this process: bounds that take long to reach in a real agent, and faults that
//! no request can cause.

mod in_process;

use std::time::{Duration, Instant};

use anyhow::Result;
use nudge_agent::serve::Limits;
use nudge_tests::agent::WAIT_TIMEOUT;
use nudge_tests::agent::raw::head;
use nudge_tests::{Raw, eventually};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::in_process::InProcess;

const TIMEOUT_UNDER_TEST: Duration = Duration::from_millis(300);

/// Waits until the endpoint has no connection left, which must have lasted from `begun` for at least the time-out.
async fn wait_until_cut(endpoint: &InProcess, begun: Instant) -> Result<()> {
    let none = async || (endpoint.connections.count() == 0).then_some(());
    eventually(WAIT_TIMEOUT, "the connection is cut", none).await?;
    assert!(begun.elapsed() >= TIMEOUT_UNDER_TEST, "cut after {:?}", begun.elapsed());
    Ok(())
}

#[tokio::test]
async fn a_handshake_that_does_not_end_is_cut() -> Result<()> {
    let endpoint = InProcess::start(Limits { handshake: TIMEOUT_UNDER_TEST, ..Limits::default() })?;
    let begun = Instant::now();
    let mut silent = TcpStream::connect(endpoint.access.address).await?;
    assert_eq!(timeout(WAIT_TIMEOUT, silent.read(&mut [0])).await??, 0);
    wait_until_cut(&endpoint, begun).await
}

#[tokio::test]
async fn a_head_that_does_not_end_is_cut() -> Result<()> {
    let endpoint = InProcess::start(Limits { head: TIMEOUT_UNDER_TEST, ..Limits::default() })?;
    let begun = Instant::now();
    let mut half = Raw::open(&endpoint.access).await?;
    half.send("GET /config HTTP/1.1\r\nHost: ").await?;
    timeout(WAIT_TIMEOUT, half.ended()).await?;
    wait_until_cut(&endpoint, begun).await
}

#[tokio::test]
async fn a_connection_without_another_request_is_cut() -> Result<()> {
    let endpoint = InProcess::start(Limits { head: TIMEOUT_UNDER_TEST, ..Limits::default() })?;
    let mut idle = Raw::open(&endpoint.access).await?;
    let begun = Instant::now();
    idle.send(head(&endpoint.access, "GET /", &[])).await?;
    assert_eq!(idle.reply().await?.body, "ok");
    timeout(WAIT_TIMEOUT, idle.ended()).await?;
    wait_until_cut(&endpoint, begun).await
}

#[tokio::test]
async fn a_client_that_takes_nothing_of_its_reply_is_cut() -> Result<()> {
    let endpoint = InProcess::start(Limits { stall: TIMEOUT_UNDER_TEST, ..Limits::default() })?;
    let mut greedy = Raw::open(&endpoint.access).await?;
    let begun = Instant::now();
    greedy.send(head(&endpoint.access, "GET /big", &[])).await?;
    wait_until_cut(&endpoint, begun).await
}

#[tokio::test]
async fn a_panic_ends_one_connection_and_no_other() -> Result<()> {
    let endpoint = InProcess::start(Limits::default())?;
    let mut other = Raw::open(&endpoint.access).await?;
    for _ in 0..3 {
        let mut unlucky = Raw::open(&endpoint.access).await?;
        unlucky.send(head(&endpoint.access, "GET /panic", &[])).await?;
        assert!(timeout(WAIT_TIMEOUT, unlucky.reply()).await?.is_err(), "there is no reply");
        other.send(head(&endpoint.access, "GET /", &[])).await?;
        assert_eq!(timeout(WAIT_TIMEOUT, other.reply()).await??.body, "ok");
        eventually(WAIT_TIMEOUT, "its slot is free", async || (endpoint.connections.count() == 1).then_some(()))
            .await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_client_whose_first_request_is_on_its_way_is_not_cut_for_one_that_only_connects() -> Result<()> {
    let endpoint = InProcess::start(Limits { connections: 4, ..Limits::default() })?;
    let mut crowd = Vec::new();
    for _ in 0..3 {
        crowd.push(TcpStream::connect(endpoint.access.address).await?);
    }
    let mut client = Raw::open(&endpoint.access).await?;
    crowd.push(TcpStream::connect(endpoint.access.address).await?);
    assert_eq!(timeout(WAIT_TIMEOUT, crowd[0].read(&mut [0])).await??, 0, "the one that connected first makes room");
    client.send(head(&endpoint.access, "GET /", &[])).await?;
    assert_eq!(timeout(WAIT_TIMEOUT, client.reply()).await??.body, "ok");
    Ok(())
}
