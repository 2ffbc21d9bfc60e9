//! The causes that interrupt following.

use std::time::Duration;

/// The reason why following was interrupted.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    /// The list failed.
    #[error("{what} can't be listed")]
    List {
        /// The kind of the objects, for messages.
        what: &'static str,
        /// The cause.
        #[source]
        source: kube::Error,
    },
    /// An object is larger than a page may be.
    #[error("{what} can't be listed: the answer for one object has more than {max_bytes} bytes")]
    TooLarge {
        /// The kind of the objects, for messages.
        what: &'static str,
        /// The maximum size of a page.
        max_bytes: u64,
    },
    /// The watch failed.
    #[error("{what} can't be watched")]
    Watch {
        /// The kind of the objects, for messages.
        what: &'static str,
        /// The cause.
        #[source]
        source: kube::Error,
    },
    /// A proxy, or a server that ends, cut the stream. It differs from the end of a watch only by the time.
    #[error("the watch of {what} ended after {} ms; it was to last {} ms", after.as_millis(), watch_duration.as_millis())]
    Cut {
        /// The kind of the objects, for messages.
        what: &'static str,
        /// The time that the watch has lasted.
        after: Duration,
        /// The time that it was to last.
        watch_duration: Duration,
    },
    /// The server has forgotten the changes since the last known one (compaction), so all objects are listed again.
    #[error("the API server has forgotten older changes of {what}")]
    Expired {
        /// The kind of the objects, for messages.
        what: &'static str,
    },
    /// Nothing came for longer than the server promised.
    #[error("the watch of {what} is dead: neither an event nor a bookmark nor its end came in time")]
    Silent {
        /// The kind of the objects, for messages.
        what: &'static str,
    },
}

impl FollowError {
    /// Returns whether Nudge has no right to the kind.
    pub fn is_forbidden(&self) -> bool {
        self.code() == Some(403)
    }

    /// Returns whether the cluster does not have the kind.
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(404)
    }

    /// Returns whether the credentials are refused, Nudge has no right, or the cluster does not have the kind.
    pub fn is_refusal(&self) -> bool {
        matches!(self.code(), Some(401 | 403 | 404))
    }

    /// Returns the HTTP status of the answer; `None` if no answer came.
    fn code(&self) -> Option<u16> {
        match self {
            Self::List { source: kube::Error::Api(status), .. }
            | Self::Watch { source: kube::Error::Api(status), .. } => Some(status.code),
            _ => None,
        }
    }
}
