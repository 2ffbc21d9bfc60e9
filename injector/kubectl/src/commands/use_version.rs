//! `kubectl nudge use`: moves pods to a version.

use std::time::Duration;

use clap::Args;
use nudge_api::VersionedConfig;
use nudge_protocol::{ConfigName, VersionName};
use tokio::time::{Instant, sleep};

use crate::dry_run::Dry;
use crate::failure::Failure;
use crate::rollout::switch::{CONTROL_PLANE_LIMIT, switch};
use crate::rollout::wait::Wait;
use crate::session::Session;
use crate::version::stored::{objects, sealed};

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  kubectl nudge use game 1.0.1
  kubectl nudge use game 1.0.1 --wait --timeout=10m || echo 'not current'

A version that failed is tried again when you use it again.")]
pub(crate) struct Use {
    /// The config
    pub(crate) config: ConfigName,
    /// The version, which must be complete
    pub(crate) version: VersionName,
    #[command(flatten)]
    pub(crate) wait: Wait,
    #[command(flatten)]
    pub(crate) dry: Dry,
}

pub(crate) async fn run(session: &Session, command: &Use) -> Result<(), Failure> {
    let version = command.version.as_str();
    let config = complete(session, command.config.as_str(), version).await?;
    switch(session, &config, version, command.wait, command.dry.dry_run).await
}

/// The config, once the version is complete. A version without objects is refused at once.
async fn complete(session: &Session, name: &str, version: &str) -> Result<VersionedConfig, Failure> {
    let deadline = Instant::now() + CONTROL_PLANE_LIMIT;
    loop {
        let config = session.config(name).await?;
        let Err(refusal) = sealed(&config, version) else { return Ok(config) };
        let (found, _) = objects(session, name, Some(version)).await?;
        if found.is_empty() {
            return Err(refusal);
        }
        if Instant::now() >= deadline {
            let (count, namespace) = (found.len(), &session.namespace);
            return Err(Failure::new(format!(
                "version {version} of config {name} has {count} objects and is not complete; see kubectl nudge versions {name}, and \
                 check that namespace {namespace} is enabled and that Nudge runs"
            )));
        }
        sleep(Duration::from_millis(200)).await;
    }
}
