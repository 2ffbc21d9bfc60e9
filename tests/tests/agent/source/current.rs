//! The forms of `current`: a link or a file that names a version next to it.

use std::fs;

use anyhow::{Context, Result};
use nudge_protocol::status::ProblemReason;
use nudge_tests::AgentUnderTest;

use super::idle_agent::{idle, stays_and_recovers};

#[tokio::test]
async fn current_must_name_a_version_beside_it() -> Result<()> {
    for (target, part) in [
        ("current", "'current' stands for"),
        ("..", "must point to a version's folder beside it"),
        ("../shop/1.0.1", "must point to a version's folder beside it"),
        ("1.0.1/deeper", "must point to a version's folder beside it"),
        ("/", "must point to a version's folder beside it"),
    ] {
        let mut agent = idle(AgentUnderTest::shop()?).await?;
        agent.dir.switch("shop", target)?;
        stays_and_recovers(&mut agent, ProblemReason::CurrentInvalid, part).await.context(target)?;
    }
    Ok(())
}

#[tokio::test]
async fn a_current_file_must_hold_one_version() -> Result<()> {
    let mut agent = idle(AgentUnderTest::shop()?).await?;
    let write = |agent: &AgentUnderTest, content: &[u8]| -> Result<()> {
        let draft = agent.dir.beside("draft");
        fs::write(&draft, content)?;
        Ok(fs::rename(&draft, agent.dir.path().join("shop/current"))?)
    };
    for (content, part) in [
        (&b"current"[..], "'current' stands for"),
        (b"..", r#"version "..""#),
        (b"a/b", r#"version "a/b""#),
        (b"", r#"version """#),
        (b"\xff", "must hold the name of a version"),
        (&[b'1'; 300], "must hold the name of a version"),
    ] {
        write(&agent, content)?;
        let problem = agent.problem("shop", part).await?;
        assert_eq!(problem.reason, ProblemReason::CurrentInvalid, "{part}");
    }
    agent.wait_until_served("shop=1.0.0").await?;
    write(&agent, b"1.0.1\n")?;
    agent.wait_until_served("shop=1.0.1").await?;
    agent.all_is_well().await?;
    Ok(())
}
