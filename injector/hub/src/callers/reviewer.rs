//! Finds the pod that a token belongs to, by a `TokenReview` of the API server.

use futures::future::BoxFuture;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};
use kube::api::PostParams;
use kube::{Api, Client};
use nudge_core::keys::PodUid;
use nudge_protocol::pod::TOKEN_AUDIENCE;

const POD_NAME: &str = "authentication.kubernetes.io/pod-name";
const POD_UID: &str = "authentication.kubernetes.io/pod-uid";

/// Adds the remedy for the client to a message.
macro_rules! send_mounted_token {
    ($fault:literal) => {
        concat!($fault, "; send the one that is mounted into the agent's container")
    };
}
pub(super) use send_mounted_token;

/// The pod that a request comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub name: String,
    /// The pod's uid.
    pub uid: PodUid,
    /// The pod's service account.
    pub service_account: String,
    /// The uid of the service account.
    pub account_uid: String,
}

/// The reason why a token names no pod.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReviewError {
    /// The API server does not accept the token, or it is not bound to a pod. The message names the remedy.
    #[error("{0}")]
    Refused(&'static str),
    /// One address, or one namespace, needs too many reviews.
    #[error("too many tokens wait for a review")]
    TooMany,
    /// The API server can't review tokens now.
    #[error("the API server can't review tokens now")]
    Unavailable(#[source] std::sync::Arc<dyn std::error::Error + Send + Sync>),
}

/// A reviewer of tokens: the API server, or a stand-in.
pub trait Reviewer: Send + Sync + 'static {
    /// Returns the pod that `token` belongs to.
    fn review<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<Caller, ReviewError>>;
}

/// Has the API server review tokens; needs the right to create `tokenreviews`.
impl Reviewer for Client {
    fn review<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<Caller, ReviewError>> {
        Box::pin(async move {
            let spec =
                TokenReviewSpec { audiences: Some(vec![TOKEN_AUDIENCE.to_owned()]), token: Some(token.to_owned()) };
            let review = TokenReview { spec, ..TokenReview::default() };
            let review = Api::all(self.clone()).create(&PostParams::default(), &review).await;
            let review = review.map_err(|error| ReviewError::Unavailable(std::sync::Arc::new(error)))?;
            caller_of(&review.status.unwrap_or_default()).map_err(ReviewError::Refused)
        })
    }
}

/// Returns the pod that a review names.
fn caller_of(status: &TokenReviewStatus) -> Result<Caller, &'static str> {
    if status.authenticated != Some(true) {
        return Err(send_mounted_token!(
            "the API server does not accept the token: it has expired, its pod is gone, or its audience is not nudge"
        ));
    }
    if !status.audiences.iter().flatten().any(|audience| audience == TOKEN_AUDIENCE) {
        return Err(send_mounted_token!("the token is not for the audience nudge"));
    }
    let unbound = send_mounted_token!("the token is not bound to a pod");
    let user = status.user.as_ref().ok_or(unbound)?;
    let account =
        user.username.as_deref().and_then(|name| name.strip_prefix("system:serviceaccount:")).ok_or(unbound)?;
    let (namespace, service_account) = account.split_once(':').ok_or(unbound)?;
    let extra = |key: &str| match user.extra.as_ref()?.get(key)?.as_slice() {
        [value] if !value.is_empty() => Some(value.clone()),
        _ => None,
    };
    let name = extra(POD_NAME).ok_or(unbound)?;
    let uid = extra(POD_UID).and_then(|uid| PodUid::new(&uid)).ok_or(unbound)?;
    let account_uid = user.uid.clone().filter(|uid| !uid.is_empty()).ok_or(unbound)?;
    Ok(Caller { namespace: namespace.to_owned(), name, uid, service_account: service_account.to_owned(), account_uid })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn status(change: impl FnOnce(&mut Value)) -> TokenReviewStatus {
        let mut value = json!({
            "authenticated": true, "audiences": ["other", "nudge"],
            "user": {"username": "system:serviceaccount:shop:default", "uid": "s1",
                     "extra": {POD_NAME: ["web-1"], POD_UID: ["u1"]}},
        });
        change(&mut value);
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_pods_token_names_its_pod() {
        let uid = PodUid::new("u1").unwrap();
        let (namespace, name) = ("shop".into(), "web-1".into());
        let pod = Caller { namespace, name, uid, service_account: "default".into(), account_uid: "s1".into() };
        assert_eq!(caller_of(&status(|_| ())), Ok(pod));
    }

    #[test]
    fn anything_less_is_refused() {
        let changes: [fn(&mut Value); 10] = [
            |value| value["authenticated"] = json!(false),
            |value| value["authenticated"] = json!(null),
            |value| value["audiences"] = json!(["https://kubernetes.default.svc"]),
            |value| value["audiences"] = json!([]),
            |value| value["user"] = json!(null),
            |value| value["user"]["username"] = json!("system:node:a"),
            |value| value["user"]["username"] = json!("system:serviceaccount:shop"),
            |value| value["user"]["uid"] = json!(""),
            |value| value["user"]["extra"] = json!({}),
            |value| value["user"]["extra"][POD_UID] = json!(["a", "b"]),
        ];
        for (index, change) in changes.into_iter().enumerate() {
            assert!(caller_of(&status(change)).is_err(), "{index}");
        }
        assert!(caller_of(&TokenReviewStatus::default()).is_err());
    }
}
