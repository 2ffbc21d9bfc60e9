//! `kubectl nudge diff`: compares two versions.

use clap::Args;
use nudge_protocol::ConfigName;

use crate::failure::Failure;
use crate::output::changes::{changes, heads};
use crate::session::Session;
use crate::version::stored::{contents, sealed};

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  kubectl nudge diff game 1.0.0 1.0.1
  kubectl nudge diff game current 1.0.1

The first two lines have the digests of both versions; kubectl nudge approve --digest approves this content and no other. For keys in \
Secrets, diff shows whether they were added, removed or changed. It never shows a value.")]
pub(crate) struct Diff {
    /// The config
    pub(crate) config: ConfigName,
    /// The older version, or `current`
    #[arg(value_name = "VERSION1")]
    pub(crate) old: String,
    /// The newer version, or `current`
    #[arg(value_name = "VERSION2")]
    pub(crate) new: String,
}

pub(crate) async fn run(session: &Session, command: &Diff) -> Result<(), Failure> {
    let config = session.config(command.config.as_str()).await?;
    let (old, new) = (sealed(&config, &command.old)?, sealed(&config, &command.new)?);
    let names = (old.version.as_str(), new.version.as_str());
    let text = changes(contents(session, old).await?, contents(session, new).await?, names);
    session.out.print(&(heads(old, new) + &text))
}
