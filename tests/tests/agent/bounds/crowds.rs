//! Many clients at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use hyper::header::{ETAG, RETRY_AFTER};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nudge_protocol::ErrorBody;
use nudge_tests::agent::WAIT_TIMEOUT;
use nudge_tests::agent::raw::head;
use nudge_tests::{AgentUnderTest, Client, ConfigDir, Raw, agent::tls, eventually};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::bounds::common::{MIB, await_promptly, connections, narrow, own_memory, with_handler};

/// The agent's bound for connections from the pod.
const CONNECTIONS: usize = 256;
/// The maximum number of waiting requests.
const WAITING: usize = 128;

/// Waits until the agent's own memory is within a mebibyte of its earlier size.
async fn shrinks_back_to(agent: &AgentUnderTest, before: usize) -> Result<()> {
    let mut now = 0;
    let small = async || {
        now = own_memory(agent).ok()?;
        (now <= before + MIB).then_some(())
    };
    let shrunk = eventually(WAIT_TIMEOUT, "the agent gives memory back", small).await;
    shrunk.with_context(|| format!("it had {before} bytes and has {now}"))
}

/// Lets this process have more open files than is usual.
fn allow_many_files() -> Result<()> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    Ok(setrlimit(Resource::RLIMIT_NOFILE, most, most)?)
}

/// Clients that connect and do nothing else.
struct Crowd {
    tasks: JoinSet<()>,
    connected: Arc<AtomicUsize>,
}

impl Crowd {
    fn gather(agent: &AgentUnderTest, clients: usize) -> Result<Self> {
        allow_many_files()?;
        let (mut tasks, connected, address) = (JoinSet::new(), Arc::new(AtomicUsize::new(0)), agent.access.address);
        for _ in 0..clients {
            let connected = Arc::clone(&connected);
            tasks.spawn(async move {
                if let Ok(mut stream) = TcpStream::connect(address).await {
                    connected.fetch_add(1, Ordering::Relaxed);
                    // Stays until it is cut, however that shows.
                    let _ = stream.read(&mut [0]).await;
                }
            });
        }
        Ok(Self { tasks, connected })
    }
}

#[tokio::test]
async fn two_thousand_clients_that_only_connect_keep_nobody_out() -> Result<()> {
    let mut agent = with_handler(AgentUnderTest::shop()?).await?;
    let etag = agent.client.get("/config").await?.headers[ETAG].to_str()?.to_owned();
    let mut waiting = Raw::open(&agent.access).await?;
    waiting.send(head(&agent.access, "GET /config?wait=2m", &[&format!("If-None-Match: {etag}")])).await?;
    assert_eq!(connections(&mut agent.client).await?, 2);
    let before = own_memory(&agent)?;

    let mut crowd = Crowd::gather(&agent, 2000)?;
    let full = async || (crowd.connected.load(Ordering::Relaxed) >= 1000).then_some(());
    eventually(WAIT_TIMEOUT, "the agent has its hands full", full).await?;
    agent.dir.switch("shop", "1.0.1")?;
    await_promptly("the signal comes", agent.wait_for_lines(1, "SIGUSR1")).await?;
    let reply = await_promptly("the client that waits is answered", waiting.reply()).await?;
    assert!(str::from_utf8(&reply.body)?.contains(r#""lives":"5""#), "{reply:?}");

    let mut client = Client::new(&agent.access)?;
    let mut most = 0;
    {
        // It stands in the kernel's queue behind the crowd, and may have to knock several times.
        let answered = timeout(3 * WAIT_TIMEOUT, client.get("/config/lives"));
        tokio::pin!(answered);
        let reply = loop {
            tokio::select! {
                reply = &mut answered => break reply.context("a client is not answered")??,
                () = tokio::time::sleep(Duration::from_millis(10)) => most = most.max(own_memory(&agent)?),
            }
        };
        assert_eq!(reply.body, "5");
    }
    let cost = most.saturating_sub(before);
    assert!(cost < 8 * MIB, "the crowd cost {cost} bytes");

    crowd.tasks.shutdown().await;
    drop(waiting);
    let alone = async || (connections(&mut client).await.ok()? == 1).then_some(());
    eventually(WAIT_TIMEOUT, "the crowd is gone", alone).await?;
    shrinks_back_to(&agent, before).await
}

/// Returns a client that has got one reply.
async fn asked(agent: &AgentUnderTest, request: &str) -> Result<Raw> {
    let mut raw = Raw::open(&agent.access).await?;
    raw.send(request).await?;
    assert_eq!(raw.reply().await?.status, 200);
    Ok(raw)
}

#[tokio::test]
async fn a_new_client_takes_the_place_of_the_one_that_was_idle_longest() -> Result<()> {
    const MORE: usize = 20;
    let mut agent = with_handler(AgentUnderTest::shop()?).await?;
    let before = own_memory(&agent)?;
    let request = head(&agent.access, "GET /config/lives", &[]);
    let mut collected = Vec::new();
    for _ in 0..CONNECTIONS {
        collected.push(asked(&agent, &request).await?);
    }
    // The first one shows that it is not idle.
    collected[0].send(&request).await?;
    assert_eq!(collected[0].reply().await?.body, "3");
    for _ in 0..MORE {
        collected.push(asked(&agent, &request).await?);
    }
    for idle in &mut collected[1..=MORE] {
        timeout(WAIT_TIMEOUT, idle.ended()).await.context("one that was idle for longer is not cut")?;
    }
    for (at, kept) in collected.iter_mut().enumerate().filter(|(at, _)| *at == 0 || *at > MORE) {
        kept.send(&request).await?;
        assert_eq!(kept.reply().await.with_context(|| format!("number {at} was cut"))?.body, "3");
    }
    drop(collected);
    let alone = async || (connections(&mut agent.client).await.ok()? == 1).then_some(());
    eventually(WAIT_TIMEOUT, "all are gone", alone).await?;
    shrinks_back_to(&agent, before).await
}

#[tokio::test]
async fn waiting_clients_share_one_dictionary_and_one_too_many_is_refused() -> Result<()> {
    let dir = ConfigDir::new()?;
    for version in ["1", "2"] {
        dir.write_version("shop", version, [("big", vec![b'x'; MIB]), ("v", version.into())])?;
    }
    dir.switch("shop", "1")?;
    let mut agent = with_handler(dir).await?;
    let etag = agent.client.get("/config").await?.headers[ETAG].to_str()?.to_owned();
    let before = own_memory(&agent)?;

    let wait = head(&agent.access, "GET /config?wait=2m", &[&format!("If-None-Match: {etag}")]);
    let trust = tls::trusting(&agent.access.authority)?;
    let mut waiting = Vec::new();
    for _ in 0..WAITING {
        let stream = narrow(agent.access.address).await?;
        let mut raw = Raw::over(stream, agent.access.address.ip(), &trust).await?;
        raw.send(&wait).await?;
        waiting.push(raw);
    }
    let mut late = Raw::open(&agent.access).await?;
    late.send(&wait).await?;
    let refused = await_promptly("one too many is refused", late.reply()).await?;
    assert_eq!((refused.status.as_u16(), &refused.headers[RETRY_AFTER]), (503, &"1".parse()?));
    assert_eq!(serde_json::from_slice::<ErrorBody>(&refused.body)?.error, "TooManyWaiting");
    assert_eq!(await_promptly("others are answered", agent.client.get("/config/v")).await?.body, "1");
    let cost = own_memory(&agent)?.saturating_sub(before);
    assert!(cost < 8 * MIB, "{WAITING} waiting clients cost {cost} bytes");

    agent.dir.switch("shop", "2")?;
    await_promptly("the signal comes", agent.wait_for_lines(1, "SIGUSR1")).await?;
    for raw in &waiting {
        timeout(WAIT_TIMEOUT, raw.tcp().peek(&mut [0])).await.context("no reply begins")??;
    }
    let cost = own_memory(&agent)?.saturating_sub(before);
    assert!(cost < 14 * MIB, "{WAITING} clients that are sent 1 MiB each cost {cost} bytes");
    // All at once: who takes nothing for too long is cut.
    let replies: JoinSet<_> = waiting.into_iter().map(|mut raw| async move { raw.reply().await }).collect();
    for reply in timeout(2 * WAIT_TIMEOUT, replies.join_all()).await.context("some are still at it")? {
        let reply = reply?;
        assert!(reply.status == 200 && reply.body.len() > MIB && reply.body.ends_with(br#""v":"2"}"#));
    }
    drop(late);
    shrinks_back_to(&agent, before).await
}
