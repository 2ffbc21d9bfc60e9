//! How the notification of a subscriber went.

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

/// The notification of a subscriber of the last change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Notified {
    /// The outcome so far.
    pub outcome: Outcome,
    /// The cause and what to do, if there is a cause.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// `ETag` of the dictionary that the notification is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
    /// Attempts made for this change.
    pub attempts: u32,
    /// When the outcome was reached.
    #[serde(default, with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    pub at: Option<OffsetDateTime>,
    /// The processes that got the signal.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<i32>,
}

impl Notified {
    /// Before the first change.
    pub fn nothing_yet() -> Self {
        Self {
            outcome: Outcome::NothingYet,
            message: String::new(),
            etag: None,
            attempts: 0,
            at: None,
            processes: Vec::new(),
        }
    }
}

/// The outcome of notifying a subscriber. A bounded set: it is also a metric's label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Outcome {
    /// Nothing has changed since the subscription.
    NothingYet,
    /// Not tried yet, or tried again after a failure that may pass.
    Pending,
    /// The signal was sent to a process that catches it, or the webhook answered 2xx.
    Delivered,
    /// No process of the container catches the signal, which would have killed it.
    NoHandler,
    /// The container has no process.
    NoProcess,
    /// The operating system refused the signal.
    PermissionDenied,
    /// The webhook did not answer with 2xx within the retry limit, or the signal failed for another reason.
    Failed,
}

impl Outcome {
    /// The outcomes that end an attempt, for a metric that shows all its series from the start.
    pub const FINAL: [Self; 5] =
        [Self::Delivered, Self::NoHandler, Self::NoProcess, Self::PermissionDenied, Self::Failed];

    /// The outcome as in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NothingYet => "NothingYet",
            Self::Pending => "Pending",
            Self::Delivered => "Delivered",
            Self::NoHandler => "NoHandler",
            Self::NoProcess => "NoProcess",
            Self::PermissionDenied => "PermissionDenied",
            Self::Failed => "Failed",
        }
    }
}
