//! A version that is missing, unfinished, too large or no version at all does not replace the good version.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

use anyhow::Result;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use nudge_protocol::limits::{MAX_DICTIONARY_BYTES, MAX_VALUE_BYTES};
use nudge_protocol::status::ProblemReason;
use nudge_tests::AgentUnderTest;

use super::idle_agent::{idle, stays_and_recovers};

#[tokio::test]
async fn a_version_that_is_missing_does_not_replace_the_good_one() -> Result<()> {
    let mut agent = idle(AgentUnderTest::shop()?).await?;
    agent.dir.switch("shop", "9.9.9")?;
    stays_and_recovers(&mut agent, ProblemReason::VersionMissing, "there is no folder").await
}

#[tokio::test]
async fn a_missing_version_is_taken_as_soon_as_it_is_there() -> Result<()> {
    let mut agent = idle(AgentUnderTest::shop()?).await?;
    agent.dir.switch("shop", "2.0.0")?;
    agent.problem("shop", "2.0.0").await?;
    agent.dir.write_version("shop", "2.0.0", [("lives", "9")])?;
    agent.wait_until_served("shop=2.0.0").await?;
    agent.all_is_well().await?;
    Ok(())
}

#[tokio::test]
async fn a_version_that_is_still_empty_does_not_replace_the_good_one() -> Result<()> {
    let mut agent = idle(AgentUnderTest::shop()?).await?;
    fs::create_dir(agent.dir.path().join("shop/2.0.0"))?;
    agent.dir.switch("shop", "2.0.0")?;
    stays_and_recovers(&mut agent, ProblemReason::VersionIncomplete, "the folder is empty").await
}

#[tokio::test]
async fn a_version_that_was_empty_is_taken_when_it_is_filled() -> Result<()> {
    let mut agent = idle(AgentUnderTest::shop()?).await?;
    let version = agent.dir.path().join("shop/2.0.0");
    fs::create_dir(&version)?;
    agent.dir.switch("shop", "2.0.0")?;
    agent.problem("shop", "the folder is empty").await?;
    fs::write(version.join("lives"), "9")?;
    agent.wait_until_served("shop=2.0.0").await?;
    agent.serves_value("lives", b"9").await
}

#[tokio::test]
async fn a_value_that_is_over_the_limit_does_not_replace_the_good_one() -> Result<()> {
    let mut agent = idle(AgentUnderTest::shop()?).await?;
    agent.dir.write_version("shop", "2.0.0", [("lives", vec![b'x'; MAX_VALUE_BYTES + 1])])?;
    agent.dir.switch("shop", "2.0.0")?;
    stays_and_recovers(&mut agent, ProblemReason::TooLarge, "lives has more than 1048576 bytes").await
}

#[tokio::test]
async fn a_version_that_makes_the_dictionary_too_large_does_not_replace_the_good_one() -> Result<()> {
    let mut agent = idle(AgentUnderTest::shop()?).await?;
    let values = (0..=MAX_DICTIONARY_BYTES / MAX_VALUE_BYTES).map(|n| (format!("k{n}"), vec![b'x'; MAX_VALUE_BYTES]));
    agent.dir.write_version("shop", "2.0.0", values)?;
    agent.dir.switch("shop", "2.0.0")?;
    stays_and_recovers(&mut agent, ProblemReason::TooLarge, "the values have more than").await
}

#[tokio::test]
async fn a_key_that_is_no_file_makes_its_version_invalid() -> Result<()> {
    let mut agent = idle(AgentUnderTest::shop()?).await?;
    let outside = agent.dir.beside("outside");
    fs::write(&outside, "secret")?;
    let version = agent.dir.write_version("shop", "2.0.0", [("lives", "9")])?;
    fs::create_dir(version.join("folder"))?;
    mkfifo(&version.join("fifo"), Mode::S_IRUSR | Mode::S_IWUSR)?;
    symlink(&outside, version.join("absolute"))?;
    symlink("../../../outside", version.join("relative"))?;
    agent.dir.switch("shop", "2.0.0")?;
    let problem = agent.problem("shop", "folder is a folder").await?;
    for part in ["fifo is a FIFO", "absolute is a link that leads out", "relative is a link that leads out"] {
        assert!(problem.message.contains(part), "{part}: {problem:?}");
    }
    stays_and_recovers(&mut agent, ProblemReason::VersionInvalid, "folder is a folder").await
}

#[tokio::test]
async fn a_key_that_is_no_name_or_nudges_own_makes_its_version_invalid() -> Result<()> {
    let mut agent = idle(AgentUnderTest::shop()?).await?;
    let version = agent.dir.write_version("shop", "2.0.0", [("nudge.mine", "1"), ("a b", "2")])?;
    fs::write(version.join(OsStr::from_bytes(b"odd\xff")), "3")?;
    agent.dir.switch("shop", "2.0.0")?;
    let problem = agent.problem("shop", "nudge.mine").await?;
    for part in ["reserved for Nudge", r#""a b""#, "xff"] {
        assert!(problem.message.contains(part), "{part}: {problem:?}");
    }
    stays_and_recovers(&mut agent, ProblemReason::VersionInvalid, "nudge.mine").await
}
