//! Sources in the namespace of a scenario, with the component that reads them.

use anyhow::{Context, Result};
use nudge_api::{ConfigSource, ConfigSourceStatus};

use crate::component::Component;
use crate::space::{LONG_WAIT_TIMEOUT, ScenarioNamespace};
use crate::suite::Suite;
use nudge_tests::eventually;

const SOURCES: Component = Component { folder: "sources", deployment: "nudge-sources" };

impl<'a> ScenarioNamespace<'a> {
    /// Returns a namespace that is enabled, also for sources that become Secrets.
    pub(crate) async fn sourced(suite: &'a Suite, purpose: &str) -> Result<Self> {
        suite.with(&SOURCES).await?;
        let home = Self::enabled(suite, purpose).await?;
        for part in ["secrets", "sources", "sources/secrets"] {
            home.kubectl(&["apply", "-k", &format!("deploy/namespace/{part}")])?;
        }
        Ok(home)
    }

    /// Waits until the status of a source is as expected, and returns it.
    async fn source_until(
        &self,
        name: &str,
        what: &str,
        is: impl Fn(&ConfigSourceStatus) -> bool,
    ) -> Result<ConfigSourceStatus> {
        let (sources, mut last) = (self.space.api::<ConfigSource>(), None);
        let result = eventually(LONG_WAIT_TIMEOUT, what, async || {
            last = sources.get(name).await.ok()?.status;
            last.clone().filter(&is)
        });
        let result = result.await;
        result.with_context(|| format!("the status of {name} was last {last:#?}"))
    }

    /// Waits until the source's newest content is current as another version than `before`, and returns that version.
    pub(crate) async fn newest_is_current(&self, source: &str, before: Option<&str>) -> Result<String> {
        let done = |status: &ConfigSourceStatus| {
            why(status).0 == "Activated" && status.version.is_some() && status.version.as_deref() != before
        };
        let status = self.source_until(source, &format!("{source} has requested its newest content"), done).await?;
        let version = status.version.context("no version")?;
        self.wait_until_current(source, &version).await?;
        Ok(version)
    }
}

/// Reason and message of the condition Ready.
fn why(status: &ConfigSourceStatus) -> (&str, &str) {
    let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready");
    ready.map(|ready| (&*ready.reason, &*ready.message)).unwrap_or_default()
}
