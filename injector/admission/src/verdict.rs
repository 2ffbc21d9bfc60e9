//! What a guard decides, and how the API server is told.

use json_patch::Patch;

/// Most warnings in one answer; the API server cuts what is more.
const MAX_WARNINGS: usize = 8;

/// What a guard decides about a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// The request passes.
    Allow {
        /// Sentences for whoever made the request.
        warnings: Vec<String>,
        /// A change of the object.
        patch: Option<Patch>,
    },
    /// The request is refused.
    Deny(Denial),
}

impl Verdict {
    /// The request passes as it is.
    pub fn allow() -> Self {
        Self::Allow { warnings: Vec::new(), patch: None }
    }

    /// The request passes with a change.
    pub fn patch(patch: Patch) -> Self {
        Self::Allow { warnings: Vec::new(), patch: Some(patch) }
    }

    /// The request passes with warnings.
    pub fn warn(mut warnings: Vec<String>) -> Self {
        warnings.truncate(MAX_WARNINGS);
        Self::Allow { warnings, patch: None }
    }

    /// Whether the request is refused.
    pub fn is_denied(&self) -> bool {
        matches!(self, Self::Deny(_))
    }
}

impl From<Result<(), Denial>> for Verdict {
    fn from(checked: Result<(), Denial>) -> Self {
        checked.map_or_else(Self::Deny, |()| Self::allow())
    }
}

/// A refusal: one sentence that names the object, the rule and the way out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// The sentence.
    pub message: String,
    /// What kind of refusal it is.
    pub reason: DenialReason,
}

impl Denial {
    /// The request is against a rule, whatever the object looks like.
    pub fn forbidden(message: impl Into<String>) -> Self {
        Self { message: message.into(), reason: DenialReason::Forbidden }
    }

    /// The object itself is wrong.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self { message: message.into(), reason: DenialReason::Invalid }
    }
}

/// The kinds of refusal, as the API server knows them.
///
/// A refused change of a version is `Forbidden` and not `Invalid` or `Conflict`: GitOps tools take these two as "delete it and
/// make it again".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DenialReason {
    /// 403: the rules don't allow it.
    Forbidden,
    /// 422: the object is wrong.
    Invalid,
}

impl DenialReason {
    /// The HTTP status.
    pub fn code(self) -> u16 {
        match self {
            Self::Forbidden => 403,
            Self::Invalid => 422,
        }
    }

    /// The reason of a `Status`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Forbidden => "Forbidden",
            Self::Invalid => "Invalid",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_bounded() {
        let Verdict::Allow { warnings, .. } = Verdict::warn(vec![String::new(); MAX_WARNINGS + 1]) else { panic!() };
        assert_eq!(warnings.len(), MAX_WARNINGS);
    }
}
