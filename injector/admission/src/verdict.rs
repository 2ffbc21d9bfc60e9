//! The verdict of a webhook: allowed, perhaps with a patch and warnings, or denied with a message.

use json_patch::Patch;

/// Most warnings in one answer; the API server cuts what is more.
const MAX_WARNINGS: usize = 8;

/// The verdict about a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// The request is allowed.
    Allow {
        /// Warnings for the user who made the request.
        warnings: Vec<String>,
        /// A patch of the object.
        patch: Option<Patch>,
    },
    /// The request is denied.
    Deny(Denial),
}

impl Verdict {
    /// Allowed as it is.
    pub fn allow() -> Self {
        Self::Allow { warnings: Vec::new(), patch: None }
    }

    /// Allowed with a patch.
    pub fn patch(patch: Patch) -> Self {
        Self::Allow { warnings: Vec::new(), patch: Some(patch) }
    }

    /// Allowed with warnings.
    pub fn warn(mut warnings: Vec<String>) -> Self {
        warnings.truncate(MAX_WARNINGS);
        Self::Allow { warnings, patch: None }
    }

    /// Whether the request is denied.
    pub fn is_denied(&self) -> bool {
        matches!(self, Self::Deny(_))
    }
}

impl From<Result<(), Denial>> for Verdict {
    fn from(checked: Result<(), Denial>) -> Self {
        checked.map_or_else(Self::Deny, |()| Self::allow())
    }
}

/// Why a request is denied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// Names the object, the rule and the way out.
    pub message: String,
    /// The reason of the `Status`.
    pub reason: DenialReason,
}

impl Denial {
    /// The user may not do this, or not now.
    pub fn forbidden(message: impl Into<String>) -> Self {
        Self { message: message.into(), reason: DenialReason::Forbidden }
    }

    /// The client asks too often.
    pub fn too_many(message: impl Into<String>) -> Self {
        Self { message: message.into(), reason: DenialReason::TooManyRequests }
    }

    /// It can't be found out at this moment whether the user may do this.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self { message: message.into(), reason: DenialReason::ServiceUnavailable }
    }

    /// The object breaks a rule.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self { message: message.into(), reason: DenialReason::Invalid }
    }
}

/// The reasons of a `Status` that Nudge uses.
///
/// A denied change of a version is `Forbidden`, not `Invalid` or `Conflict`: for these two GitOps tools delete and create the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DenialReason {
    /// 403: the request is not allowed.
    Forbidden,
    /// 422: the object breaks a rule.
    Invalid,
    /// 429: too many requests of one client.
    TooManyRequests,
    /// 503: not at this moment.
    ServiceUnavailable,
}

impl DenialReason {
    /// The HTTP status.
    pub fn code(self) -> u16 {
        match self {
            Self::Forbidden => 403,
            Self::Invalid => 422,
            Self::TooManyRequests => 429,
            Self::ServiceUnavailable => 503,
        }
    }

    /// The reason of a `Status`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Forbidden => "Forbidden",
            Self::Invalid => "Invalid",
            Self::TooManyRequests => "TooManyRequests",
            Self::ServiceUnavailable => "ServiceUnavailable",
        }
    }

    /// After how many seconds it makes sense to try again.
    pub fn retry_after(self) -> Option<u32> {
        matches!(self, Self::TooManyRequests | Self::ServiceUnavailable).then_some(1)
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
