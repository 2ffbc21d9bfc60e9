//! A version that changes while it is current, key by key or as a whole.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::Result;
use nudge_protocol::status::Outcome;
use nudge_tests::AgentUnderTest;

use super::idle_agent::{APP, idle};

#[tokio::test]
async fn a_value_edited_in_place_is_served_and_notified() -> Result<()> {
    let child = [APP, "--catch", "SIGUSR1", "--fetch"];
    let mut agent = AgentUnderTest::start(AgentUnderTest::shop()?, &["--notify", "SIGUSR1"], &child).await?;
    agent.wait_for_lines(1, "ready").await?;
    fs::write(agent.dir.path().join("shop/1.0.0/lives"), "4")?;
    agent.wait_for_lines(1, "SIGUSR1 shop=1.0.0").await?;
    agent.serves_value("lives", b"4").await
}

#[tokio::test]
async fn a_key_that_is_added_and_one_that_is_removed_are_seen() -> Result<()> {
    let mut agent = idle(AgentUnderTest::shop()?).await?;
    let version = agent.dir.path().join("shop/1.0.0");
    fs::write(version.join("greeting"), "hello")?;
    agent.serves_value("greeting", b"hello").await?;
    fs::remove_file(version.join("lives"))?;
    agent.status_when("one key", |status| status.configs[0].keys == 1).await?;
    assert_eq!(agent.client.get("/config/lives").await?.status, 404);
    Ok(())
}

#[tokio::test]
async fn what_editors_leave_beside_a_key_is_no_key() -> Result<()> {
    let mut agent = idle(AgentUnderTest::shop()?).await?;
    let version = agent.dir.path().join("shop/1.0.0");
    for leftover in [".lives.swp", "lives~", ".#lives", "#lives#"] {
        fs::write(version.join(leftover), "draft")?;
    }
    // What comes after them shows that they have been seen.
    fs::write(version.join("seen"), "")?;
    let status = agent.status_when("the key after them", |status| status.configs[0].keys != 1).await?;
    assert_eq!(status.configs[0].keys, 2);
    Ok(())
}

#[tokio::test]
async fn a_version_kept_as_the_kubelet_does_is_read_whole_at_each_swap() -> Result<()> {
    let dir = AgentUnderTest::shop()?;
    let version = dir.path().join("shop/mounted");
    let content = |data: &str, one: &str| -> Result<()> {
        fs::create_dir(version.join(data))?;
        fs::write(version.join(data).join("one"), one)?;
        fs::write(version.join(data).join("two"), one)?;
        symlink(data, version.join("..data_tmp"))?;
        Ok(fs::rename(version.join("..data_tmp"), version.join("..data"))?)
    };
    fs::create_dir(&version)?;
    content("..2026_01", "a")?;
    for key in ["one", "two"] {
        symlink(Path::new("..data").join(key), version.join(key))?;
    }
    dir.switch("shop", "mounted")?;
    let mut agent = idle(dir).await?;
    agent.serves_value("one", b"a").await?;
    content("..2026_02", "b")?;
    agent.serves_value("one", b"b").await?;
    agent.serves_value("two", b"b").await?;
    assert_eq!(agent.all_is_well().await?.configs[0].keys, 2);
    Ok(())
}

#[tokio::test]
async fn a_value_that_is_being_written_is_not_served_half() -> Result<()> {
    let child = [APP, "--catch", "SIGUSR1"];
    let mut agent = AgentUnderTest::start(AgentUnderTest::shop()?, &["--notify", "SIGUSR1"], &child).await?;
    agent.wait_for_lines(1, "ready").await?;
    // An editor that truncates the file and takes its time: no notification before it has closed the file.
    let mut file = File::create(agent.dir.path().join("shop/1.0.0/lives"))?;
    file.write_all(b"4")?;
    agent.notified_when("no notification", |notified| notified.outcome == Outcome::NothingYet).await?;
    agent.serves_value("lives", b"3").await?;
    file.write_all(b"2")?;
    drop(file);
    agent.serves_value("lives", b"42").await?;
    agent.wait_for_lines(1, "SIGUSR1").await?;
    Ok(())
}
