//! `kubectl nudge diff`.

use super::arguments::Diff;
use super::changes::changes;
use super::failure::Failure;
use super::session::Session;
use super::stored::{contents, sealed};

pub(super) async fn run(session: &Session, command: &Diff) -> Result<(), Failure> {
    let config = session.config(command.config.as_str()).await?;
    let (old, new) = (sealed(&config, &command.old)?, sealed(&config, &command.new)?);
    let names = (old.version.as_str(), new.version.as_str());
    let text = changes(contents(session, old).await?, contents(session, new).await?, names);
    session.out.print(&text)
}
