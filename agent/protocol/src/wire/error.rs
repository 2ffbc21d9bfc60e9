//! The body of every error reply.

use serde::{Deserialize, Serialize};

use crate::named_enum;

/// `{"error": "...", "message": "..."}`: a stable reason for programs and a message for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// The reason, in `PascalCase`. It stays the same between releases, such as `Unauthorized`.
    pub error: String,
    /// The fault and its remedy. The message never holds a value or a token.
    pub message: String,
}

named_enum! {
    /// The error codes of the hub's API: the values of [`ErrorBody::error`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum HubErrorCode {
        /// The body does not have the format of the path's requests.
        BadRequest,
        /// The token is not accepted, or its pod is gone.
        Unauthorized,
        /// The namespace is not enabled.
        NotEnabled,
        /// There is no such path.
        NoSuchPath,
        /// The path does not take this method.
        MethodNotAllowed,
        /// The body did not come in time.
        TooSlow,
        /// The body has more bytes than the path allows.
        TooLarge,
        /// The request may work later, or at another replica.
        Unavailable,
        /// The hub has a bug.
        Internal,
    }
}
