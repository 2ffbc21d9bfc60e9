//! The rights of this process, as the API server knows them.

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};

use crate::call::{CallError, call};

/// Returns whether this process may make versions of the Secrets of a namespace, which ClusterRole
/// `nudge-publish-secrets` allows.
pub async fn may_make_secrets(client: &Client, namespace: &str) -> Result<bool, CallError> {
    for verb in ["create", "update"] {
        let attributes = ResourceAttributes {
            namespace: Some(namespace.to_owned()),
            resource: Some("secrets".to_owned()),
            verb: Some(verb.to_owned()),
            ..ResourceAttributes::default()
        };
        let review = SelfSubjectAccessReview {
            spec: SelfSubjectAccessReviewSpec {
                resource_attributes: Some(attributes),
                ..SelfSubjectAccessReviewSpec::default()
            },
            ..SelfSubjectAccessReview::default()
        };
        let asking = || format!("asking whether Nudge may {verb} Secrets of namespace {namespace}");
        let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
        let answer = call(asking, reviews.create(&PostParams::default(), &review)).await?;
        if !answer.status.is_some_and(|status| status.allowed) {
            return Ok(false);
        }
    }
    Ok(true)
}
