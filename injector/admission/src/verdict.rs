//! The verdict of a webhook: allowed, perhaps with a patch and warnings, or denied with a message.

use json_patch::{Patch, PatchOperation};
use nudge_protocol::bounded_text::one_line;

/// The maximum number of warnings in one answer. Together they have at most the 4096 characters that the API server
/// passes on whole. Beyond that it cuts each one at 256.
const MAX_WARNINGS: usize = 8;
/// The maximum length of a warning.
const MAX_WARNING_BYTES: usize = 512;

/// The verdict about a request.
#[derive(Clone, Debug, PartialEq)]
pub enum AdmissionVerdict {
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

impl AdmissionVerdict {
    /// Allows the request as it is.
    pub fn allow() -> Self {
        Self::Allow { warnings: Vec::new(), patch: None }
    }

    /// Allows the request with these changes of the object, if there are any. Because of an empty patch the API server
    /// would call webhooks again.
    pub fn patch(operations: Vec<PatchOperation>) -> Self {
        Self::Allow { warnings: Vec::new(), patch: (!operations.is_empty()).then_some(Patch(operations)) }
    }

    /// Allows the request with warnings.
    pub fn warn(warnings: impl IntoIterator<Item = String>) -> Self {
        Self::allow().with_warnings(warnings)
    }

    /// Adds warnings to the answer, if the request is allowed.
    #[must_use]
    pub fn with_warnings(mut self, added: impl IntoIterator<Item = String>) -> Self {
        if let Self::Allow { warnings, .. } = &mut self {
            warnings.extend(added.into_iter().take(MAX_WARNINGS).map(|warning| bound_warning(&warning)));
        }
        self
    }

    /// Returns whether the request is denied.
    pub fn is_denied(&self) -> bool {
        matches!(self, Self::Deny(_))
    }
}

/// Returns the warning as one line that is not too long. Names of users are in it.
fn bound_warning(warning: &str) -> String {
    const CUT: &str = "…";
    if warning.len() <= MAX_WARNING_BYTES {
        one_line(warning, MAX_WARNING_BYTES)
    } else {
        one_line(warning, MAX_WARNING_BYTES - CUT.len()) + CUT
    }
}

impl From<Result<(), Denial>> for AdmissionVerdict {
    fn from(checked: Result<(), Denial>) -> Self {
        checked.map_or_else(Self::Deny, |()| Self::allow())
    }
}

/// The treatment of a deletion that could not be decided about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UndecidedDeletions {
    /// The deletion is denied. An error would let it pass, because the failure policy of deletions is `Ignore`.
    Deny,
    /// The failure policy decides.
    FailurePolicy,
}

/// The reason why a request is denied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// The object, the rule and the remedy.
    pub message: String,
    /// The reason of the `Status`.
    pub reason: DenialReason,
}

impl Denial {
    /// Denies a request that the user may not make, or not now.
    pub fn forbidden(message: impl Into<String>) -> Self {
        Self { message: message.into(), reason: DenialReason::Forbidden }
    }

    /// Denies the request of a client that asks too often.
    pub fn too_many(message: impl Into<String>) -> Self {
        Self { message: message.into(), reason: DenialReason::TooManyRequests }
    }

    /// Denies a request that Nudge can't check at this moment.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self { message: message.into(), reason: DenialReason::ServiceUnavailable }
    }

    /// Denies an object that breaks a rule.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self { message: message.into(), reason: DenialReason::Invalid }
    }
}

/// The reasons of a `Status` that Nudge uses.
///
/// A denied change of a version is `Forbidden`, not `Invalid` or `Conflict`: for these two GitOps tools delete and
/// create the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DenialReason {
    /// 403: the request is not allowed.
    Forbidden,
    /// 422: the object breaks a rule.
    Invalid,
    /// 413: the object is too large.
    TooLarge,
    /// 429: too many requests of one client.
    TooManyRequests,
    /// 503: not at this moment.
    ServiceUnavailable,
}

impl DenialReason {
    /// Returns the HTTP status and the reason of a `Status`.
    pub fn status(self) -> (u16, &'static str) {
        match self {
            Self::Forbidden => (403, "Forbidden"),
            Self::Invalid => (422, "Invalid"),
            Self::TooLarge => (413, "RequestEntityTooLarge"),
            Self::TooManyRequests => (429, "TooManyRequests"),
            Self::ServiceUnavailable => (503, "ServiceUnavailable"),
        }
    }

    /// Returns the number of seconds until a retry makes sense.
    pub fn retry_after(self) -> Option<u32> {
        matches!(self, Self::TooManyRequests | Self::ServiceUnavailable).then_some(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_bounded() {
        let warned = |warnings: Vec<String>| match AdmissionVerdict::warn(warnings) {
            AdmissionVerdict::Allow { warnings, patch: None } => warnings,
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
