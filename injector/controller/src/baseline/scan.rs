//! The ConfigMaps of namespaces whose label wants a config for each of them. Nobody watches them, so they are listed.

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

/// Runs for ever, and queues the configs to make.
pub async fn take_over(controller: Arc<Controller>) {
    let index = &controller.index;
    index.wait_until_synced().await;
    let mut enabled = index.enabled_namespaces();
    loop {
        let namespaces = Arc::clone(&enabled.borrow_and_update());
        for namespace in namespaces.iter().filter(|namespace| index.is_complete(namespace)) {
            if controller.baseline_namespace(namespace).baseline != NamespaceBaseline::All {
                continue;
            }
            if let Err(error) = controller.queue_plain_maps(namespace).await {
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
    /// first is queued: its Event says so.
    async fn queue_plain_maps(&self, namespace: &str) -> Result<(), CallError> {
        let mut of_namespace = self.baseline_namespace(namespace);
        let mut room = MAX_NAMESPACE_CONFIGS.saturating_sub(of_namespace.configs).max(1);
        of_namespace.configs = 0;
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
                if self.index.config(&key).is_some() || !baseline_verdict(&object, of_namespace).becomes_config() {
                    continue;
                }
                self.queue.add(key, Duration::ZERO);
                room -= 1;
                if room == 0 {
                    return Ok(());
                }
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(()),
            }
        }
    }
}
