//! The slow re-read finds changes without a notification.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use anyhow::Result;
use nudge_protocol::status::ProblemReason;
use nudge_tests::agent::IDLE;
use nudge_tests::{AgentUnderTest, tools};

const REREAD: [&str; 2] = ["--reread", "1"];

#[tokio::test]
async fn a_change_behind_a_link_makes_no_notice_and_is_found_by_the_re_read() -> Result<()> {
    let dir = AgentUnderTest::shop()?;
    let common = dir.path().join(".common");
    fs::create_dir(&common)?;
    fs::write(common.join("greeting"), "hello")?;
    symlink("../../.common/greeting", dir.path().join("shop/1.0.0/greeting"))?;
    let mut agent = AgentUnderTest::start(dir, &REREAD, &IDLE).await?;
    agent.serves_value("greeting", b"hello").await?;
    fs::write(common.join("greeting"), "welcome")?;
    agent.serves_value("greeting", b"welcome").await
}

#[tokio::test]
async fn a_folder_deleted_and_put_back_is_found_by_the_re_read() -> Result<()> {
    let mut agent = AgentUnderTest::start(AgentUnderTest::shop()?, &REREAD, &IDLE).await?;
    let away = agent.dir.beside("away");
    fs::rename(agent.dir.path(), &away)?;
    let problem = agent.problem("shop", "can't be opened").await?;
    assert_eq!(problem.reason, ProblemReason::Unreadable);
    agent.wait_until_served("shop=1.0.0").await?;
    fs::rename(&away, agent.dir.path())?;
    agent.all_is_well().await?;
    // Now it is watched again.
    agent.dir.switch("shop", "1.0.1")?;
    agent.wait_until_served("shop=1.0.1").await
}

#[tokio::test]
async fn without_inotify_the_re_read_finds_a_switch() -> Result<()> {
    for limit in ["max_inotify_instances", "max_inotify_watches"] {
        // A user namespace has limits of its own, so no other process meets them.
        let script = format!("echo 0 >/proc/sys/user/{limit} && exec \"$@\"");
        let limited = ["unshare", "--user", "--map-root-user", "sh", "-c", &script, "sh"];
        let works = Command::new(limited[0]).args(&limited[1..]).arg("true").status();
        if !works.is_ok_and(|status| status.success()) {
            tools::skipped("no user namespace in which inotify could be limited");
            return Ok(());
        }
        let mut agent =
            AgentUnderTest::start_with(AgentUnderTest::shop()?, |exec| exec.args(REREAD).under(limited), &IDLE).await?;
        agent.logs("it is re-read from time to time").await?;
        agent.dir.switch("shop", "1.0.1")?;
        agent.wait_until_served("shop=1.0.1").await?;
    }
    Ok(())
}
