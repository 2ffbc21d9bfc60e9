//! The verdict of a webhook: allowed, perhaps with a patch and warnings, or denied with a message.

use json_patch::Patch;
use nudge_protocol::bounded_text::one_line;

/// Most warnings in one answer, and the longest of them in bytes: together no more than the API server passes on whole, which is 4096
/// characters. Beyond that it cuts each at 256.
const MAX_WARNINGS: usize = 8;
const MAX_WARNING_BYTES: usize = 512;

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

    /// Allowed with warnings, perhaps with a patch.
    pub fn warn(warnings: impl IntoIterator<Item = String>, patch: Option<Patch>) -> Self {
        Self::Allow {
            warnings: warnings.into_iter().take(MAX_WARNINGS).map(|warning| bounded(&warning)).collect(),
            patch,
        }
    }

    /// Returns whether the request is denied.
    pub fn is_denied(&self) -> bool {
        matches!(self, Self::Deny(_))
    }
}

/// The warning as one line that is not too long. Names of users are in it.
fn bounded(warning: &str) -> String {
    const CUT: &str = "…";
    if warning.len() <= MAX_WARNING_BYTES {
        one_line(warning, MAX_WARNING_BYTES)
    } else {
        one_line(warning, MAX_WARNING_BYTES - CUT.len()) + CUT
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

    /// Nudge can't find out at this moment whether the user may do this.
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
        let warned = |warnings: Vec<String>| match Verdict::warn(warnings, None) {
            Verdict::Allow { warnings, patch: None } => warnings,
            other => panic!("{other:?}"),
        };
        let cut = warned(vec!["é".repeat(5000); MAX_WARNINGS + 1]);
        assert_eq!(cut.len(), MAX_WARNINGS);
        assert!(cut.iter().all(|warning| warning.ends_with("é…")), "{cut:?}");
        assert!(cut.iter().map(String::len).sum::<usize>() <= 4096, "the API server cuts more");
        let whole = "x".repeat(MAX_WARNING_BYTES);
        assert_eq!(warned(vec![whole.clone(), "a\nb".to_owned()]), [whole, "a b".to_owned()]);
    }
}
