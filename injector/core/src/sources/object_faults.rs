//! The reasons why an object can't be a source, or can't be published.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use nudge_api::{Explanation, PartKind, Reason};
use nudge_protocol::labels;

use crate::versions::{is_configuration, object_name};

/// Returns why this object can't be a source, if there is a reason. `secret_type` is empty for a ConfigMap.
pub fn object_refusal(kind: PartKind, meta: &ObjectMeta, secret_type: &str) -> Option<Explanation> {
    let name = object_name(kind, meta.name.as_deref().unwrap_or_default());
    let has_label = |label| meta.labels.as_ref().is_some_and(|labels| labels.contains_key(label));
    let message = if has_label(labels::CONFIG) {
        format!("{name} is an object of a version, which never changes; name the object that it was made from")
    } else if has_label(labels::PUBLISHED) {
        format!("{name} is what Nudge publishes; name another object")
    } else if !is_configuration(secret_type) {
        format!("{name} has the type {secret_type}, which is not for configuration; name another object")
    } else {
        return None;
    };
    Some(Reason::SourceRefused.explained(message))
}

/// Explains that the object does not exist.
pub fn explain_missing(kind: PartKind, name: &str) -> Explanation {
    let name = object_name(kind, name);
    Reason::SourceGone.explained(format!("{name} does not exist; create it, or delete the source"))
}

/// Explains that the service account of sources may not read the object, and how to allow it.
pub fn explain_unreadable(kind: PartKind, name: &str, source: &str, account: &str) -> Explanation {
    let resource = match kind {
        PartKind::ConfigMap => "configmaps",
        PartKind::Secret => "secrets",
    };
    Reason::NotAllowed.explained(format!(
        "Nudge may not read {}; allow it: kubectl create role nudge-source-{source} --verb=get,list,watch --resource={resource} \
         --resource-name={name}; kubectl create rolebinding nudge-source-{source} --role=nudge-source-{source} --serviceaccount={account}",
        object_name(kind, name)
    ))
}

/// Explains why a version is not requested if the config publishes a Secret: this needs the right to update that
/// Secret.
pub fn explain_unpublishable(explanation: &Explanation, config: &str, account: &str) -> Explanation {
    explanation.reason.explained(format!(
        "{}; config {config} publishes Secret {config}, which is allowed by its name: kubectl create role nudge-source-publish-{config} \
         --verb=update --resource=secrets --resource-name={config}; kubectl create rolebinding nudge-source-publish-{config} \
         --role=nudge-source-publish-{config} --serviceaccount={account}",
        explanation.message
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(label: Option<&str>, secret_type: &str) -> Option<String> {
        let labels = label.map(|label| [(label.to_owned(), "shop".to_owned())].into());
        let meta = ObjectMeta { name: Some("a".into()), labels, ..ObjectMeta::default() };
        object_refusal(PartKind::Secret, &meta, secret_type).map(|refusal| refusal.message)
    }

    #[test]
    fn what_nudge_writes_and_what_is_no_configuration_is_refused() {
        assert_eq!(refused(None, "kubernetes.io/tls"), None);
        assert_eq!(refused(Some("app"), "Opaque"), None);
        assert!(refused(Some(labels::CONFIG), "").unwrap().contains("is an object of a version"));
        assert!(refused(Some(labels::PUBLISHED), "").unwrap().contains("is what Nudge publishes"));
        assert!(refused(None, "helm.sh/release.v1").unwrap().contains("helm.sh/release.v1"));
    }

    #[test]
    fn what_is_missing_says_what_to_do() {
        let said = explain_unreadable(PartKind::Secret, "tls", "shop", "nudge-system:nudge-sources").message;
        assert!(
            said.contains("--resource=secrets --resource-name=tls")
                && said.contains("--serviceaccount=nudge-system:nudge-sources")
        );
        assert!(explain_missing(PartKind::ConfigMap, "live").message.starts_with("ConfigMap live does not exist"));
    }
}
