//! Clients that are not in the pod.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nudge_protocol::ErrorBody;
use nudge_tests::agent::WAIT_TIMEOUT;
use nudge_tests::agent::raw::head;
use nudge_tests::{AgentUnderTest, Raw, agent::tls, binary};
use rustls::ClientConfig;
use tokio::time::timeout;

use crate::bounds::common::{APP, await_promptly, connections_in};
use crate::bounds::namespace::{Namespace, Network};

const HEALTH: &str = "GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n";
const METRICS: &str = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";

/// The agent's bound for connections from outside of the pod.
const FOREIGN: usize = 8;
/// The number of connections of the pod itself that may still be counted: the one that asks, and the two before it.
const OWN: usize = 3;

/// A pod's agent on all its addresses.
struct Pod {
    agent: AgentUnderTest,
    network: Network,
    trust: Arc<ClientConfig>,
}

impl Pod {
    async fn start() -> Result<Option<Self>> {
        let Some(network) = Network::of_a_pod()? else { return Ok(None) };
        // Built here, if there is a network, if it has to be built.
        binary::debug()?;
        let dir = AgentUnderTest::shop()?;
        let agent = network.pod.run(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let arguments = ["--listen", "0.0.0.0", "--notify", "SIGUSR1"];
            runtime.block_on(AgentUnderTest::start(dir, &arguments, &[APP, "--catch", "SIGUSR1"]))
        })??;
        let trust = tls::trusting(&agent.access.authority)?;
        let mut pod = Self { agent, network, trust };
        pod.agent.wait_for_lines(1, "ready").await?;
        Ok(Some(pod))
    }

    fn at(&self, address: Ipv4Addr) -> SocketAddr {
        SocketAddr::from((address, self.agent.access.address.port()))
    }

    async fn open(&self, from: &Namespace, address: SocketAddr) -> Result<Raw> {
        Raw::over(from.connect(address)?, address.ip(), &self.trust).await
    }

    async fn open_from_neighbour(&self) -> Result<Raw> {
        self.open(&self.network.neighbour, self.at(Network::FOR_NEIGHBOUR)).await
    }

    /// What the kubelet does every few seconds.
    async fn probe(&self) -> Result<()> {
        let mut probe = self.open(&self.network.kubelet, self.at(Network::FOR_KUBELET)).await?;
        probe.send(HEALTH).await?;
        ensure!(probe.reply().await?.status == 200, "not ready");
        Ok(())
    }

    /// Returns how many connections the agent has, as a new client in the pod reads it.
    async fn connections(&self) -> Result<usize> {
        let mut own = self.open(&self.network.pod, self.agent.access.address).await?;
        own.send(METRICS).await?;
        connections_in(&own.reply().await?)
    }

    /// A new client in the pod is answered, by either of its addresses.
    async fn serves_its_own(&self) -> Result<()> {
        for address in [self.agent.access.address, self.at(Network::FOR_NEIGHBOUR)] {
            let mut own = self.open(&self.network.pod, address).await?;
            own.send(head(&self.agent.access, "GET /config", &[])).await?;
            assert_eq!(own.reply().await?.status, 200, "from {address}");
        }
        Ok(())
    }
}

#[tokio::test]
async fn a_neighbour_gets_health_and_nothing_else_even_with_the_token() -> Result<()> {
    let Some(pod) = Pod::start().await? else { return Ok(()) };
    pod.serves_its_own().await?;
    let mut foreign = pod.open_from_neighbour().await?;
    for path in ["/healthz", "/readyz", "/metrics"] {
        foreign.send(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n")).await?;
        assert_eq!(foreign.reply().await?.status, 200, "{path}");
    }
    let calls = ["GET /config", "GET /config/lives", "GET /config/none", "GET /status", "GET /hooks", "GET /nothing"];
    for line in calls.into_iter().chain(["POST /hooks", "DELETE /hooks/hook_1", "PUT /config"]) {
        foreign.send(head(&pod.agent.access, line, &[])).await?;
        let reply = foreign.reply().await?;
        let ErrorBody { error, message } = serde_json::from_slice(&reply.body)?;
        assert_eq!((reply.status.as_u16(), error.as_str()), (403, "Forbidden"), "{line}: {message}");
    }
    Ok(())
}

#[tokio::test]
async fn neighbours_share_a_few_connections_and_take_none_from_the_pod() -> Result<()> {
    let Some(mut pod) = Pod::start().await? else { return Ok(()) };
    let mut held = Vec::new();
    for _ in 0..FOREIGN {
        let mut foreign = pod.open_from_neighbour().await?;
        foreign.send(HEALTH).await?;
        assert_eq!(foreign.reply().await?.status, 200);
        held.push(foreign);
    }
    let mut newest = pod.open_from_neighbour().await?;
    timeout(WAIT_TIMEOUT, held[0].ended()).await.context("the one that was idle longest has not made room")?;
    newest.send(METRICS).await?;
    assert_eq!(connections_in(&newest.reply().await?)?, FOREIGN);
    await_promptly("the pod's own client is answered", pod.serves_its_own()).await?;

    // These stay in the handshake, where the first second is theirs: a client that comes then is turned away.
    let mut flood = Vec::new();
    for _ in 0..200 {
        flood.push(pod.network.neighbour.connect(pod.at(Network::FOR_NEIGHBOUR))?);
    }
    pod.agent.dir.switch("shop", "1.0.1")?;
    await_promptly("the signal comes", pod.agent.wait_for_lines(1, "SIGUSR1")).await?;
    await_promptly("the pod's own client is answered", pod.serves_its_own()).await?;
    // Connections are taken in the order in which they come, so all of the flood has been looked at.
    let now = pod.connections().await?;
    assert!(now <= FOREIGN + OWN, "{now} connections");
    drop(flood);
    Ok(())
}

#[tokio::test]
async fn a_neighbour_that_connects_without_end_does_not_keep_the_kubelet_out() -> Result<()> {
    let Some(pod) = Pod::start().await? else { return Ok(()) };
    let address = pod.at(Network::FOR_NEIGHBOUR);
    let (stop, stopped) = mpsc::channel::<()>();
    pod.network.neighbour.begin(move || {
        let mut held = VecDeque::new();
        // Holds as many as the agent lets it, each for as short as the agent lets it.
        while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(Duration::from_millis(5)) {
            held.extend(TcpStream::connect(address));
            held.drain(..held.len().saturating_sub(64));
        }
    })?;
    for number in 0..50 {
        pod.probe().await.with_context(|| format!("probe {number}"))?;
    }
    drop(stop);
    Ok(())
}
