//! Unreadable files replace no good content, and are read as soon as their permissions allow it.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use anyhow::Result;
use nix::unistd::Uid;
use nudge_protocol::status::ProblemReason;
use nudge_tests::agent::IDLE;
use nudge_tests::{AgentUnderTest, tools};

#[tokio::test]
async fn a_version_that_may_not_be_read_does_not_replace_the_good_one() -> Result<()> {
    let Some(bound) = bound_by_modes() else { return Ok(()) };
    let mut agent = AgentUnderTest::start_with(AgentUnderTest::shop()?, |exec| exec.under(bound), &IDLE).await?;
    let key = agent.dir.path().join("shop/1.0.1/lives");
    fs::set_permissions(&key, Permissions::from_mode(0o000))?;
    agent.dir.switch("shop", "1.0.1")?;
    let problem = agent.problem("shop", "lives can't be read").await?;
    assert_eq!(problem.reason, ProblemReason::Unreadable);
    agent.wait_until_served("shop=1.0.0").await?;
    // The change of the mode alone is noticed.
    fs::set_permissions(&key, Permissions::from_mode(0o400))?;
    agent.wait_until_served("shop=1.0.1").await?;
    agent.all_is_well().await?;
    Ok(())
}

#[tokio::test]
async fn a_versions_folder_that_may_not_be_read_does_not_replace_the_good_one() -> Result<()> {
    let Some(bound) = bound_by_modes() else { return Ok(()) };
    let mut agent = AgentUnderTest::start_with(AgentUnderTest::shop()?, |exec| exec.under(bound), &IDLE).await?;
    let folder = agent.dir.path().join("shop/1.0.1");
    fs::set_permissions(&folder, Permissions::from_mode(0o000))?;
    agent.dir.switch("shop", "1.0.1")?;
    let problem = agent.problem("shop", "can't be read").await?;
    assert_eq!(problem.reason, ProblemReason::Unreadable);
    agent.wait_until_served("shop=1.0.0").await?;
    fs::set_permissions(&folder, Permissions::from_mode(0o700))?;
    agent.wait_until_served("shop=1.0.1").await?;
    agent.all_is_well().await?;
    Ok(())
}

/// Returns what makes the agent heed the modes of files; `None` if that can't be had.
fn bound_by_modes() -> Option<Vec<&'static str>> {
    if !Uid::effective().is_root() {
        return Some(Vec::new());
    }
    let without = vec!["setpriv", "--bounding-set=-dac_override,-dac_read_search"];
    let works = Command::new(without[0]).args(&without[1..]).arg("true").status().is_ok_and(|status| status.success());
    if works {
        return Some(without);
    }
    tools::skipped("root reads what it likes, and setpriv can't take that from it here");
    None
}
