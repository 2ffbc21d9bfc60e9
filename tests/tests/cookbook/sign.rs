//! What the agent says of a version by what the software shows, as `nudge.dev/verify` on its page says.

use anyhow::{Result, ensure};
use nudge_protocol::status::{ContainerStatus, Outcome};

use crate::recipe::{Software, VERSIONS};

/// The message of the agent about a version that the software has shown.
const SHOWN: &str = "container has taken the version";
/// A version with the content of the second one.
const SAME: &str = "1.0.2";

impl Software {
    /// Returns the number of versions that the software has shown.
    fn shown_versions(&self) -> usize {
        self.agent.agent.log().matches(SHOWN).count()
    }

    /// Checks that the software has shown the second version, if its page says what it shows.
    pub(crate) fn has_shown_the_second_version(&self) -> Result<()> {
        let (count, expected) = (self.shown_versions(), usize::from(self.recipe.verify.is_some()));
        ensure!(count == expected, "{count} versions are shown, in place of {expected}");
        Ok(())
    }

    /// Switches to a good version that is new, which the software takes.
    pub(crate) async fn takes_a_good_version(&mut self) -> Result<()> {
        let before = self.shown_versions();
        self.copy_version(VERSIONS[1], SAME)?;
        let notified = self.outcome_of(SAME, |outcome| outcome == Outcome::Delivered).await?.notified;
        let is_shown = self.shown_versions() > before;
        let is_expected = self.recipe.verify.is_some() && notified.message.is_empty();
        ensure!(is_shown == is_expected, "{is_shown}: {notified:?}");
        Ok(())
    }

    /// Switches to a version, and waits until its notification has such an outcome.
    pub(crate) async fn outcome_of(
        &mut self,
        version: &str,
        is_meant: impl Fn(Outcome) -> bool,
    ) -> Result<ContainerStatus> {
        let before = self.agent.client.status().await?.etag;
        self.switch(version)?;
        let what = format!("the outcome of {version} is known");
        let status = self.agent.status_when(&what, |status| {
            let notified = &status.containers[0].notified;
            notified.etag.as_ref().is_some_and(|etag| *etag != before) && is_meant(notified.outcome)
        });
        Ok(status.await?.containers.remove(0))
    }
}
