//! Questions to the API server about rights.

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};

use crate::call::{CallError, call};

/// Returns a right as RBAC has it: the verb, the group and the resource (with its subresource), in the namespace.
/// Without a name it covers all objects.
pub fn resource_right(
    namespace: &str,
    (verb, group, resource): (&str, &str, &str),
    name: Option<&str>,
) -> ResourceAttributes {
    let (resource, subresource) =
        resource.split_once('/').map_or((resource, None), |(resource, subresource)| (resource, Some(subresource)));
    ResourceAttributes {
        verb: Some(verb.to_owned()),
        group: Some(group.to_owned()),
        version: Some("*".to_owned()),
        resource: Some(resource.to_owned()),
        subresource: subresource.map(str::to_owned),
        namespace: Some(namespace.to_owned()),
        name: name.map(str::to_owned),
        ..ResourceAttributes::default()
    }
}

/// Returns the name and the groups of a service account, as the API server knows them. `account` is `namespace:name`.
pub fn service_account(account: &str) -> (String, Vec<String>) {
    let namespace = account.split(':').next().unwrap_or_default();
    let groups = ["system:serviceaccounts", &format!("system:serviceaccounts:{namespace}"), "system:authenticated"];
    (format!("system:serviceaccount:{account}"), groups.map(str::to_owned).into())
}

/// Returns whether the user of the client has the right.
pub async fn has_right(client: &Client, right: ResourceAttributes) -> kube::Result<bool> {
    let spec = SelfSubjectAccessReviewSpec { resource_attributes: Some(right), ..Default::default() };
    let review = SelfSubjectAccessReview { spec, ..Default::default() };
    let answer = Api::all(client.clone()).create(&PostParams::default(), &review).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

/// Returns whether this process may make versions of the Secrets of a namespace, which ClusterRole
/// `nudge-publish-secrets` allows.
pub async fn may_make_secrets(client: &Client, namespace: &str) -> Result<bool, CallError> {
    for verb in ["create", "update"] {
        let asking = || format!("asking whether Nudge may {verb} Secrets of namespace {namespace}");
        if !call(asking, has_right(client, resource_right(namespace, (verb, "", "secrets"), None))).await? {
            return Ok(false);
        }
    }
    Ok(true)
}
