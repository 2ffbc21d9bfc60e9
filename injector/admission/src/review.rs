//! Reads an `AdmissionReview` and writes its answer.

use std::fmt;
use std::ops::{Deref, DerefMut};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use k8s_openapi::api::authentication::v1::UserInfo;
use kube::core::Status;
use kube::core::admission::{
    AdmissionRequest, AdmissionResponse, AdmissionReview, META_API_VERSION_V1, META_KIND, Operation,
    SerializePatchError,
};
use kube::core::dynamic::DynamicObject;
use kube::core::response::{StatusDetails, StatusSummary};
use serde_json::json;

use super::caller::Caller;
use super::requester::empties_namespace;
use super::verdict::Verdict;

/// An admission request and who has sent it. Its objects hold values, so its debug form has none of them.
pub struct Request {
    request: AdmissionRequest<DynamicObject>,
    /// Who has sent it.
    pub caller: Caller,
}

impl fmt::Debug for Request {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Request({} {} {})", self.uid, self.kind.kind, self.name)
    }
}

impl Deref for Request {
    type Target = AdmissionRequest<DynamicObject>;

    fn deref(&self) -> &Self::Target {
        &self.request
    }
}

impl DerefMut for Request {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.request
    }
}

impl Request {
    /// The user whose request the review says it is. Whether that is true shows only where the caller is authenticated.
    pub fn user(&self) -> &str {
        self.user_info.username.as_deref().unwrap_or_default()
    }

    /// The user for the log, where only the review says so.
    pub fn claimed_user(&self) -> Option<&str> {
        (!self.caller.authenticated).then(|| self.user())
    }

    /// The user for the log, where the API server has said so.
    pub fn proven_user(&self) -> Option<&str> {
        self.caller.authenticated.then(|| self.user())
    }
}

/// Why a body is not a review that can be answered. No message repeats the body, which may hold secrets.
#[derive(Debug, thiserror::Error)]
pub enum ReviewError {
    /// It is not JSON of that form.
    #[error("the body is not an AdmissionReview (line {line}, column {column})")]
    Json {
        /// The line of the fault.
        line: usize,
        /// The column of the fault.
        column: usize,
    },
    /// It is of another kind or version.
    #[error("the body must be an AdmissionReview of admission.k8s.io/v1")]
    Kind,
    /// It has no request.
    #[error("the AdmissionReview has no request")]
    NoRequest,
    /// The request lacks what its operation needs, or its object is not of the kind that the path is for.
    #[error("the AdmissionReview's request is not usable: {0}")]
    Request(&'static str),
}

/// Why an answer can't be written.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    /// The patch.
    #[error("the patch can't be written")]
    Patch(#[from] SerializePatchError),
    /// The answer.
    #[error("the answer can't be written")]
    Json(#[from] serde_json::Error),
}

/// Memory that an object of JSON takes however short its text is, and that of any other value, with the copies that webhooks make:
/// measured and rounded up (`tests/memory.rs`).
const OBJECT_BYTES: usize = 2048;
const VALUE_BYTES: usize = 384;
/// Memory that every review takes.
const REVIEW_BYTES: usize = 16 * 1024;

/// An upper bound of the memory that the review of a body takes. `[{"a":0},{"a":0}]` takes two hundred times its length.
pub fn weight(body: &[u8]) -> usize {
    let (mut weight, mut quoted, mut escaped) = (REVIEW_BYTES + body.len(), false, false);
    for byte in body {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'{' if !quoted => weight += OBJECT_BYTES,
            b'[' | b',' if !quoted => weight += VALUE_BYTES,
            _ => {}
        }
    }
    weight
}

/// What is read of a review that takes too much memory. What is skipped takes none.
#[derive(serde::Deserialize)]
struct Outline {
    request: OutlinedRequest,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct OutlinedRequest {
    uid: String,
    operation: Operation,
    user_info: UserInfo,
}

/// The answer that denies a review without parsing its objects: a failure would let the request pass where the failure policy is Ignore,
/// and its author decides how large it is. `None` for what must be able to go, and for what is no review.
pub fn deny_unparsed(body: &[u8], message: &str) -> Option<Vec<u8>> {
    let Outline { request } = serde_json::from_slice(body).ok()?;
    if matches!(request.operation, Operation::Delete) || empties_namespace(&request.user_info) {
        return None;
    }
    let status = json!({"status": "Failure", "code": 413, "reason": "RequestEntityTooLarge", "message": message});
    let response = json!({"uid": request.uid, "allowed": false, "status": status});
    serde_json::to_vec(&json!({"apiVersion": META_API_VERSION_V1, "kind": META_KIND, "response": response})).ok()
}

/// A span that names the request. It has no content of the object.
pub fn span(request: &Request) -> tracing::Span {
    tracing::error_span!(
        "review",
        namespace = request.namespace.as_deref(),
        kind = request.kind.kind,
        name = request.name,
        operation = ?request.operation,
        uid = request.uid
    )
}

/// Parses a review.
pub fn parse(body: &[u8], caller: Caller) -> Result<Request, ReviewError> {
    let review: AdmissionReview<DynamicObject> = serde_json::from_slice(body)
        .map_err(|error| ReviewError::Json { line: error.line(), column: error.column() })?;
    if review.types.kind != META_KIND || review.types.api_version != META_API_VERSION_V1 {
        return Err(ReviewError::Kind);
    }
    let request = review.try_into().map_err(|_| ReviewError::NoRequest)?;
    Ok(Request { request, caller })
}

/// Writes the answer to `request`.
pub fn answer(request: &Request, verdict: Verdict) -> Result<Vec<u8>, AnswerError> {
    let mut response = AdmissionResponse::from(&request.request);
    match verdict {
        Verdict::Allow { warnings, patch } => {
            if !warnings.is_empty() {
                response.warnings = Some(warnings);
            }
            if let Some(patch) = patch {
                response = response.with_patch(patch)?;
            }
        }
        Verdict::Deny(denial) => {
            response.allowed = false;
            response.result = Status {
                status: Some(StatusSummary::Failure),
                code: denial.reason.code(),
                reason: denial.reason.as_str().to_owned(),
                message: denial.message,
                // Clients of the API server wait so long, and try again by themselves.
                details: denial.reason.retry_after().map(|retry_after_seconds| StatusDetails {
                    name: String::new(),
                    group: String::new(),
                    kind: String::new(),
                    uid: String::new(),
                    causes: Vec::new(),
                    retry_after_seconds,
                }),
                ..Status::default()
            };
        }
    }
    let patch = response.patch.take().map(|patch| BASE64_STANDARD.encode(patch));
    let mut review = serde_json::to_value(response.into_review())?;
    if let Some(patch) = patch {
        // kube would write a list of numbers, three times as long.
        review["response"]["patch"] = patch.into();
    }
    Ok(serde_json::to_vec(&review)?)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::fixtures::caller;
    use crate::verdict::Denial;

    fn review() -> Value {
        json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "7", "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
                "resource": {"group": "", "version": "v1", "resource": "configmaps"}, "name": "a", "namespace": "n",
                "operation": "DELETE", "userInfo": {"username": "u"}, "oldObject": {"metadata": {"name": "a"}},
                "a field from the future": 1
            }
        })
    }

    #[test]
    fn what_is_too_large_to_be_parsed_is_denied_and_deletions_fail_as_their_policy_says() {
        let review = |operation: &str, user: &str| {
            let many = vec![json!({}); 50_000];
            let request =
                json!({"object": {"many": many}, "uid": "u", "operation": operation, "userInfo": {"username": user}});
            deny_unparsed(&serde_json::to_vec(&json!({"request": request})).unwrap(), "too many")
        };
        let answer: serde_json::Value = serde_json::from_slice(&review("CREATE", "eve").unwrap()).unwrap();
        assert_eq!((&answer["response"]["uid"], &answer["response"]["allowed"]), (&json!("u"), &json!(false)));
        assert_eq!(answer["response"]["status"]["message"], "too many");
        assert!(review("UPDATE", "eve").is_some() && review("DELETE", "eve").is_none());
        assert!(review("UPDATE", "system:serviceaccount:kube-system:namespace-controller").is_none());
        assert!(deny_unparsed(b"[0,0,0", "too many").is_none());
    }

    #[test]
    fn a_patch_is_base64_as_the_api_server_has_it() {
        let patch: json_patch::Patch = serde_json::from_value(json!([{"op": "remove", "path": "/a"}])).unwrap();
        let answer = answer(&parsed(&review()).unwrap(), Verdict::patch(patch)).unwrap();
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        let patch = BASE64_STANDARD.decode(answer["response"]["patch"].as_str().unwrap()).unwrap();
        assert_eq!(patch, br#"[{"op":"remove","path":"/a"}]"#);
        assert_eq!(answer["response"]["patchType"], "JSONPatch");
    }

    fn parsed(review: &Value) -> Result<Request, ReviewError> {
        parse(review.to_string().as_bytes(), caller())
    }

    #[test]
    fn a_refusal_carries_the_message_and_the_uid() {
        let denial = Denial::forbidden("no.");
        let answer = answer(&parsed(&review()).unwrap(), Verdict::Deny(denial)).unwrap();
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        assert_eq!(answer["response"]["uid"], "7");
        assert_eq!(answer["response"]["allowed"], false);
        assert_eq!(answer["response"]["status"]["message"], "no.");
        assert_eq!(answer["response"]["status"]["code"], 403);
        assert_eq!(answer["apiVersion"], "admission.k8s.io/v1");
    }

    #[test]
    fn what_is_no_review_is_refused_without_repeating_it() {
        let mut other = review();
        other["apiVersion"] = json!("admission.k8s.io/v1beta1");
        assert!(matches!(parsed(&other), Err(ReviewError::Kind)));
        let mut empty = review();
        empty.as_object_mut().unwrap().remove("request");
        assert!(matches!(parsed(&empty), Err(ReviewError::NoRequest)));
        let mut odd = review();
        odd["request"]["operation"] = json!("hunter2");
        let refusal = parsed(&odd).unwrap_err();
        assert!(!refusal.to_string().contains("hunter2"), "{refusal}");
        assert!(parse(b"", caller()).is_err());
    }

    #[test]
    fn a_body_weighs_what_its_values_cost_and_text_its_length() {
        assert_eq!(weight(br#"{"a":[0,1]}"#), REVIEW_BYTES + 11 + OBJECT_BYTES + 2 * VALUE_BYTES);
        assert_eq!(weight(br#""{[,\"{\\""#), REVIEW_BYTES + 10);
        assert_eq!(weight(br#""\\"{"#), REVIEW_BYTES + 5 + OBJECT_BYTES);
        let nested = "{\"a\":0},".repeat(1000);
        assert!(weight(nested.as_bytes()) > 1_000_000);
    }
}
