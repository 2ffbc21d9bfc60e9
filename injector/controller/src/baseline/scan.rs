//! The ConfigMaps of namespaces whose label wants a config for each of them. Nobody watches them, so they are listed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::ListParams;
use nudge_api::PartKind;
use nudge_cluster::call::{CallError, call};
use nudge_cluster::jitter::with_jitter;
use nudge_core::baseline::{BaselineObject, MAX_NAMESPACE_CONFIGS, NamespaceBaseline, baseline_verdict};
use nudge_core::keys::ConfigKey;
use nudge_protocol::error_chain::chain;
use tokio::time::sleep;

use crate::controller::Controller;

/// The time between two lists of a namespace's ConfigMaps.
const SCAN_INTERVAL: Duration = Duration::from_secs(30);
/// The minimum time between two lists, even if namespaces change.
const MIN_SCAN_INTERVAL: Duration = Duration::from_secs(3);
/// The number of ConfigMaps of a page, metadata only.
const PAGE_SIZE: u32 = 500;
/// The selector of ConfigMaps that are not parts of versions.
const PLAIN_SELECTOR: &str = "!nudge.dev/config";

/// The maximum number of ConfigMaps of a namespace that one list has read.
const MAX_READS: usize = 200;

/// The names of a namespace's ConfigMaps that stay ordinary although their metadata do not show it, because they are
/// immutable, with the resourceVersion that was read.
type OrdinaryMaps = HashMap<String, String>;

/// Runs for ever, and queues the configs to make.
pub async fn take_over(controller: Arc<Controller>) {
    let index = &controller.index;
    index.wait_until_synced().await;
    let mut enabled = index.enabled_namespaces();
    let mut ordinary: HashMap<String, OrdinaryMaps> = HashMap::new();
    loop {
        let namespaces = Arc::clone(&enabled.borrow_and_update());
        ordinary.retain(|namespace, _| namespaces.contains(namespace));
        for namespace in namespaces.iter().filter(|namespace| index.is_complete(namespace)) {
            if controller.baseline_namespace(namespace).baseline != NamespaceBaseline::All {
                continue;
            }
            let ordinary = ordinary.entry(namespace.clone()).or_default();
            if let Err(error) = controller.queue_plain_maps(namespace, ordinary).await {
                tracing::warn!(namespace, error = chain(&error), "ConfigMaps of a namespace not listed; retrying");
            }
        }
        sleep(MIN_SCAN_INTERVAL).await;
        tokio::select! {
            () = sleep(with_jitter(SCAN_INTERVAL)) => {}
            // The sender lives as long as the index.
            _ = enabled.changed() => {}
        }
    }
}

impl Controller {
    /// Queues the ConfigMaps of a namespace that become configs, as many as there is room for. If there is no room, the
    /// first is queued: its Event says so. ConfigMaps that stay ordinary take no room, and are read once.
    async fn queue_plain_maps(&self, namespace: &str, ordinary: &mut OrdinaryMaps) -> Result<(), CallError> {
        let mut of_namespace = self.baseline_namespace(namespace);
        let mut room = MAX_NAMESPACE_CONFIGS.saturating_sub(of_namespace.configs).max(1);
        let mut reads = 0;
        of_namespace.configs = 0;
        let mut ordinary_before = std::mem::take(ordinary);
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
        let mut params = ListParams::default().labels(PLAIN_SELECTOR).limit(PAGE_SIZE);
        loop {
            let page = call(|| format!("listing ConfigMaps of {namespace}"), api.list_metadata(&params)).await?;
            for map in &page.items {
                let object = BaselineObject {
                    kind: PartKind::ConfigMap,
                    metadata: &map.metadata,
                    is_immutable: false,
                    secret_type: None,
                };
                let name = map.metadata.name.as_deref().unwrap_or_default();
                let Ok(key) = ConfigKey::parse(namespace, name) else { continue };
                if self.index.config(&key).is_some()
                    || self.has_made_versions(&key)
                    || !baseline_verdict(&object, of_namespace).becomes_config()
                {
                    continue;
                }
                let version = map.metadata.resource_version.clone().unwrap_or_default();
                if ordinary_before.remove(name).is_some_and(|before| before == version) {
                    ordinary.insert(name.to_owned(), version);
                    continue;
                }
                if room == 0 || reads == MAX_READS {
                    ordinary.extend(ordinary_before);
                    return Ok(());
                }
                reads += 1;
                if self.object_verdicts(&key, &[PartKind::ConfigMap], of_namespace).await?.label().is_some() {
                    self.queue.add(key, Duration::ZERO);
                    room -= 1;
                } else {
                    ordinary.insert(name.to_owned(), version);
                }
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(()),
            }
        }
    }
}
