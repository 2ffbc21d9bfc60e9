//! A config stays while pods subscribe to it, unless that is forced.

use nudge_protocol::labels;

use crate::admission::verdict::Denial;
use crate::api::VersionedConfig;

/// Most pods that a refusal names.
const NAMED: usize = 5;

/// Decides about the deletion of a config to which these pods subscribe.
pub fn decide(config: &VersionedConfig, subscribers: &[String]) -> Result<(), Denial> {
    let annotations = config.metadata.annotations.as_ref();
    let forced =
        annotations.and_then(|annotations| annotations.get(labels::FORCE_DELETE)).is_some_and(|on| on == "true");
    if subscribers.is_empty() || forced || config.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    let name = config.metadata.name.as_deref().unwrap_or_default();
    Err(Denial::forbidden(format!(
        "VersionedConfig {name} can't be deleted, because {} to it; delete or change them first, or set the annotation {}: \
         \"true\" on it",
        subscribe(subscribers),
        labels::FORCE_DELETE
    )))
}

fn subscribe(pods: &[String]) -> String {
    let mut sorted: Vec<&str> = pods.iter().map(String::as_str).collect();
    sorted.sort_unstable();
    let named = sorted.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
    match sorted.len() {
        1 => format!("pod {named} subscribes"),
        count if count <= NAMED => format!("pods {named} subscribe"),
        count => format!("pods {named} and {} more subscribe", count - NAMED),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;
    use crate::admission::fixtures::{sentence, shop};
    use crate::api::VersionedConfigStatus;

    fn pods(count: usize) -> Vec<String> {
        (1..=count).rev().map(|number| format!("web-{number}")).collect()
    }

    fn config() -> VersionedConfig {
        shop(VersionedConfigStatus::default())
    }

    #[test]
    fn a_config_without_pods_goes() {
        assert_eq!(decide(&config(), &[]), Ok(()));
    }

    #[test]
    fn at_most_five_pods_are_named() {
        assert_eq!(
            sentence(decide(&config(), &pods(1))),
            "VersionedConfig shop can't be deleted, because pod web-1 subscribes to it; delete or change them first, or set \
             the annotation nudge.dev/force-delete: \"true\" on it"
        );
        assert!(
            sentence(decide(&config(), &pods(5)))
                .contains("because pods web-1, web-2, web-3, web-4, web-5 subscribe to")
        );
        assert!(sentence(decide(&config(), &pods(9))).contains("web-4, web-5 and 4 more subscribe to it"));
    }

    #[test]
    fn force_and_a_deletion_under_way_pass() {
        let mut forced = config();
        forced.metadata.annotations = Some([(labels::FORCE_DELETE.to_owned(), "true".to_owned())].into());
        assert_eq!(decide(&forced, &pods(1)), Ok(()));
        forced.metadata.annotations = Some([(labels::FORCE_DELETE.to_owned(), "no".to_owned())].into());
        assert!(decide(&forced, &pods(1)).is_err());
        let mut going = config();
        going.metadata.deletion_timestamp = Some(Time(k8s_openapi::jiff::Timestamp::UNIX_EPOCH));
        assert_eq!(decide(&going, &pods(1)), Ok(()));
    }
}
