//! Why following was interrupted.

use std::time::Duration;

/// Why following was interrupted.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    /// The list failed.
    #[error("{what} can't be listed")]
    List {
        /// The kind.
        what: &'static str,
        /// The cause.
        #[source]
        source: kube::Error,
    },
    /// An object is larger than a page may be.
    #[error("{what} can't be listed: the answer for one object has more than {most} bytes")]
    TooLarge {
        /// The kind.
        what: &'static str,
        /// The maximum of bytes of a page.
        most: u64,
    },
    /// The watch failed.
    #[error("{what} can't be watched")]
    Watch {
        /// The kind.
        what: &'static str,
        /// The cause.
        #[source]
        source: kube::Error,
    },
    /// The stream was cut, by a proxy or a server that ends. This looks like the end of a watch, but for the time.
    #[error("the watch of {what} ended after {} ms; it was to last {} ms", after.as_millis(), lasts.as_millis())]
    Cut {
        /// The kind.
        what: &'static str,
        /// How long it has lasted.
        after: Duration,
        /// How long it was to last.
        lasts: Duration,
    },
    /// The server has forgotten the changes since the last one known (compaction): all are listed again.
    #[error("the API server has forgotten older changes of {what}")]
    Expired {
        /// The kind.
        what: &'static str,
    },
    /// Nothing came for longer than the server promised to stay silent.
    #[error("the watch of {what} is dead: neither an event nor a bookmark nor its end came in time")]
    Silent {
        /// The kind.
        what: &'static str,
    },
}

impl FollowError {
    /// Nudge has no right to it.
    pub fn is_forbidden(&self) -> bool {
        self.code() == 403
    }

    /// The kind is not there.
    pub fn is_not_found(&self) -> bool {
        self.code() == 404
    }

    /// Nudge's role does not allow it, or the kind is not there.
    pub fn is_refusal(&self) -> bool {
        matches!(self.code(), 401 | 403 | 404)
    }

    /// The HTTP status of the answer, or 0 where there was none.
    fn code(&self) -> u16 {
        match self {
            Self::List { source: kube::Error::Api(status), .. }
            | Self::Watch { source: kube::Error::Api(status), .. } => status.code,
            _ => 0,
        }
    }
}
