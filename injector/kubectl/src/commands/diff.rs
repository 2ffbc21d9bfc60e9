//! `kubectl nudge diff`: compares two versions.

use clap::Args;
use nudge_api::VersionStatus;
use nudge_protocol::ConfigName;
use nudge_protocol::names::CURRENT;

use crate::failure::Failure;
use crate::output::changes::{changes, heads};
use crate::session::Session;
use crate::version::stored::{ContentsByKind, contents, diff_side};

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  kubectl nudge diff game 1.0.0 1.0.1
  kubectl nudge diff game current 1.0.1

The first two lines have the digests of both versions; kubectl nudge approve --digest approves this content and no other. Where a config \
has no current version yet, `current` stands for no keys at all: the first version is shown whole. For keys in Secrets, diff shows \
whether they were added, removed or changed. It never shows a value.")]
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
    let (old, new) = (diff_side(&config, &command.old)?, diff_side(&config, &command.new)?);
    let name = |side: Option<&VersionStatus>| side.map_or(CURRENT, |version| &version.version).to_owned();
    let text = changes(content(session, old).await?, content(session, new).await?, (&name(old), &name(new)));
    session.out.print(&(heads(old, new) + &text))
}

/// Returns the content of one side.
async fn content(session: &Session, side: Option<&VersionStatus>) -> Result<ContentsByKind, Failure> {
    match side {
        Some(version) => contents(session, version).await,
        None => Ok(ContentsByKind::new()),
    }
}
