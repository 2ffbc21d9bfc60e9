//! The body of every error reply.

use serde::{Deserialize, Serialize};

/// `{"error": "...", "message": "..."}`: a stable word for programs and a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// A word in `PascalCase` that stays the same between releases, such as `Unauthorized`.
    pub error: String,
    /// What is wrong and how to get out of it, in plain words. Never holds a value or a token.
    pub message: String,
}
