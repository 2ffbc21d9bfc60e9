//! What is read of a review whose objects are not parsed: a few short texts. All else is skipped.

use std::borrow::Cow;

use kube::core::admission::{META_API_VERSION_V1, META_KIND, Operation};
use nudge_protocol::bounded_text::one_line;
use nudge_protocol::names::is_dns_label;
use nudge_server::slots::Peer;
use serde_json::{Value, json};

use super::review::{TEXT_BYTES, measures};
use super::system_users::is_namespace_controller;
use super::tenants::Tenant;

/// As deep as the API server parses. Each level takes a byte even where it is skipped.
const DEPTH: usize = 10_000;

/// The outline of a review. To read it takes at most twice the memory of the body.
#[derive(Debug)]
pub struct Outline {
    uid: String,
    /// Empty where it has none, or what can't be one.
    namespace: String,
    user: String,
    deletes: bool,
    empties: bool,
}

#[derive(serde::Deserialize)]
struct Review<'a> {
    #[serde(borrow)]
    request: Request<'a>,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    #[serde(borrow)]
    uid: Cow<'a, str>,
    #[serde(borrow)]
    namespace: Option<Cow<'a, str>>,
    operation: Operation,
    #[serde(borrow)]
    user_info: User<'a>,
}

/// No groups and nothing extra: they may be millions.
#[derive(serde::Deserialize)]
struct User<'a> {
    #[serde(borrow)]
    username: Option<Cow<'a, str>>,
}

impl Outline {
    /// Reads it. `None` for what is no review.
    pub fn read(body: &[u8]) -> Option<Self> {
        if measures(body).1 > DEPTH {
            return None;
        }
        let Review { request } = serde_json::from_slice(body).ok()?;
        let user = request.user_info.username.as_deref().unwrap_or_default();
        (request.uid.len() <= TEXT_BYTES).then(|| Self {
            deletes: matches!(request.operation, Operation::Delete),
            empties: is_namespace_controller(user),
            user: one_line(user, TEXT_BYTES),
            namespace: request.namespace.as_deref().filter(|name| is_dns_label(name)).unwrap_or_default().to_owned(),
            uid: request.uid.into_owned(),
        })
    }

    /// The tenant whose request it is.
    pub(super) fn tenant(&self, peer: Peer) -> Tenant {
        Tenant::new(peer, &self.namespace, &self.user)
    }

    /// Returns whether the request deletes something, but not what is emptied with its namespace.
    pub fn deletes(&self) -> bool {
        self.deletes && !self.empties
    }

    /// The answer that denies the request because it is too large: a failure would let it pass where the failure policy is Ignore, and its
    /// author decides how large it is. `None` for what must be able to go: what is emptied with its namespace, and deletions but where
    /// `deletions` are denied too.
    pub fn too_large(&self, deletions: bool, message: &str) -> Option<Vec<u8>> {
        let status = json!({"status": "Failure", "code": 413, "reason": "RequestEntityTooLarge", "message": message});
        self.may_be_denied(deletions).then(|| self.denied(&status))
    }

    /// The answer that denies the request because its namespace or its user has too many requests at this moment. Clients of
    /// the API server try again by themselves.
    pub fn too_many(&self, deletions: bool, message: &str) -> Option<Vec<u8>> {
        let details = json!({"retryAfterSeconds": 1});
        let status = json!({"status": "Failure", "code": 429, "reason": "TooManyRequests", "message": message, "details": details});
        self.may_be_denied(deletions).then(|| self.denied(&status))
    }

    /// Returns whether the request may be denied unseen.
    fn may_be_denied(&self, deletions: bool) -> bool {
        !self.empties && (deletions || !self.deletes)
    }

    /// The answer that denies the request because it could not be decided about. Clients of the API server try again by themselves.
    pub fn undecided(&self, message: &str) -> Vec<u8> {
        let details = json!({"retryAfterSeconds": 1});
        self.denied(
            &json!({"status": "Failure", "code": 503, "reason": "ServiceUnavailable", "message": message, "details": details}),
        )
    }

    /// The answer that denies a creation or an update because of what can't be; `None` for others.
    pub fn invalid(&self, message: &str) -> Option<Vec<u8>> {
        let status = json!({"status": "Failure", "code": 422, "reason": "Invalid", "message": message});
        (!self.deletes && !self.empties).then(|| self.denied(&status))
    }

    fn denied(&self, status: &Value) -> Vec<u8> {
        let response = json!({"uid": self.uid, "allowed": false, "status": status});
        json!({"apiVersion": META_API_VERSION_V1, "kind": META_KIND, "response": response}).to_string().into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_large_to_be_parsed_is_denied_and_deletions_fail_as_their_policy_says() {
        const EMPTIES: &str = "system:serviceaccount:kube-system:namespace-controller";
        let review = |operation: &str, user: &str, deletions| {
            let many = vec![json!({}); 50_000];
            let request =
                json!({"object": {"many": many}, "uid": "u", "operation": operation, "userInfo": {"username": user}});
            Outline::read(&serde_json::to_vec(&json!({"request": request})).unwrap())
                .unwrap()
                .too_large(deletions, "too many")
        };
        let answer: Value = serde_json::from_slice(&review("CREATE", "eve", false).unwrap()).unwrap();
        assert_eq!((&answer["response"]["uid"], &answer["response"]["allowed"]), (&json!("u"), &json!(false)));
        assert_eq!(answer["response"]["status"]["message"], "too many");
        assert!(review("UPDATE", "eve", false).is_some() && review("DELETE", "eve", false).is_none());
        assert!(review("DELETE", "eve", true).is_some());
        assert!(review("DELETE", EMPTIES, true).is_none() && review("UPDATE", EMPTIES, true).is_none());
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
        assert_eq!(tenant(json!(long), json!(long)), Tenant::new(peer, "", &long[..TEXT_BYTES]));
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
            (with(&"7".repeat(TEXT_BYTES + 1), "{}"), false),
            (with("7", &nested(DEPTH - 2)), true),
            (with("7", &nested(DEPTH)), false),
            ("[0,0,0".to_owned(), false),
        ] {
            assert_eq!(Outline::read(body.as_bytes()).is_some(), read, "{body}");
        }
    }
}
