//! Warnings about objects that nobody in Nudge looks at: they would lie there without a condition.

use crate::lookups::{AttendedKind, Lookups};
use crate::review::Request;

/// What to say where nobody looks at such objects, with the way out. Nothing where that can't be found out.
pub(crate) async fn warning(
    lookups: &impl Lookups,
    request: &Request,
    namespace: &str,
    what: AttendedKind,
) -> Option<String> {
    let attended = lookups.attends(request, namespace, what).await;
    (!attended.unwrap_or(true)).then(|| match what {
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
