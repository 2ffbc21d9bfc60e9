//! The values that are served, and the config that wins if several have the same key.

use anyhow::Result;
use nudge_protocol::limits::MAX_VALUE_BYTES;
use nudge_tests::agent::IDLE;
use nudge_tests::{AgentUnderTest, ConfigDir};

use super::idle_agent::idle;

#[tokio::test]
async fn values_of_no_bytes_of_the_most_and_of_any_bytes_are_served() -> Result<()> {
    let dir = ConfigDir::new()?;
    let most = vec![b'x'; MAX_VALUE_BYTES];
    let any: Vec<u8> = (0..=255).collect();
    dir.write_version("shop", "1", [("empty", &b""[..]), ("most", &most), ("any", &any), ("text", "é\n".as_bytes())])?;
    dir.switch("shop", "1")?;
    let mut agent = idle(dir).await?;
    for (key, value) in [("empty", &b""[..]), ("most", &most), ("any", &any), ("text", "é\n".as_bytes())] {
        let reply = agent.client.get(&format!("/config/{key}")).await?;
        assert!(reply.status == 200 && reply.body == value, "{key}: {} and {} bytes", reply.status, reply.body.len());
    }
    let whole: serde_json::Value = serde_json::from_slice(&agent.client.get("/config").await?.body)?;
    assert_eq!(whole["nudge.binary"], "any");
    assert_eq!(whole["empty"], "");
    assert_eq!(whole["text"], "é\n");
    assert!(whole["any"].as_str().is_some_and(|base64| base64.starts_with("AAECAwQF")), "{}", whole["any"]);
    Ok(())
}

#[tokio::test]
async fn of_two_configs_with_the_same_key_the_one_listed_later_wins() -> Result<()> {
    let dir = AgentUnderTest::shop()?;
    dir.write_version("extra", "7", [("lives", "99")])?;
    dir.switch("extra", "7")?;
    let mut agent = AgentUnderTest::start(dir, &["--config", "shop", "--config", "extra"], &IDLE).await?;
    agent.wait_until_served("shop=1.0.0,extra=7").await?;
    agent.serves_value("lives", b"99").await?;
    let status = agent.client.status().await?;
    assert_eq!(status.overlaps.len(), 1);
    assert_eq!((status.overlaps[0].key.as_str(), status.overlaps[0].winner.as_str()), ("lives", "extra"));
    assert_eq!(status.overlaps[0].hidden.iter().map(AsRef::as_ref).collect::<Vec<&str>>(), ["shop"]);
    agent.logs("several configs have the same key").await
}

#[tokio::test]
async fn without_an_order_the_configs_name_decides_who_wins() -> Result<()> {
    let dir = AgentUnderTest::shop()?;
    dir.write_version("extra", "7", [("lives", "99")])?;
    dir.switch("extra", "7")?;
    let mut agent = idle(dir).await?;
    agent.wait_until_served("extra=7,shop=1.0.0").await?;
    agent.serves_value("lives", b"3").await
}
