//! The body of every error reply.

use serde::{Deserialize, Serialize};

/// `{"error": "...", "message": "..."}`: a stable reason for programs and a message for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// The reason, in `PascalCase`. It stays the same between releases, such as `Unauthorized`.
    pub error: String,
    /// What is wrong, and what to do. Never holds a value or a token.
    pub message: String,
}
