//! An agent that serves a folder, and a check that a fault in the folder leaves the served version as it was.

use anyhow::{Result, ensure};
use nudge_protocol::status::ProblemReason;
use nudge_tests::agent::IDLE;
use nudge_tests::{AgentUnderTest, ConfigDir};

/// The application of these tests.
pub(super) const APP: &str = env!("CARGO_BIN_EXE_app");

pub(super) async fn idle(dir: ConfigDir) -> Result<AgentUnderTest> {
    AgentUnderTest::start(dir, &[], &IDLE).await
}

/// Asserts that the old dictionary is served though the source has `reason`, then switches to something good.
pub(super) async fn stays_and_recovers(agent: &mut AgentUnderTest, reason: ProblemReason, part: &str) -> Result<()> {
    let problem = agent.problem("shop", part).await?;
    ensure!(problem.reason == reason, "{problem:?}");
    agent.wait_until_served("shop=1.0.0").await?;
    agent.logs("the last good version stays").await?;
    agent.logs(reason.as_str()).await?;
    agent.dir.switch("shop", "1.0.2")?;
    agent.wait_until_served("shop=1.0.2").await?;
    agent.all_is_well().await?;
    agent.logs("config has no problem any more").await
}
