//! Checks whether Nudge may look at the objects of a namespace, if the user may know this. If Nudge may not, its
//! objects get no condition that says so.

use k8s_openapi::api::authorization::v1::{LocalSubjectAccessReview, ResourceAttributes, SubjectAccessReviewSpec};
use kube::api::PostParams;

use crate::session::Session;

/// The namespace of Nudge.
const SYSTEM: &str = "nudge-system";

/// A kind of objects that a role of Nudge looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttendedKind {
    /// VersionedConfigs, by the role `control`.
    Configs,
    /// Secrets of versions, by the role `control`.
    Secrets,
    /// ConfigSources, by the role `sources`.
    Sources,
}

impl AttendedKind {
    /// Returns the account, and the group and resource that it lists.
    fn listing(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Configs => ("nudge-injector", "nudge.dev", "versionedconfigs"),
            Self::Secrets => ("nudge-injector", "", "secrets"),
            Self::Sources => ("nudge-sources", "nudge.dev", "configsources"),
        }
    }

    /// Returns the command that lets Nudge look at the objects.
    pub(crate) fn way_out(self, namespace: &str) -> String {
        match self {
            Self::Configs => format!("kubectl nudge enable {namespace}"),
            Self::Secrets => format!("kubectl nudge enable {namespace} --secrets"),
            Self::Sources => format!(
                "kubectl create rolebinding nudge-sources -n {namespace} --clusterrole=nudge-sources --serviceaccount={SYSTEM}:nudge-sources"
            ),
        }
    }
}

/// Returns whether Nudge may look at objects of this kind, or `None` if the user may not ask. Asking needs the right to
/// create LocalSubjectAccessReviews, which an admin of the namespace has, for example.
pub(crate) async fn may_attend(session: &Session, kind: AttendedKind) -> Option<bool> {
    let (account, group, resource) = kind.listing();
    let attributes = ResourceAttributes {
        namespace: Some(session.namespace.clone()),
        verb: Some("list".to_owned()),
        group: Some(group.to_owned()),
        resource: Some(resource.to_owned()),
        ..ResourceAttributes::default()
    };
    let groups = ["system:serviceaccounts", &format!("system:serviceaccounts:{SYSTEM}"), "system:authenticated"];
    let spec = SubjectAccessReviewSpec {
        user: Some(format!("system:serviceaccount:{SYSTEM}:{account}")),
        groups: Some(groups.map(str::to_owned).into()),
        resource_attributes: Some(attributes),
        ..SubjectAccessReviewSpec::default()
    };
    let mut review = LocalSubjectAccessReview { spec, ..LocalSubjectAccessReview::default() };
    review.metadata.namespace = Some(session.namespace.clone());
    let review = session.api::<LocalSubjectAccessReview>().create(&PostParams::default(), &review).await.ok()?;
    Some(review.status?.allowed)
}
