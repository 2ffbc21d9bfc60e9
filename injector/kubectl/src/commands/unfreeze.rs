//! `kubectl nudge unfreeze`: ends the freeze of a config.

use clap::Args;
use nudge_protocol::ConfigName;
use serde_json::Value;

use crate::commands::freeze::set;
use crate::dry_run::Dry;
use crate::failure::Failure;
use crate::session::Session;

#[derive(Clone, Debug, Args)]
#[command(after_help = "Example:
  kubectl nudge unfreeze game

A freeze by a RolloutPolicy is not the config's own: an administrator of the cluster ends it.")]
pub(crate) struct Unfreeze {
    /// The config
    pub(crate) config: ConfigName,
    #[command(flatten)]
    pub(crate) dry: Dry,
}

pub(crate) async fn run(session: &Session, command: &Unfreeze) -> Result<(), Failure> {
    let (name, dry) = (command.config.as_str(), command.dry.dry_run);
    let config = session.config(name).await?;
    if config.spec.rollout.freeze.is_none() {
        return session.out.line(&format!("config {name} is not frozen by its spec"));
    }
    set(session, &config, Value::Null, dry).await?;
    session.out.line(&format!("config {name} unfrozen{}", dry.suffix()))
}
