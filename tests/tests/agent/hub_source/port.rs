//! The agent's port: it is the agent's at the pod's addresses alone, and who has taken it there is named.

use std::net::TcpListener;

use anyhow::{Result, ensure};
use nudge_protocol::hub::ReportRequest;
use nudge_tests::agent::WAIT_TIMEOUT;
use nudge_tests::{Client, FakeHub, Finished, Pod};
use tokio::net::TcpStream;

/// Addresses of no other test.
const POD: &str = "127.0.7.1,127.0.7.2";

#[tokio::test]
async fn an_application_on_loopback_and_the_agent_have_the_same_port() -> Result<()> {
    let hub = FakeHub::start()?;
    let app = TcpListener::bind("127.0.0.1:0")?;
    let port = app.local_addr()?.port();
    let mut pod = Pod::new(&hub)?.at_addresses(POD).at_port(port);
    let mut client = pod.start().await?;
    assert_eq!(client.address().to_string(), format!("127.0.7.1:{port}"));
    pod.wait_until_served(&mut client, "shop=1.0.0").await?;
    let mut second = Client::without_token(format!("127.0.7.2:{port}").parse()?, &pod.path("share/ca.crt"))?;
    assert_eq!(second.get("/readyz").await?.status, 200, "each of the pod's addresses");
    ensure!(TcpStream::connect(("127.0.7.3", port)).await.is_err(), "and no other");
    // The application starts again while the agent runs.
    drop(app);
    TcpListener::bind(("127.0.0.1", port))?;
    Ok(())
}

#[tokio::test]
async fn who_has_taken_the_port_is_reported_until_it_is_free() -> Result<()> {
    let hub = FakeHub::start()?;
    // Of all addresses, as applications listen mostly.
    let app = TcpListener::bind("0.0.0.0:0")?;
    let port = app.local_addr()?.port();
    let mut pod = Pod::new(&hub)?.at_addresses("127.0.7.1").at_port(port);
    pod.spawn()?;
    let taken = |report: &ReportRequest| {
        let problem = report.configs[0].problem.as_ref();
        problem.is_some_and(|problem| problem.reason == "PortTaken") && !report.acknowledged
    };
    let report =
        hub.wait_for_report(WAIT_TIMEOUT, "the port is taken", taken).await.map_err(|error| pod.explain(&error))?;
    let message = report.request.configs[0].problem.as_ref().map(|problem| problem.message.clone()).unwrap_or_default();
    let who = format!("port {port} of 127.0.7.1 is taken by process {} (", std::process::id());
    ensure!(message.contains(&who) && message.contains("agent-port"), "{message}");
    let waited = Finished::within(WAIT_TIMEOUT, pod.command("wait-ready")?.args(["--timeout", "200ms"]))?;
    ensure!(waited.code == Some(1) && waited.stderr.contains(&who), "{waited:?}");

    drop(app);
    let mut client = pod.client().await?;
    pod.wait_until_served(&mut client, "shop=1.0.0").await?;
    let well = |report: &ReportRequest| report.configs[0].problem.is_none() && report.acknowledged;
    hub.wait_for_report(WAIT_TIMEOUT, "the agent has its port", well).await?;
    let silent = async || (!pod.path("state/not-ready").exists()).then_some(());
    nudge_tests::eventually(WAIT_TIMEOUT, "nothing says any more that the port is taken", silent).await
}
