//! The shared parts of these tests.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nudge_tests::{AgentUnderTest, Client, ConfigDir, Reply, procfs};
use tokio::net::{TcpSocket, TcpStream};

/// The application of the tests.
pub(crate) const APP: &str = env!("CARGO_BIN_EXE_app");
/// One mebibyte.
pub(crate) const MIB: usize = 1024 * 1024;

/// Returns an agent whose child catches the signal that notifies of changes.
pub(crate) async fn with_handler(dir: ConfigDir) -> Result<AgentUnderTest> {
    let mut agent = AgentUnderTest::start(dir, &["--notify", "SIGUSR1"], &[APP, "--catch", "SIGUSR1"]).await?;
    agent.wait_for_lines(1, "ready").await?;
    Ok(agent)
}

/// Awaits a result that other clients must not hold up. They would hold it up for at least ten seconds.
pub(crate) async fn await_promptly<T>(what: &str, result: impl Future<Output = Result<T>>) -> Result<T> {
    let begun = Instant::now();
    let result = result.await.with_context(|| what.to_owned())?;
    let duration = begun.elapsed();
    ensure!(duration < Duration::from_secs(3), "{what} only after {duration:?}");
    Ok(result)
}

/// Returns how many connections the agent has, this client's among them.
pub(crate) async fn connections(client: &mut Client) -> Result<usize> {
    connections_in(&client.get("/metrics").await?)
}

/// Returns the same, read in a reply.
pub(crate) fn connections_in(metrics: &Reply) -> Result<usize> {
    let line = str::from_utf8(&metrics.body)?.lines().find_map(|line| line.strip_prefix("nudge_agent_connections "));
    Ok(line.context("no such figure")?.parse()?)
}

/// Returns what the agent has for itself, in bytes.
pub(crate) fn own_memory(agent: &AgentUnderTest) -> Result<usize> {
    Ok(usize::try_from(procfs::memory(agent.agent.pid())?.rss_anon)?)
}

/// Returns a connection for which the kernel takes next to nothing that is not read.
pub(crate) async fn narrow(to: SocketAddr) -> Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(4096)?;
    Ok(socket.connect(to).await?)
}
