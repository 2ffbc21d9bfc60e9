//! `kubectl nudge resume`: resumes the rollouts of a config.

use clap::Args;
use nudge_protocol::ConfigName;

use crate::commands::pause::set_paused;
use crate::dry_run::Dry;
use crate::failure::Failure;
use crate::session::Session;

#[derive(Clone, Debug, Args)]
#[command(after_help = "Example:
  kubectl nudge resume game")]
pub(crate) struct Resume {
    /// The config
    pub(crate) config: ConfigName,
    #[command(flatten)]
    pub(crate) dry: Dry,
}

pub(crate) async fn run(session: &Session, command: &Resume) -> Result<(), Failure> {
    set_paused(session, command.config.as_str(), false, command.dry.dry_run).await
}
