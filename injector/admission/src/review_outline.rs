//! The few short texts that are read of a review whose objects are not parsed.

use std::borrow::Cow;

use kube::core::admission::{META_API_VERSION_V1, META_KIND, Operation};
use nudge_protocol::bounded_text::one_line;
use nudge_protocol::names::is_dns_label;
use nudge_server::slots::Peer;
use serde_json::json;

use super::review::{MAX_TEXT_BYTES, denial_status, measure};
use super::system_users::is_namespace_controller;
use super::tenants::Tenant;
use super::verdict::{Denial, DenialReason, UndecidedDeletions};

/// The maximum depth, the same as for the API server's parser. Each level takes a byte even if it is skipped.
const MAX_DEPTH: usize = 10_000;

/// The outline of a review. To read it takes at most twice the memory of the body.
#[derive(Debug)]
pub struct Outline {
    uid: String,
    /// The namespace; empty if the request has no namespace, or an invalid one.
    namespace: String,
    user: String,
    operation: OutlinedOperation,
}

#[derive(serde::Deserialize)]
struct Review<'a> {
    #[serde(borrow)]
    request: OutlineRequest<'a>,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct OutlineRequest<'a> {
    #[serde(borrow)]
    uid: Cow<'a, str>,
    #[serde(borrow)]
    namespace: Option<Cow<'a, str>>,
    operation: Operation,
    #[serde(borrow)]
    user_info: User<'a>,
}

/// The user without groups and extra fields; there may be millions of them.
#[derive(serde::Deserialize)]
struct User<'a> {
    #[serde(borrow)]
    username: Option<Cow<'a, str>>,
}

/// The operation of a request that is denied unseen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OutlinedOperation {
    /// The deletion of an object in a terminating namespace, which must pass.
    EmptyNamespace,
    Delete,
    Change,
}

impl Outline {
    /// Reads the outline of a review; `None` if the body is not a review.
    pub fn read(body: &[u8]) -> Option<Self> {
        if measure(body).depth > MAX_DEPTH {
            return None;
        }
        let Review { request } = serde_json::from_slice(body).ok()?;
        let user = request.user_info.username.as_deref().unwrap_or_default();
        (request.uid.len() <= MAX_TEXT_BYTES).then(|| Self {
            operation: match request.operation {
                _ if is_namespace_controller(user) => OutlinedOperation::EmptyNamespace,
                Operation::Delete => OutlinedOperation::Delete,
                _ => OutlinedOperation::Change,
            },
            user: one_line(user, MAX_TEXT_BYTES),
            namespace: request.namespace.as_deref().filter(|name| is_dns_label(name)).unwrap_or_default().to_owned(),
            uid: request.uid.into_owned(),
        })
    }

    /// Returns the tenant whose request it is.
    pub(super) fn tenant(&self, peer: Peer) -> Tenant {
        Tenant::new(peer, &self.namespace, &self.user)
    }

    /// Returns whether the request deletes something, but not together with its namespace.
    pub fn is_deletion(&self) -> bool {
        self.operation == OutlinedOperation::Delete
    }

    /// Returns the answer that denies the request because it is too large. A failure would let it pass if the failure
    /// policy is Ignore, and its author decides how large it is. `None` if the request must be able to pass: the
    /// emptying of a namespace, or a deletion that the webhook does not guard.
    pub fn deny_too_large(&self, deletions: UndecidedDeletions, message: &str) -> Option<Vec<u8>> {
        self.may_be_denied(deletions).then(|| self.deny(DenialReason::TooLarge, message))
    }

    /// Returns the answer that denies the request because its namespace or its user has too many requests at this
    /// moment. Clients of the API server retry on their own.
    pub fn deny_too_many(&self, deletions: UndecidedDeletions, message: &str) -> Option<Vec<u8>> {
        self.may_be_denied(deletions).then(|| self.deny(DenialReason::TooManyRequests, message))
    }

    /// Returns whether the request may be denied unseen.
    fn may_be_denied(&self, deletions: UndecidedDeletions) -> bool {
        match self.operation {
            OutlinedOperation::EmptyNamespace => false,
            OutlinedOperation::Delete => deletions == UndecidedDeletions::Deny,
            OutlinedOperation::Change => true,
        }
    }

    /// Returns the answer that denies the request because it could not be decided about. Clients of the API server try
    /// again by themselves.
    pub fn deny_undecided(&self, message: &str) -> Vec<u8> {
        self.deny(DenialReason::ServiceUnavailable, message)
    }

    /// Returns the answer that denies a creation or an update because of a text that can't be stored; `None` for other
    /// operations.
    pub fn deny_invalid(&self, message: &str) -> Option<Vec<u8>> {
        let is_change = self.operation == OutlinedOperation::Change;
        is_change.then(|| self.deny(DenialReason::Invalid, message))
    }

    fn deny(&self, reason: DenialReason, message: &str) -> Vec<u8> {
        let status = denial_status(Denial { message: message.to_owned(), reason });
        let response = json!({"uid": self.uid, "allowed": false, "status": status});
        json!({"apiVersion": META_API_VERSION_V1, "kind": META_KIND, "response": response}).to_string().into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn what_is_too_large_to_be_parsed_is_denied_and_deletions_fail_as_their_policy_says() {
        const EMPTIES: &str = "system:serviceaccount:kube-system:namespace-controller";
        let review = |operation: &str, user: &str, guard| {
            let many = vec![json!({}); 50_000];
            let request =
                json!({"object": {"many": many}, "uid": "u", "operation": operation, "userInfo": {"username": user}});
            Outline::read(&serde_json::to_vec(&json!({"request": request})).unwrap())
                .unwrap()
                .deny_too_large(guard, "too many")
        };
        let answer: Value =
            serde_json::from_slice(&review("CREATE", "eve", UndecidedDeletions::FailurePolicy).unwrap()).unwrap();
        assert_eq!((&answer["response"]["uid"], &answer["response"]["allowed"]), (&json!("u"), &json!(false)));
        assert_eq!(answer["response"]["status"]["message"], "too many");
        assert!(
            review("UPDATE", "eve", UndecidedDeletions::FailurePolicy).is_some()
                && review("DELETE", "eve", UndecidedDeletions::FailurePolicy).is_none()
        );
        assert!(review("DELETE", "eve", UndecidedDeletions::Deny).is_some());
        assert!(
            review("DELETE", EMPTIES, UndecidedDeletions::Deny).is_none()
                && review("UPDATE", EMPTIES, UndecidedDeletions::Deny).is_none()
        );
    }

    #[test]
    fn an_outline_says_whose_request_it_is() {
        let peer = std::net::IpAddr::from([10, 0, 0, 1]).into();
        let tenant = |namespace: Value, user: Value| {
            let request =
                json!({"uid": "u", "namespace": namespace, "operation": "CREATE", "userInfo": {"username": user}});
            Outline::read(&serde_json::to_vec(&json!({"request": request})).unwrap()).unwrap().tenant(peer)
        };
        assert_eq!(tenant(json!("team"), json!("eve")), Tenant::new(peer, "team", "eve"));
        assert_eq!(tenant(json!(null), json!(null)), Tenant::new(peer, "", ""));
        let long = "a".repeat(100_000);
        assert_eq!(tenant(json!(long), json!(long)), Tenant::new(peer, "", &long[..MAX_TEXT_BYTES]));
    }

    #[test]
    fn what_is_no_review_has_no_outline() {
        let with = |uid: &str, object: &str| {
            format!(r#"{{"request":{{"uid":"{uid}","operation":"CREATE","userInfo":{{}},"object":{object}}}}}"#)
        };
        let nested = |depth| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        for (body, read) in [
            (with("7", "{}"), true),
            (with("\\u0037", "{}"), true),
            (with(&"7".repeat(MAX_TEXT_BYTES + 1), "{}"), false),
            (with("7", &nested(MAX_DEPTH - 2)), true),
            (with("7", &nested(MAX_DEPTH)), false),
            ("[0,0,0".to_owned(), false),
        ] {
            assert_eq!(Outline::read(body.as_bytes()).is_some(), read, "{body}");
        }
    }
}
