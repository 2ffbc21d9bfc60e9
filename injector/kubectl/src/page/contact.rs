//! Whether the API server still answers the user. Watches alone do not say so: one whose connection went silent sees
//! nothing wrong, and one that was permitted goes on for a while without the right, or with credentials that have
//! expired.

use std::time::Duration;

use nudge_api::VersionedConfig;
use tokio::time::{sleep, timeout};

use super::feed::{Feed, api};
use super::scope::{Scope, probe_list};
use crate::failure::Failure;
use crate::session::Session;

/// How often it is asked while somebody looks.
const PERIOD: Duration = Duration::from_secs(10);
/// How long the answer may take.
const LIMIT: Duration = Duration::from_secs(10);

/// Asks for as long as it is polled.
pub(super) async fn ask(feed: &Feed, session: &Session, scope: &Scope) {
    let Some(api) = api::<VersionedConfig>(session, scope) else { return };
    loop {
        sleep(PERIOD).await;
        if !feed.is_seen() {
            continue;
        }
        let what = "asking for configs";
        let fault = match timeout(LIMIT, probe_list(&api)).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(Failure::of(what, &error).message),
            Err(_) => Some(format!("{what}: the API server does not answer within {} s", LIMIT.as_secs())),
        };
        feed.note_contact(fault);
    }
}
