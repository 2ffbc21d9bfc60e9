//! The hub over real TLS, with stand-ins for the API server: its answers, its refusals, and every limit exceeded once.

use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Result;
use hyper::StatusCode;
use nudge_hub::Settings;
use nudge_protocol::hub::{MAX_REQUEST_BYTES, PollRequest};
use nudge_protocol::{ConfigName, block};
use nudge_tests::fakes::crowd::{CONFIG, token, token_with};
use nudge_tests::{Raw, eventually};
use serde_json::json;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::front::{Front, after, message, poll, read};
use crate::stand_in::{StandIn, pod};

const TEST_TIMEOUT: Duration = Duration::from_secs(20);

struct ServedHub {
    stand_in: StandIn,
    front: Front,
}

impl ServedHub {
    fn new(settings: Settings) -> Result<Self> {
        let stand_in = StandIn::new(settings, 3, Duration::ZERO);
        let front = Front::new(&stand_in.hub)?;
        Ok(Self { stand_in, front })
    }

    async fn connect(&self) -> Result<Raw> {
        self.front.connect().await
    }

    /// A connection from 127.0.0.`host`, without TLS.
    async fn connect_from(&self, host: u8) -> Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((std::net::Ipv4Addr::new(127, 0, 0, host), 0).into())?;
        Ok(socket.connect(self.front.address).await?)
    }

    async fn secured(&self, stream: TcpStream) -> Result<Raw> {
        Raw::over(stream, self.front.address.ip(), &self.front.tls).await
    }

    fn activate(&self, version: &str, value: &[u8]) {
        self.stand_in.activate(&self.stand_in.stored.add(version, &[&[("key", value.to_vec())]]));
    }

    /// The agent of a pod that has asked, has taken in the answer, and waits for another.
    async fn waiting(&self, number: usize) -> Result<Raw> {
        let mut agent = self.connect().await?;
        agent.send(poll(&token(number), &PollRequest::default())?).await?;
        let reply = agent.reply().await?;
        agent.send(poll(&token(number), &after(&read(&reply)?.0))?).await?;
        self.held(number).await?;
        Ok(agent)
    }

    async fn held(&self, number: usize) -> Result<()> {
        let uid = pod(number).uid;
        eventually(TEST_TIMEOUT, "the poll is held", async || self.stand_in.hub.is_connected(&uid).then_some(())).await
    }
}

#[tokio::test]
async fn a_held_poll_is_answered_the_moment_another_version_is_current() -> Result<()> {
    let served = ServedHub::new(Settings::default())?;
    served.activate("1", b"old");
    let mut agent = served.connect().await?;
    agent.send(poll(&token(0), &PollRequest::default())?).await?;
    let reply = agent.reply().await?;
    let (head, blocks) = read(&reply)?;
    assert_eq!(head.configs[0].name, ConfigName::new(CONFIG)?);
    assert_eq!(block::decode(blocks[0])?[0].1.value, b"old");

    agent.send(poll(&token(0), &after(&head))?).await?;
    served.held(0).await?;
    assert!(agent.is_silent().await);
    served.activate("2", b"new");
    let reply = agent.reply().await?;
    let (head, blocks) = read(&reply)?;
    assert_eq!(head.configs[0].version.as_ref().map(nudge_protocol::VersionName::as_str), Some("2"));
    assert_eq!(block::decode(blocks[0])?[0].1.value, b"new");
    assert_eq!(served.stand_in.reviews.counted().0, 1, "one token, one review");
    Ok(())
}

#[tokio::test]
async fn a_version_of_three_parts_arrives_whole() -> Result<()> {
    let served = ServedHub::new(Settings::default())?;
    let value = |letter: u8| vec![letter; 870 * 1024];
    let version =
        served.stand_in.stored.add("1", &[&[("a", value(b'a'))], &[("b", value(b'b'))], &[("c", value(b'c'))]]);
    served.stand_in.activate(&version);
    let mut agent = served.connect().await?;
    agent.send(poll(&token(0), &PollRequest::default())?).await?;
    let reply = agent.reply().await?;
    let (_, blocks) = read(&reply)?;
    let values = block::decode(blocks[0])?;
    assert_eq!(values.len(), 3);
    assert!(values.iter().all(|(key, stored)| stored.value.iter().all(|&byte| byte == key.as_str().as_bytes()[0])));
    Ok(())
}

#[tokio::test]
async fn what_is_asked_wrongly_is_refused_with_its_own_status() -> Result<()> {
    let served = ServedHub::new(Settings::default())?;
    let good = token(0);
    let get = format!("GET /v1/poll HTTP/1.1\r\nhost: hub\r\nauthorization: Bearer {good}\r\n\r\n");
    let large = format!(
        "POST /v1/poll HTTP/1.1\r\nhost: hub\r\nauthorization: Bearer {good}\r\ncontent-length: {}\r\n\r\n",
        MAX_REQUEST_BYTES + 1
    );
    for (request, status, error) in [
        (message("/v1/poll", &good, "{"), 400, "BadRequest"),
        (message("/v1/poll", &good, r#"{"configs":[{"name":"NOT A NAME"}]}"#), 400, "BadRequest"),
        (message("/v1/report", &good, "[1]"), 400, "BadRequest"),
        (message("/v1/polls", &good, "{}"), 404, "NoSuchPath"),
        (get, 405, "MethodNotAllowed"),
        (message("/v1/poll", "", "{}"), 401, "Unauthorized"),
        (message("/v1/poll", "h.p.none", "{}"), 401, "Unauthorized"),
        (large, 413, "TooLarge"),
    ] {
        let mut agent = served.connect().await?;
        agent.send(&request).await?;
        let reply = agent.reply().await?;
        let body: nudge_protocol::ErrorBody = serde_json::from_slice(&reply.body)?;
        assert_eq!((reply.status.as_u16(), body.error.as_str()), (status, error), "{request}");
    }
    Ok(())
}

#[tokio::test]
async fn a_pod_reads_what_it_uses_and_a_pod_that_is_gone_nothing() -> Result<()> {
    let served = ServedHub::new(Settings::default())?;
    served.activate("1", b"x");
    let mut agent = served.connect().await?;
    // The request names a config of the namespace that the pod does not use.
    let other = r#"{"configs":[{"name":"other"}]}"#;
    agent.send(message("/v1/poll", &token(0), other)).await?;
    let reply = agent.reply().await?;
    let (head, blocks) = read(&reply)?;
    assert_eq!((head.configs.len(), blocks.len(), head.configs[0].name.as_str()), (1, 1, CONFIG));
    agent.send(poll(&token(0), &after(&head))?).await?;
    served.held(0).await?;
    let pod = pod(0);
    served.stand_in.index.remove_pod(&pod.key());
    assert_eq!(agent.reply().await?.status, StatusCode::UNAUTHORIZED);
    agent.send(poll(&token(0), &PollRequest::default())?).await?;
    assert_eq!(agent.reply().await?.status, StatusCode::UNAUTHORIZED);
    assert_eq!(served.stand_in.reviews.counted().0, 1, "no review is spent on a pod that is gone");
    Ok(())
}

#[tokio::test]
async fn a_report_is_kept_and_answered_without_a_body() -> Result<()> {
    let served = ServedHub::new(Settings::default())?;
    let mut agent = served.connect().await?;
    agent.send(message("/v1/report", &token(1), r#"{"agent":"0.1.0","acknowledged":true}"#)).await?;
    let reply = agent.reply().await?;
    assert_eq!((reply.status, reply.body.len()), (StatusCode::NO_CONTENT, 0));
    let pod = pod(1);
    let key = pod.key();
    assert_eq!(
        served.stand_in.hub.last_report(&key, &pod.uid).map(|reported| reported.report.acknowledged),
        Some(true)
    );
    Ok(())
}

#[tokio::test]
async fn a_poll_that_nobody_waits_for_any_more_is_dropped() -> Result<()> {
    let served = ServedHub::new(Settings::default())?;
    served.activate("1", b"x");
    drop(served.waiting(0).await?);
    let uid = pod(0).uid;
    eventually(TEST_TIMEOUT, "its slot is free", async || (!served.stand_in.hub.is_connected(&uid)).then_some(())).await
}

#[tokio::test]
async fn connections_beyond_the_bound_are_closed() -> Result<()> {
    let served = ServedHub::new(Settings { max_connections: 2, ..Settings::default() })?;
    served.activate("1", b"x");
    let one = served.waiting(0).await?;
    let two = served.waiting(1).await?;
    assert!(served.connect().await.is_err());
    drop((one, two));
    eventually(TEST_TIMEOUT, "there is room again", async || served.connect().await.ok().map(drop)).await
}

#[tokio::test]
async fn an_address_with_many_makes_room_for_another_one() -> Result<()> {
    let served =
        ServedHub::new(Settings { max_connections: 4, handshake_timeout: TEST_TIMEOUT, ..Settings::default() })?;
    served.activate("1", b"x");
    // More silent connections than there are slots.
    let mut silent = Vec::new();
    for _ in 0..12 {
        silent.push(served.connect_from(2).await?);
    }
    let agents = [served.waiting(0).await?, served.waiting(1).await?];
    for _ in 0..12 {
        silent.push(served.connect_from(2).await?);
    }
    // Each connection that the hub has accepted or refused counts; the hub accepts them one after the other.
    eventually(TEST_TIMEOUT, "all have come", async || {
        served.stand_in.metrics().contains("hub_connections_refused_total 22\n").then_some(())
    })
    .await?;
    assert!(agents[0].is_silent().await && agents[1].is_silent().await);
    served.held(0).await?;
    served.held(1).await
}

#[tokio::test]
async fn a_slow_client_is_cut_off() -> Result<()> {
    let short = Duration::from_millis(300);
    let ended = async |raw: &mut Raw| timeout(TEST_TIMEOUT, raw.ended()).await;
    // One bound at a time, or the others could cut first on a busy machine.
    let served = ServedHub::new(Settings { handshake_timeout: short, ..Settings::default() })?;
    let silent = TcpStream::connect(served.front.address).await?;
    timeout(TEST_TIMEOUT, silent.peek(&mut [0])).await??;
    // No request, half a head.
    let served = ServedHub::new(Settings { head_timeout: short, ..Settings::default() })?;
    let mut raw = served.connect().await?;
    ended(&mut raw).await?;
    let mut raw = served.connect().await?;
    raw.send("POST /v1/poll HTTP/1.1\r\nhost:").await?;
    ended(&mut raw).await?;
    // Half a body.
    let served = ServedHub::new(Settings { body_timeout: short, ..Settings::default() })?;
    let mut raw = served.connect().await?;
    raw.send(announced(&token(0), 10) + "{").await?;
    assert_eq!(raw.reply().await?.status, StatusCode::REQUEST_TIMEOUT);
    ended(&mut raw).await?;
    // No second request.
    let served = ServedHub::new(Settings { idle_timeout: short, ..Settings::default() })?;
    served.activate("1", b"x");
    let mut raw = served.connect().await?;
    raw.send(poll(&token(0), &PollRequest::default())?).await?;
    assert_eq!(raw.reply().await?.status, StatusCode::OK);
    ended(&mut raw).await?;
    Ok(())
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused() -> Result<()> {
    let served = ServedHub::new(Settings::default())?;
    let mut raw = served.connect().await?;
    let _ = raw.send(format!("POST /v1/poll HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(20_000))).await;
    assert!(raw.reply().await.is_ok_and(|reply| reply.status.is_client_error()));
    timeout(TEST_TIMEOUT, raw.ended()).await?;
    Ok(())
}

#[tokio::test]
async fn a_client_that_does_not_read_is_cut() -> Result<()> {
    let settings =
        Settings { write_timeout: Duration::from_millis(300), min_bytes_per_second: usize::MAX, ..Settings::default() };
    let served = ServedHub::new(settings)?;
    let value = || vec![0; 1024 * 1000];
    let version = served.stand_in.stored.add("1", &[&[("a", value())], &[("b", value())], &[("c", value())]]);
    served.stand_in.activate(&version);
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(4096)?;
    let stream = socket.connect(served.front.address).await?;
    let mut raw = Raw::over(stream, served.front.address.ip(), &served.front.tls).await?;
    raw.send(poll(&token(0), &PollRequest::default())?).await?;
    let cut = async || served.stand_in.metrics().contains("hub_connections_failed_total 1\n").then_some(());
    eventually(TEST_TIMEOUT, "the connection is cut", cut).await?;
    assert!(raw.reply().await.is_err());
    Ok(())
}

#[tokio::test]
async fn connections_have_an_age() -> Result<()> {
    let served = ServedHub::new(Settings { max_connection_age: Duration::ZERO, ..Settings::default() })?;
    served.activate("1", b"x");
    let mut raw = served.connect().await?;
    timeout(TEST_TIMEOUT, raw.ended()).await?;
    Ok(())
}

#[tokio::test]
async fn a_replica_that_ends_sends_its_agents_away_and_returns() -> Result<()> {
    let mut served = ServedHub::new(Settings { drain_period: Duration::from_millis(300), ..Settings::default() })?;
    served.activate("1", b"x");
    let mut agents = Vec::new();
    for number in 0..3 {
        agents.push(served.waiting(number).await?);
    }
    served.front.stop();
    sent_away(agents).await?;
    timeout(TEST_TIMEOUT, &mut served.front.served).await??;
    assert!(TcpStream::connect(served.front.address).await.is_err());
    Ok(())
}

#[tokio::test]
async fn a_replica_with_a_task_that_panics_sends_its_agents_away_and_panics() -> Result<()> {
    let mut served = ServedHub::new(Settings { drain_period: Duration::from_millis(300), ..Settings::default() })?;
    served.activate("1", b"x");
    let agents = vec![served.waiting(0).await?, served.waiting(1).await?];
    served.stand_in.conditions.panics.store(true, Ordering::Relaxed);
    // A condition is to be written: the agent of the third pod has never reported.
    served.stand_in.hub.mark_silent_pods();
    sent_away(agents).await?;
    let error = timeout(TEST_TIMEOUT, &mut served.front.served).await?.expect_err("the task panicked");
    assert!(error.is_panic());
    Ok(())
}

async fn sent_away(agents: Vec<Raw>) -> Result<()> {
    for mut agent in agents {
        let reply = agent.reply().await?;
        assert_eq!(reply.status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(reply.headers["connection"], "close");
        assert!(reply.headers.contains_key("retry-after"));
        timeout(TEST_TIMEOUT, agent.ended()).await?;
    }
    Ok(())
}

#[tokio::test]
async fn tokens_that_cannot_be_good_cost_no_review() -> Result<()> {
    let served = ServedHub::new(Settings { behind_timeout: Duration::from_millis(100), ..Settings::default() })?;
    served.activate("1", b"x");
    let claim = |path: &'static str, value: serde_json::Value| {
        token_with(0, |claims| {
            if let Some(claim) = claims.pointer_mut(path) {
                *claim = value;
            }
        })
    };
    let other_uid = "00000000-0000-4000-8000-00000000ffff";
    let bound = "/kubernetes.io";
    for (what, token, status) in [
        ("no token", String::new(), 401),
        ("no JWT", "opaque".to_owned(), 401),
        ("no JSON", "e30.!.0".to_owned(), 401),
        ("another audience", claim("/aud", json!(["https://kubernetes.default.svc"])), 401),
        ("expired", claim("/exp", json!(1_000_000_000)), 401),
        ("not bound to a pod", claim("/kubernetes.io/pod", json!(null)), 401),
        ("an old token of a service account", claim(bound, json!(null)), 401),
        ("a namespace that is not enabled", claim("/kubernetes.io/namespace", json!("kube-system")), 403),
        ("a pod that is not there", claim("/kubernetes.io/pod/name", json!("web-1")), 503),
        ("another pod of this name", claim("/kubernetes.io/pod/uid", json!(other_uid)), 503),
    ] {
        for path in ["/v1/poll", "/v1/report"] {
            let mut agent = served.connect().await?;
            agent.send(message(path, &token, "{}")).await?;
            assert_eq!(agent.reply().await?.status.as_u16(), status, "{what}");
        }
    }
    assert_eq!(served.stand_in.reviews.counted().0, 0);
    // A token with fitting claims is reviewed, and the review counts: the signature belongs to another pod.
    let mut agent = served.connect().await?;
    agent.send(poll(&token(1).replace(".1", ".2"), &PollRequest::default())?).await?;
    assert_eq!(agent.reply().await?.status, StatusCode::UNAUTHORIZED);
    assert_eq!(served.stand_in.reviews.counted().0, 1);
    Ok(())
}

#[tokio::test]
async fn a_review_whose_client_has_left_is_cancelled() -> Result<()> {
    let hour = Duration::from_hours(1);
    let stand_in = StandIn::new(Settings { review_timeout: hour, ..Settings::default() }, 40, hour);
    let front = Front::new(&stand_in.hub)?;
    let mut clients = Vec::new();
    for number in 0..40 {
        let mut client = front.connect().await?;
        client.send(poll(&token(number), &PollRequest::default())?).await?;
        clients.push(client);
    }
    eventually(TEST_TIMEOUT, "a quarter is under way", async || (stand_in.reviews.now() == 13).then_some(())).await?;
    drop(clients);
    eventually(TEST_TIMEOUT, "none is", async || (stand_in.reviews.now() == 0).then_some(())).await?;
    Ok(())
}

#[tokio::test]
async fn two_thousand_connections_of_one_address_leave_the_agents_of_others_alone() -> Result<()> {
    let served =
        ServedHub::new(Settings { max_connections: 500, handshake_timeout: TEST_TIMEOUT * 3, ..Settings::default() })?;
    served.activate("1", b"x");
    let mut agents = [served.waiting(0).await?, served.waiting(1).await?];
    let mut hostile = Vec::new();
    for _ in 0..2000 {
        hostile.push(served.connect_from(2).await?);
    }
    // One more agent is served while they are all there, and the others have kept their connections.
    let mut late = served.secured(served.connect_from(3).await?).await?;
    late.send(poll(&token(2), &PollRequest::default())?).await?;
    assert_eq!(late.reply().await?.status, StatusCode::OK);
    assert!(agents[0].is_silent().await && agents[1].is_silent().await);
    served.held(0).await?;
    served.held(1).await?;
    served.activate("2", b"y");
    for agent in &mut agents {
        assert_eq!(agent.reply().await?.status, StatusCode::OK);
    }
    Ok(())
}

#[tokio::test]
async fn slow_bodies_take_their_own_addresses_room_only() -> Result<()> {
    // There is room for four of the largest bodies, but for only one per address.
    let settings =
        Settings { max_body_bytes: 4 * MAX_REQUEST_BYTES, body_timeout: TEST_TIMEOUT * 3, ..Settings::default() };
    let served = ServedHub::new(settings)?;
    served.activate("1", b"x");
    let mut agent = served.waiting(0).await?;
    let slow = announced(&token(0), MAX_REQUEST_BYTES);
    let mut hostile = Vec::new();
    for _ in 0..30 {
        let mut raw = served.secured(served.connect_from(2).await?).await?;
        raw.send(&slow).await?;
        raw.send("x".repeat(MAX_REQUEST_BYTES - 1)).await?;
        hostile.push(raw);
    }
    let mut other = served.connect().await?;
    other.send(poll(&token(1), &PollRequest::default())?).await?;
    assert_eq!(timeout(TEST_TIMEOUT, other.reply()).await??.status, StatusCode::OK);
    assert!(agent.is_silent().await);
    // Requests of the same address wait.
    let mut own = served.secured(served.connect_from(2).await?).await?;
    own.send(poll(&token(2), &PollRequest::default())?).await?;
    assert!(timeout(Duration::from_millis(500), own.reply()).await.is_err());
    drop(hostile);
    assert_eq!(timeout(TEST_TIMEOUT, own.reply()).await??.status, StatusCode::OK);
    served.activate("2", b"y");
    assert_eq!(agent.reply().await?.status, StatusCode::OK);
    Ok(())
}

#[tokio::test]
async fn a_client_without_a_token_of_a_pod_takes_no_room_for_bodies() -> Result<()> {
    // Room for one body.
    let settings = Settings { max_body_bytes: 1, body_timeout: TEST_TIMEOUT * 3, ..Settings::default() };
    let served = ServedHub::new(settings)?;
    served.activate("1", b"x");
    let none = token_with(0, |claims| claims["kubernetes.io"]["namespace"] = json!("kube-system"));
    let mut hostile = Vec::new();
    for (token, status) in [("", StatusCode::UNAUTHORIZED), (&none, StatusCode::FORBIDDEN)] {
        let mut raw = served.connect().await?;
        raw.send(announced(token, MAX_REQUEST_BYTES) + "x").await?;
        // Answered before the body is there.
        assert_eq!(timeout(TEST_TIMEOUT, raw.reply()).await??.status, status);
        hostile.push(raw);
    }
    let mut agent = served.connect().await?;
    agent.send(poll(&token(1), &PollRequest::default())?).await?;
    assert_eq!(timeout(TEST_TIMEOUT, agent.reply()).await??.status, StatusCode::OK);
    Ok(())
}

/// Returns the head of a poll with a body of the given size.
fn announced(token: &str, length: usize) -> String {
    format!("POST /v1/poll HTTP/1.1\r\nhost: hub\r\nauthorization: Bearer {token}\r\ncontent-length: {length}\r\n\r\n")
}
