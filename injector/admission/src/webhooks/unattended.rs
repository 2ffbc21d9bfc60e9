//! Warnings about objects that no role of Nudge handles: they would stay without a condition.

use crate::lookups::{AttendedKind, Lookups};
use crate::review::ReviewRequest;

/// Returns the warning about objects of a kind that no role handles, with the remedy; `None` if that can't be checked.
pub(crate) async fn warning(
    lookups: &impl Lookups,
    request: &ReviewRequest,
    namespace: &str,
    kind: AttendedKind,
) -> Option<String> {
    let is_attended = lookups.attends(request, namespace, kind).await;
    (!is_attended.unwrap_or(true)).then(|| match kind {
        AttendedKind::Sources => format!(
            "Nudge does not look at the ConfigSources of namespace {namespace}, because ClusterRole nudge-sources is not bound there; \
             run kubectl create rolebinding nudge-sources -n {namespace} --clusterrole=nudge-sources \
             --serviceaccount=nudge-system:nudge-sources"
        ),
        AttendedKind::Secrets => format!(
            "Nudge may not read the Secrets of namespace {namespace}, so it can't seal versions with Secrets; \
             run kubectl nudge enable {namespace} --secrets"
        ),
        AttendedKind::Analyses => {
            "nothing asks the queries of spec.rollout.analysis, because the component analysis is not installed, so rollouts are \
             held; an admin of the cluster must install deploy/components/analysis"
                .to_owned()
        }
    })
}
