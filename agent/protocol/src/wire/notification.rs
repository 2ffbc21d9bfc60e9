//! The status of a subscriber's notification.

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use crate::named_enum;

/// The status of notifying a subscriber of the last change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NotificationStatus {
    /// The outcome so far.
    pub outcome: Outcome,
    /// The cause and its remedy, if there is a cause.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The `ETag` of the dictionary that the notification is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
    /// The number of attempts made for this change.
    pub attempts: u32,
    /// The time when the outcome was reached.
    #[serde(default, with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    pub at: Option<OffsetDateTime>,
    /// The IDs of the processes that got the signal.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<i32>,
}

named_enum! {
    /// The outcome of notifying a subscriber. A bounded set, as it is also a metric's label.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub enum Outcome {
        /// Nothing has changed since the subscription.
        #[default]
        NothingYet,
        /// The notification was not tried yet, or is tried again after a failure that may pass.
        Pending,
        /// The signal was sent to a process that catches it, or the webhook answered 2xx.
        Delivered,
        /// No key that the container reads has changed since it took a dictionary, so it was not notified.
        Unchanged,
        /// No process of the container catches the signal, which would have killed it.
        NoHandler,
        /// The container has no process.
        NoProcess,
        /// The operating system refused the signal.
        PermissionDenied,
        /// The webhook did not answer with 2xx within the retry limit, or the signal failed for another reason. Or the
        /// container says after the notification that it could not take the version.
        Failed,
        /// The container was notified, and has not shown in time that it took the version.
        NotVerified,
    }
}

impl Outcome {
    /// The outcomes that end an attempt, for a metric that shows all its series from the start.
    pub const FINAL: [Self; 6] =
        [Self::Delivered, Self::NoHandler, Self::NoProcess, Self::PermissionDenied, Self::Failed, Self::NotVerified];
}
