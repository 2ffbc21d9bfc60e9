//! `kubectl nudge retry`: another attempt with the version that failed.

use clap::Args;
use nudge_protocol::ConfigName;

use crate::dry_run::Dry;
use crate::failure::Failure;
use crate::rollout::switch::switch;
use crate::rollout::wait::Wait;
use crate::session::Session;

#[derive(Clone, Debug, Args)]
#[command(after_help = "Example:
  kubectl nudge retry game --wait

A version that failed is not tried again by itself, whatever else changes. Fix the cause first: a new attempt begins with the first step.")]
pub(crate) struct Retry {
    /// The config
    pub(crate) config: ConfigName,
    #[command(flatten)]
    pub(crate) wait: Wait,
    #[command(flatten)]
    pub(crate) dry: Dry,
}

pub(crate) async fn run(session: &Session, command: &Retry) -> Result<(), Failure> {
    let name = command.config.as_str();
    let config = session.config(name).await?;
    let failure = config.status.as_ref().and_then(|status| status.rollout.failure.as_ref());
    let Some(version) =
        config.requested_version().filter(|version| failure.is_some_and(|failure| failure.version == *version))
    else {
        return Err(Failure::new(format!(
            "config {name}: the version that is asked for has not failed, so there is nothing to try again"
        )));
    };
    // The attempt goes in steps, even if the version failed in all pods at once.
    switch(session, &config, version, None, command.wait, command.dry.dry_run).await
}
