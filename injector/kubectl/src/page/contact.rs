//! Checks that the API server still answers the user. Watches alone do not show this: a watch does not notice that its
//! connection has gone silent, and it continues for a while after the user has lost the right or the credentials have
//! expired.

use std::time::Duration;

use nudge_api::VersionedConfig;
use tokio::time::{sleep, timeout};

use super::feed::{Feed, api};
use super::scope::{PageScope, probe_list};
use crate::failure::Failure;
use crate::session::Session;

/// The time between two requests while a window is open.
const PROBE_INTERVAL: Duration = Duration::from_secs(10);
/// The time that an answer may take.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

/// Probes the API server for as long as it is polled.
pub(super) async fn probe(feed: &Feed, session: &Session, scope: &PageScope) {
    let Some(api) = api::<VersionedConfig>(session, scope) else { return };
    loop {
        sleep(PROBE_INTERVAL).await;
        if !feed.has_windows() {
            continue;
        }
        let context = "requesting configs";
        let fault = match timeout(PROBE_TIMEOUT, probe_list(&api)).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(Failure::of(context, &error).message),
            Err(_) => Some(format!("{context}: the API server does not answer within {} s", PROBE_TIMEOUT.as_secs())),
        };
        feed.note_contact(fault);
    }
}
