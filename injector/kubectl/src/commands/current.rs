//! `kubectl nudge current`: prints the current version.

use clap::Args;
use nudge_protocol::ConfigName;

use crate::failure::Failure;
use crate::session::Session;
use crate::version::stored::no_current_version;

#[derive(Clone, Debug, Args)]
#[command(after_help = "Example:
  kubectl nudge current game")]
pub(crate) struct Current {
    /// The config
    pub(crate) config: ConfigName,
}

pub(crate) async fn run(session: &Session, command: &Current) -> Result<(), Failure> {
    let name = command.config.as_str();
    let config = session.config(name).await?;
    let current = config.status.and_then(|status| status.current_version);
    session.out.line(&current.ok_or_else(|| no_current_version(name))?)
}
