//! Checks whether Nudge may look at the objects of a namespace, if the user may know this. If Nudge may not, its
//! objects get no condition that says so.

use k8s_openapi::api::authorization::v1::{LocalSubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::PostParams;
use nudge_cluster::rights::{resource_right, service_account};

use crate::rights::Right;
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
    /// Workloads that take a version by a restart, by the role `control`.
    Workloads,
}

impl AttendedKind {
    /// Returns the account, and the right that it needs.
    fn need(self) -> (&'static str, Right) {
        let list = |group, resource| Right { verb: "list", group, resource };
        match self {
            Self::Configs => ("nudge-injector", list("nudge.dev", "versionedconfigs")),
            Self::Secrets => ("nudge-injector", list("", "secrets")),
            Self::Sources => ("nudge-sources", list("nudge.dev", "configsources")),
            Self::Workloads => ("nudge-injector", Right { verb: "patch", group: "apps", resource: "deployments" }),
        }
    }

    /// Returns the command that lets Nudge look at the objects.
    pub(crate) fn remedy(self, namespace: &str) -> String {
        match self {
            Self::Configs | Self::Workloads => format!("kubectl nudge enable {namespace}"),
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
    let (account, Right { verb, group, resource }) = kind.need();
    let (user, groups) = service_account(&format!("{SYSTEM}:{account}"));
    let spec = SubjectAccessReviewSpec {
        user: Some(user),
        groups: Some(groups),
        resource_attributes: Some(resource_right(&session.namespace, (verb, group, resource), None)),
        ..SubjectAccessReviewSpec::default()
    };
    let mut review = LocalSubjectAccessReview { spec, ..LocalSubjectAccessReview::default() };
    review.metadata.namespace = Some(session.namespace.clone());
    let review = session.api::<LocalSubjectAccessReview>().create(&PostParams::default(), &review).await.ok()?;
    Some(review.status?.allowed)
}
