//! `kubectl nudge current`.

use super::arguments::Named;
use super::failure::Failure;
use super::session::Session;

pub(super) async fn run(session: &Session, command: &Named) -> Result<(), Failure> {
    let name = command.config.as_str();
    let config = session.config(name).await?;
    let current = config.status.and_then(|status| status.current);
    let none = || Failure::new(format!("config {name} has no current version yet; see kubectl nudge status {name}"));
    session.out.line(&current.ok_or_else(none)?)
}
