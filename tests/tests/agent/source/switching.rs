//! Every way to make another version current.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use anyhow::Result;
use nudge_tests::AgentUnderTest;

use super::idle_agent::idle;

#[tokio::test]
async fn a_link_renamed_over_the_old_one_switches() -> Result<()> {
    let mut agent = idle(AgentUnderTest::shop()?).await?;
    for version in ["1.0.1", "1.0.2", "1.0.0"] {
        agent.dir.switch("shop", version)?;
        agent.wait_until_served(&format!("shop={version}")).await?;
    }
    agent.serves_value("lives", b"3").await
}

#[tokio::test]
async fn a_link_made_anew_by_ln_switches() -> Result<()> {
    let mut agent = idle(AgentUnderTest::shop()?).await?;
    for version in ["1.0.1", "1.0.2"] {
        let done = Command::new("ln").args(["-sfn", version]).arg(agent.dir.path().join("shop/current")).status()?;
        assert!(done.success());
        agent.wait_until_served(&format!("shop={version}")).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_link_removed_and_made_again_at_once_switches_without_a_problem() -> Result<()> {
    let mut agent = idle(AgentUnderTest::shop()?).await?;
    let current = agent.dir.path().join("shop/current");
    fs::remove_file(&current)?;
    symlink("1.0.1", &current)?;
    agent.wait_until_served("shop=1.0.1").await?;
    assert!(!agent.agent.log().contains("the last good version stays"), "{}", agent.agent.log());
    Ok(())
}

#[tokio::test]
async fn an_absolute_link_into_the_folder_switches() -> Result<()> {
    let mut agent = idle(AgentUnderTest::shop()?).await?;
    let folder = agent.dir.path().join("shop");
    symlink(folder.join("1.0.1"), folder.join("draft"))?;
    fs::rename(folder.join("draft"), folder.join("current"))?;
    agent.wait_until_served("shop=1.0.1").await
}

#[tokio::test]
async fn a_file_written_in_place_switches() -> Result<()> {
    let dir = AgentUnderTest::shop()?;
    let current = dir.path().join("shop/current");
    fs::remove_file(&current)?;
    fs::write(&current, "1.0.0\n")?;
    let mut agent = idle(dir).await?;
    for version in ["1.0.1", "1.0.2"] {
        fs::write(&current, format!("{version}\n"))?;
        agent.wait_until_served(&format!("shop={version}")).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_file_renamed_into_place_switches() -> Result<()> {
    let mut agent = idle(AgentUnderTest::shop()?).await?;
    for version in ["1.0.1", "1.0.2"] {
        let draft = agent.dir.beside("draft");
        fs::write(&draft, version)?;
        fs::rename(&draft, agent.dir.path().join("shop/current"))?;
        agent.wait_until_served(&format!("shop={version}")).await?;
    }
    Ok(())
}
