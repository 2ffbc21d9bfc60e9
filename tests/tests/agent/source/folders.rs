//! Folders of configs that go and come back, and other files in the folder.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

use anyhow::Result;
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use nudge_protocol::status::ProblemReason;
use nudge_tests::AgentUnderTest;

use super::idle_agent::idle;

#[tokio::test]
async fn a_config_folder_deleted_and_put_back_is_missed_and_taken_again() -> Result<()> {
    let mut agent = idle(AgentUnderTest::shop()?).await?;
    let (folder, away) = (agent.dir.path().join("shop"), agent.dir.beside("away"));
    fs::rename(&folder, &away)?;
    let problem = agent.problem("shop", "there is no folder").await?;
    assert_eq!(problem.reason, ProblemReason::ConfigMissing);
    agent.wait_until_served("shop=1.0.0").await?;
    fs::remove_file(away.join("current"))?;
    symlink("1.0.1", away.join("current"))?;
    fs::rename(&away, &folder)?;
    agent.wait_until_served("shop=1.0.1").await?;
    agent.all_is_well().await?;
    // The new folder is watched as the old one was.
    agent.dir.switch("shop", "1.0.2")?;
    agent.wait_until_served("shop=1.0.2").await
}

#[tokio::test]
async fn one_broken_config_does_not_hold_up_another() -> Result<()> {
    let dir = AgentUnderTest::shop()?;
    for version in ["1", "2"] {
        dir.write_version("web", version, [("title", version)])?;
    }
    dir.switch("web", "1")?;
    let mut agent = idle(dir).await?;
    agent.dir.switch("shop", "9.9.9")?;
    agent.problem("shop", "9.9.9").await?;
    agent.dir.switch("web", "2")?;
    agent.wait_until_served("shop=1.0.0,web=2").await
}

#[tokio::test]
async fn a_folder_full_of_odd_names_is_served_without_them() -> Result<()> {
    let dir = AgentUnderTest::shop()?;
    for odd in [&b"\xff\xfe"[..], b"\xc3\x28", b"UPPER", b"with space", b".hidden"] {
        fs::create_dir(dir.path().join(OsStr::from_bytes(odd)))?;
        fs::create_dir(dir.path().join("shop").join(OsStr::from_bytes(odd)))?;
    }
    fs::write(dir.path().join("README"), "not a config")?;
    let mut agent = idle(dir).await?;
    agent.logs("xff").await?;
    agent.wait_until_served("shop=1.0.0").await?;
    fs::create_dir(agent.dir.path().join(OsStr::from_bytes(b"late\xff")))?;
    agent.dir.switch("shop", "1.0.1")?;
    agent.wait_until_served("shop=1.0.1").await?;
    agent.all_is_well().await?;
    Ok(())
}

#[tokio::test]
async fn the_whole_folder_can_be_replaced() -> Result<()> {
    let mut agent = idle(AgentUnderTest::shop()?).await?;
    let other = AgentUnderTest::shop()?;
    other.switch("shop", "1.0.1")?;
    renameat2(AT_FDCWD, other.path(), AT_FDCWD, agent.dir.path(), RenameFlags::RENAME_EXCHANGE)?;
    agent.wait_until_served("shop=1.0.1").await?;
    agent.all_is_well().await?;
    // The new folder is watched as the old one was.
    agent.dir.switch("shop", "1.0.2")?;
    agent.wait_until_served("shop=1.0.2").await
}
