//! Reads an `AdmissionReview` and writes its answer.

use std::borrow::Cow;
use std::fmt;
use std::ops::{Deref, DerefMut};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use k8s_openapi::api::authentication::v1::UserInfo;
use kube::Resource;
use kube::core::admission::{
    AdmissionRequest, AdmissionResponse, AdmissionReview, META_API_VERSION_V1, META_KIND, SerializePatchError,
};
use kube::core::dynamic::DynamicObject;
use kube::core::response::{StatusDetails, StatusSummary};
use kube::core::{ObjectMeta, Status};
use nudge_protocol::bounded_text::one_line;
use nudge_protocol::labels;
use nudge_protocol::names::{is_dns_label, is_label_value, is_object_name};
use serde::de::DeserializeOwned;

use super::caller::Caller;
use super::tenants::Tenant;
use super::verdict::{AdmissionVerdict, Denial};

/// The memory that an object of JSON takes however short its text is, with the copies that webhooks make: measured and
/// rounded up (`tests/memory.rs`).
const OBJECT_BYTES: usize = 2048;
/// The memory that any other value of JSON takes, measured in the same way.
const VALUE_BYTES: usize = 384;
/// The maximum length of a text of a review that is written to the log or repeated, but for messages.
pub(super) const MAX_TEXT_BYTES: usize = 253;
/// The maximum length of a user with all groups: hundreds of them fit.
const MAX_USER_BYTES: usize = 64 * 1024;
/// The memory that every review takes.
const REVIEW_BYTES: usize = 16 * 1024;

/// An admission request with its sender. Its objects hold values, so its debug form shows no objects.
pub struct ReviewRequest {
    inner: AdmissionRequest<DynamicObject>,
    user: String,
    /// The client that has sent the request.
    pub caller: Caller,
}

impl fmt::Debug for ReviewRequest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Request({} {} {})", self.uid, self.kind.kind, self.name)
    }
}

impl Deref for ReviewRequest {
    type Target = AdmissionRequest<DynamicObject>;

    fn deref(&self) -> &Self::Target {
        &self.inner
    }
}

impl DerefMut for ReviewRequest {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.inner
    }
}

impl ReviewRequest {
    /// Returns the user whose request the review says it is, in one line of bounded length. It is certain only if
    /// the caller is authenticated.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Checks that the request's object is of the kind `K`.
    pub(super) fn check_kind<K: Resource<DynamicType = ()>>(&self) -> Result<(), ReviewError> {
        let is_of_kind = self.kind.group == K::group(&()) && self.kind.kind == K::kind(&());
        if is_of_kind { Ok(()) } else { Err(ReviewError::OtherKind(K::kind(&()))) }
    }

    /// Returns the object that the request would store.
    pub(super) fn required_object(&self) -> Result<&DynamicObject, ReviewError> {
        self.object.as_ref().ok_or(ReviewError::NO_OBJECT)
    }

    /// Returns the object that is stored.
    pub(super) fn required_old_object(&self) -> Result<&DynamicObject, ReviewError> {
        self.old_object.as_ref().ok_or(ReviewError::NO_OBJECT)
    }

    /// Returns the name of the object, which is empty if the API server has yet to generate it.
    pub(super) fn object_name(&self) -> &str {
        let object = self.object.as_ref().or(self.old_object.as_ref());
        let name = object.and_then(|object| object.metadata.name.as_deref()).filter(|name| !name.is_empty());
        name.unwrap_or(&self.name)
    }

    /// Returns the namespace, which a request about a namespaced object has.
    pub(super) fn required_namespace(&self) -> Result<&str, ReviewError> {
        self.namespace.as_deref().filter(|name| !name.is_empty()).ok_or(ReviewError::Request("it has no namespace"))
    }

    /// Returns the tenant whose request it is.
    pub(super) fn tenant(&self) -> Tenant {
        Tenant::new(self.caller.peer(), self.namespace.as_deref().unwrap_or_default(), self.user())
    }

    /// Returns the user for the log, if only the review says so.
    pub fn claimed_user(&self) -> Option<&str> {
        (!self.caller.authenticated).then(|| self.user())
    }

    /// Returns the user for the log, if the API server has said so.
    pub fn proven_user(&self) -> Option<&str> {
        self.caller.authenticated.then(|| self.user())
    }
}

/// The reason why a body is not a review that can be answered. No message repeats the body, which may hold secrets.
#[derive(Debug, thiserror::Error)]
pub enum ReviewError {
    /// The body is not JSON of that form.
    #[error("the body is not an AdmissionReview (line {line}, column {column})")]
    Json {
        /// The line of the fault.
        line: usize,
        /// The column of the fault.
        column: usize,
    },
    /// The body is of another kind or version.
    #[error("the body must be an AdmissionReview of admission.k8s.io/v1")]
    Kind,
    /// The review has no request.
    #[error("the AdmissionReview has no request")]
    NoRequest,
    /// The request's object is of another kind than its path says.
    #[error("the AdmissionReview's request is not usable: it is not about a {0}")]
    OtherKind(Cow<'static, str>),
    /// The object has a field that its kind can't have.
    #[error("the AdmissionReview's request is not usable: its object is not a {0}")]
    Unparsable(Cow<'static, str>),
    /// The request lacks a field that its operation needs, or has one that no request can have.
    #[error("the AdmissionReview's request is not usable: {0}")]
    Request(&'static str),
}

impl ReviewError {
    const NO_OBJECT: Self = Self::Request("it lacks the object that its operation needs");
}

/// Parses an object of a review.
pub(super) fn parse_object<K: Resource<DynamicType = ()> + DeserializeOwned>(
    object: &DynamicObject,
) -> Result<K, ReviewError> {
    object.clone().try_parse().map_err(|_| ReviewError::Unparsable(K::kind(&())))
}

/// The reason why an answer can't be written.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    /// The patch is not JSON.
    #[error("the patch can't be written")]
    Patch(#[from] SerializePatchError),
    /// The answer is not JSON.
    #[error("the answer can't be written")]
    Json(#[from] serde_json::Error),
}

/// Returns an upper bound of the memory that the review of a body takes. `[{"a":0},{"a":0}]` takes two hundred times
/// its length.
pub fn weight(body: &[u8]) -> usize {
    measure(body).weight
}

/// The size of a body, as its text shows it.
pub(super) struct BodyMeasure {
    /// An upper bound of the memory that the review takes.
    pub(super) weight: usize,
    /// The depth of nested values.
    pub(super) depth: usize,
}

/// Measures a body without parsing it.
pub(super) fn measure(body: &[u8]) -> BodyMeasure {
    let (mut weight, mut depth, mut max_depth) = (REVIEW_BYTES + body.len(), 0_usize, 0);
    let (mut quoted, mut escaped) = (false, false);
    for byte in body {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b'{' | b'[' => {
                weight += if *byte == b'{' { OBJECT_BYTES } else { VALUE_BYTES };
                depth += 1;
                max_depth = max_depth.max(depth);
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b',' => weight += VALUE_BYTES,
            _ => {}
        }
    }
    BodyMeasure { weight, depth: max_depth }
}

/// Returns a span that names the request, without any content of the object.
pub fn span(request: &ReviewRequest) -> tracing::Span {
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
pub fn parse(body: &[u8], caller: Caller) -> Result<ReviewRequest, ReviewError> {
    let review: AdmissionReview<DynamicObject> = serde_json::from_slice(body)
        .map_err(|error| ReviewError::Json { line: error.line(), column: error.column() })?;
    if review.types.kind != META_KIND || review.types.api_version != META_API_VERSION_V1 {
        return Err(ReviewError::Kind);
    }
    let request: AdmissionRequest<_> = review.try_into().map_err(|_| ReviewError::NoRequest)?;
    check_texts(&request)?;
    let user = one_line(request.user_info.username.as_deref().unwrap_or_default(), MAX_TEXT_BYTES);
    Ok(ReviewRequest { inner: request, user, caller })
}

/// Refuses names that no stored object can have, and texts that are too long. Names become parts of paths in requests
/// to the API server, and of lines of the log.
fn check_texts(request: &AdmissionRequest<DynamicObject>) -> Result<(), ReviewError> {
    let require = |is_true: bool, fault| if is_true { Ok(()) } else { Err(ReviewError::Request(fault)) };
    let is_name = |name: &str| name.is_empty() || is_object_name(name);
    let namespace = request.namespace.as_deref().unwrap_or_default();
    require(namespace.is_empty() || is_dns_label(namespace), "its namespace is not a valid name")?;
    require(is_name(&request.name), "its name is not a valid name")?;
    require(request.uid.len() <= MAX_TEXT_BYTES, "its uid is too long")?;
    require(user_bytes(&request.user_info) <= MAX_USER_BYTES, "its userInfo is too long")?;
    require(request.kind.kind.len() <= MAX_TEXT_BYTES, "its kind is too long")?;
    for object in request.object.iter().chain(&request.old_object) {
        let ObjectMeta { name, generate_name, labels, .. } = &object.metadata;
        require(name.as_deref().is_none_or(is_name), "the name of its object is not a valid name")?;
        let is_short = generate_name.as_ref().is_none_or(|prefix| prefix.len() <= MAX_TEXT_BYTES);
        require(is_short, "the generateName of its object is too long")?;
        let values = [labels::CONFIG, labels::VERSION].map(|label| labels.as_ref()?.get(label));
        require(
            values.iter().flatten().all(|value| is_label_value(value)),
            "a label of its object has a value that no label can have",
        )?;
    }
    Ok(())
}

/// Returns the number of bytes of a user's texts. A review of the user's rights sends these texts to the API server,
/// too.
fn user_bytes(user: &UserInfo) -> usize {
    let extra = user.extra.iter().flatten().flat_map(|(key, values)| values.iter().chain([key]));
    let groups = user.groups.iter().flatten();
    user.username.iter().chain(&user.uid).chain(groups).chain(extra).map(|text| text.len() + 1).sum()
}

/// Returns the status of an answer that denies a request.
pub(super) fn denial_status(denial: Denial) -> Status {
    let (code, reason) = denial.reason.status();
    Status {
        status: Some(StatusSummary::Failure),
        code,
        reason: reason.to_owned(),
        message: denial.message,
        // Clients of the API server wait this long, and try again by themselves.
        details: denial.reason.retry_after().map(|retry_after_seconds| StatusDetails {
            name: String::new(),
            group: String::new(),
            kind: String::new(),
            uid: String::new(),
            causes: Vec::new(),
            retry_after_seconds,
        }),
        ..Status::default()
    }
}

/// Writes the answer to `request`.
pub fn answer(request: &ReviewRequest, verdict: AdmissionVerdict) -> Result<Vec<u8>, AnswerError> {
    let mut response = AdmissionResponse::from(&request.inner);
    match verdict {
        AdmissionVerdict::Allow { warnings, patch } => {
            if !warnings.is_empty() {
                response.warnings = Some(warnings);
            }
            if let Some(patch) = patch {
                response = response.with_patch(patch)?;
            }
        }
        AdmissionVerdict::Deny(denial) => {
            response.allowed = false;
            response.result = denial_status(denial);
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
    fn a_patch_is_base64_as_the_api_server_has_it() {
        let patch: json_patch::Patch = serde_json::from_value(json!([{"op": "remove", "path": "/a"}])).unwrap();
        let answer = answer(&parsed(&review()).unwrap(), AdmissionVerdict::patch(patch.0)).unwrap();
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        let patch = BASE64_STANDARD.decode(answer["response"]["patch"].as_str().unwrap()).unwrap();
        assert_eq!(patch, br#"[{"op":"remove","path":"/a"}]"#);
        assert_eq!(answer["response"]["patchType"], "JSONPatch");
    }

    fn parsed(review: &Value) -> Result<ReviewRequest, ReviewError> {
        parse(review.to_string().as_bytes(), caller())
    }

    #[test]
    fn a_refusal_carries_the_message_and_the_uid() {
        let denial = Denial::forbidden("no.");
        let answer = answer(&parsed(&review()).unwrap(), AdmissionVerdict::Deny(denial)).unwrap();
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
    fn names_that_nothing_can_have_are_refused() {
        let changed = |at: &str, value: &str| {
            let mut review = review();
            *at.split(' ').fold(&mut review["request"], |object, key| &mut object[key]) = json!(value);
            parsed(&review)
        };
        let long = "a".repeat(MAX_TEXT_BYTES + 1);
        for (at, good, bad) in [
            (
                "namespace",
                "team-1",
                &["team/../kube-system", "kube-system/configmaps/coredns", "a?x", "a.b", &long][..],
            ),
            ("name", "shop.keys", &["../secrets/a", "a/b", "a%2fb", "A", "..", &long]),
            ("uid", "a4b1", &[&long]),
            ("kind kind", "Pod", &[&long]),
            ("oldObject metadata name", "shop", &["a/b", "a?x=1", "..", &long]),
            ("oldObject metadata generateName", "shop-", &[&long]),
            ("oldObject metadata labels nudge.dev/config", "Shop", &["a/b", "..", "a?b", &long]),
            ("oldObject metadata labels nudge.dev/version", "current", &["a/b", &long]),
        ] {
            assert!(changed(at, good).is_ok() && changed(at, "").is_ok(), "{at}");
            for bad in bad {
                let error = changed(at, bad).unwrap_err();
                assert!(matches!(error, ReviewError::Request(_)), "{at} {bad}: {error}");
            }
        }
    }

    #[test]
    fn a_user_with_all_groups_is_bounded() {
        let with = |field: &str, value: Value| {
            let mut review = review();
            review["request"]["userInfo"][field] = value;
            parsed(&review)
        };
        assert!(with("groups", json!(vec!["g".repeat(60); 1000])).is_ok());
        for (field, value) in [
            ("groups", json!(vec!["g".repeat(60); 2000])),
            ("groups", json!(vec![""; MAX_USER_BYTES + 1])),
            ("username", json!("u".repeat(MAX_USER_BYTES))),
            ("uid", json!("u".repeat(MAX_USER_BYTES))),
            ("extra", json!({"a": vec!["x".repeat(1000); 100]})),
            ("extra", json!({"k".repeat(MAX_USER_BYTES): []})),
        ] {
            assert!(matches!(with(field, value), Err(ReviewError::Request(_))), "{field}");
        }
    }

    #[test]
    fn the_user_for_the_log_is_one_line_and_short() {
        let mut review = review();
        review["request"]["userInfo"]["username"] = json!(format!("eve\n{}", "x".repeat(60_000)));
        let request = parsed(&review).unwrap();
        assert!(request.user().starts_with("eve x") && request.user().len() == MAX_TEXT_BYTES);
        assert_eq!(request.claimed_user(), Some(request.user()));
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
