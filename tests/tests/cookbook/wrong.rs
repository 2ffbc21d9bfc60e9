//! The effect of a version that the software can't read: some programs keep their configuration, some end.

use anyhow::{Result, ensure};
use nudge_protocol::status::Outcome;
use nudge_tests::agent::WAIT_TIMEOUT;
use nudge_tests::eventually;

use crate::recipe::Software;

const WRONG: &str = "2.0.0";

impl Software {
    /// Switches to a version with this value of the one key that matters. The software `says` why it does not take it,
    /// and continues with what it had. If its page says what it shows of a version, the agent knows of the failure.
    pub(crate) async fn keeps_what_it_has<T: PartialEq>(
        &mut self,
        wrong: (&str, &str),
        says: &str,
        mut look: impl AsyncFnMut() -> Result<T>,
    ) -> Result<()> {
        self.takes_a_good_version().await?;
        let before = look().await?;
        let pid = self.agent.client.status().await?.containers[0].notified.processes.clone();
        self.write_version(WRONG, [wrong])?;
        let is_refused = |outcome| matches!(outcome, Outcome::Failed | Outcome::NotVerified);
        // A webhook is answered with a fault, and posted again.
        let is_known = self.recipe.verify.is_some() && self.recipe.has_signal();
        let outcome = self
            .outcome_of(WRONG, |outcome| if is_known { is_refused(outcome) } else { outcome != Outcome::NothingYet });
        outcome.await.map_err(|error| self.agent.agent.explain(&error))?;
        let description = format!("it says {says}");
        let message =
            eventually(WAIT_TIMEOUT, &description, async || self.agent.agent.log().contains(says).then_some(()));
        message.await.map_err(|error| self.agent.agent.explain(&error))?;
        let kept =
            eventually(WAIT_TIMEOUT, "it serves what it had", async || (look().await.ok()? == before).then_some(()));
        kept.await.map_err(|error| self.agent.agent.explain(&error))?;
        self.agent.agent.check()?;
        let now = self.agent.client.status().await?.containers[0].notified.processes.clone();
        ensure!(now == pid, "processes {now:?} after {pid:?}");
        let last = self.agent.client.status().await?.containers.remove(0);
        ensure!(!last.acknowledged || self.recipe.verify.is_none(), "the wrong version counts as taken: {last:?}");
        Ok(())
    }

    /// Switches to a version with which the software ends, with this status. A good version shows before.
    pub(crate) async fn switch_until_ended(&mut self, wrong: (&str, &str), code: i32) -> Result<()> {
        self.takes_a_good_version().await?;
        self.write_version(WRONG, [wrong])?;
        self.switch(WRONG)?;
        let status = self.agent.agent.process().wait_for_exit(WAIT_TIMEOUT).await;
        let status = status.map_err(|error| self.agent.agent.explain(&error))?;
        ensure!(status.code() == Some(code), "{status}");
        Ok(())
    }
}
