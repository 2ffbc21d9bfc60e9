//! Bounds of time.

use std::time::{Duration, Instant};

use anyhow::Result;
use nudge_protocol::ErrorBody;
use nudge_tests::agent::raw::head;
use nudge_tests::agent::{IDLE, WAIT_TIMEOUT};
use nudge_tests::{AgentUnderTest, Raw};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The agent's own bounds, both at the same time since each takes ten seconds.
#[tokio::test]
async fn a_body_and_a_handshake_have_ten_seconds() -> Result<()> {
    let bounds = Duration::from_secs(9)..Duration::from_secs(30);
    let agent = AgentUnderTest::start(AgentUnderTest::shop()?, &[], &IDLE).await?;
    let body = async {
        let mut slow = Raw::open(&agent.access).await?;
        slow.send(head(&agent.access, "POST /hooks", &["Content-Length: 20"]) + "{\"url\"").await?;
        let begun = Instant::now();
        let reply = slow.reply().await?;
        assert!(bounds.contains(&begun.elapsed()), "{:?}", begun.elapsed());
        assert_eq!(reply.status, 408);
        assert_eq!(serde_json::from_slice::<ErrorBody>(&reply.body)?.error, "RequestTimeout");
        timeout(WAIT_TIMEOUT, slow.ended()).await?;
        anyhow::Ok(())
    };
    let handshake = async {
        let mut silent = TcpStream::connect(agent.access.address).await?;
        let begun = Instant::now();
        assert_eq!(silent.read(&mut [0]).await?, 0);
        assert!(bounds.contains(&begun.elapsed()), "{:?}", begun.elapsed());
        Ok(())
    };
    tokio::try_join!(body, handshake)?;
    Ok(())
}
