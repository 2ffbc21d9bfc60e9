//! The rights of the user about a config, as the API server says.

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use kube::Api;
use kube::api::PostParams;
use nudge_api::VersionedConfig;

use crate::failure::{Failure, doing};
use crate::session::Session;

/// A verb on a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Right {
    pub(crate) verb: &'static str,
    pub(crate) group: &'static str,
    pub(crate) resource: &'static str,
}

/// The resource whose objects do not have the name of a config.
pub(crate) const APPROVALS: &str = "versionapprovals";

/// Returns whether the user has the right about the object of the config's name.
pub(crate) async fn has_right(session: &Session, config: &VersionedConfig, right: Right) -> Result<bool, Failure> {
    let Right { verb, group, resource } = right;
    let attributes = ResourceAttributes {
        verb: Some(verb.to_owned()),
        group: Some(group.to_owned()),
        resource: Some(resource.to_owned()),
        namespace: config.metadata.namespace.clone(),
        name: config.metadata.name.clone().filter(|_| resource != APPROVALS),
        ..ResourceAttributes::default()
    };
    let spec = SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() };
    let review = SelfSubjectAccessReview { spec, ..Default::default() };
    let reviews = Api::<SelfSubjectAccessReview>::all(session.client.clone());
    let answer = reviews.create(&PostParams::default(), &review).await;
    let answer = answer.map_err(doing("asking what you may do"))?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}
