//! A config is kept while pods use it, unless its deletion is forced.

use kube::ResourceExt;
use nudge_api::VersionedConfig;
use nudge_core::baseline::{NamespaceBaseline, is_of_namespace};
use nudge_protocol::labels;
use nudge_protocol::plural::{agreeing, counted};

use crate::verdict::Denial;

/// Decides about the deletion of a config with this number of subscribers; `None` if Nudge does not know all pods of
/// the namespace.
pub(crate) fn check_deletion(config: &VersionedConfig, subscribers: Option<usize>) -> Result<(), Denial> {
    if subscribers == Some(0) || is_forced(config) || config.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    let name = config.metadata.name.as_deref().unwrap_or_default();
    let Some(subscribers) = subscribers else {
        return Err(Denial::unavailable(format!(
            "VersionedConfig {name} can't be deleted, because Nudge does not know yet which pods of its namespace use it; try again, \
             or let Nudge read the namespace (kubectl nudge enable)"
        )));
    };
    let (pods, verb) = (counted(subscribers, "pod"), agreeing(subscribers, "uses", "use"));
    Err(Denial::forbidden(format!(
        "VersionedConfig {name} can't be deleted, because {pods} {verb} it; delete or change them first, or set the annotation {}: \"true\" \
         on it",
        labels::FORCE_DELETE
    )))
}

/// Returns the warning that a deleted config comes back, because its namespace wants it. `label` is the label
/// `nudge.dev/baseline` of the namespace.
pub(crate) fn return_warning(config: &VersionedConfig, label: Option<&str>) -> Option<String> {
    if !is_of_namespace(config) || NamespaceBaseline::of(label) == NamespaceBaseline::Labelled {
        return None;
    }
    let name = config.metadata.name.as_deref().unwrap_or_default();
    Some(format!(
        "VersionedConfig {name} comes back while its namespace has the label {} and its ConfigMap or Secret is wanted; to end that, \
         remove the label (kubectl label namespace NAME {}-)",
        labels::BASELINE,
        labels::BASELINE
    ))
}

/// Returns whether an annotation requests the deletion of the config in spite of pods that use it.
pub(super) fn is_forced(config: &impl ResourceExt) -> bool {
    config.annotations().get(labels::FORCE_DELETE).is_some_and(|value| value == "true")
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use nudge_api::VersionedConfigStatus;

    use super::*;
    use crate::fixtures::{message, shop};

    fn config() -> VersionedConfig {
        shop(VersionedConfigStatus::default())
    }

    #[test]
    fn a_config_without_pods_can_be_deleted() {
        assert_eq!(check_deletion(&config(), Some(0)), Ok(()));
    }

    #[test]
    fn pods_are_counted_and_not_named() {
        assert_eq!(
            message(check_deletion(&config(), Some(1))),
            "VersionedConfig shop can't be deleted, because 1 pod uses it; delete or change them first, or set the annotation \
             nudge.dev/force-delete: \"true\" on it"
        );
        assert!(message(check_deletion(&config(), Some(9))).contains("because 9 pods use it"));
        assert!(message(check_deletion(&config(), None)).contains("does not know yet which pods"));
    }

    #[test]
    fn a_config_of_its_namespace_comes_back_while_the_label_stands() {
        let mut of_namespace = config();
        assert_eq!(return_warning(&of_namespace, Some("mounted")), None);
        of_namespace.metadata.labels = Some([(labels::BASELINE.to_owned(), "namespace".to_owned())].into());
        for (label, is_warned) in [(Some("mounted"), true), (Some("all"), true), (Some("no"), false), (None, false)] {
            let warning = return_warning(&of_namespace, label);
            assert_eq!(warning.is_some_and(|text| text.contains("shop comes back while")), is_warned, "{label:?}");
        }
    }

    #[test]
    fn force_and_a_deletion_under_way_pass() {
        let mut forced = config();
        forced.metadata.annotations = Some([(labels::FORCE_DELETE.to_owned(), "true".to_owned())].into());
        assert_eq!(check_deletion(&forced, Some(1)), Ok(()));
        forced.metadata.annotations = Some([(labels::FORCE_DELETE.to_owned(), "no".to_owned())].into());
        assert!(check_deletion(&forced, Some(1)).is_err());
        let mut terminating = config();
        terminating.metadata.deletion_timestamp = Some(Time(k8s_openapi::jiff::Timestamp::UNIX_EPOCH));
        assert_eq!(check_deletion(&terminating, Some(1)), Ok(()));
    }
}
