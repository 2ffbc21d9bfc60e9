//! The admission server with what its guards ask: the API server by a client of their own, and the index.

use std::sync::Arc;

use kube::{Client, Config};
use nudge_admission::pods::{InjectPods, KubePodLookups};
use nudge_admission::{
    AdmissionMetrics, AdmissionServer, AdmissionSettings, KnownEnabled, KubeLookups, MutateVersions, OnlyEnabled,
    StartError, Subscribers, ValidateConfigs, ValidateVersions, Webhooks,
};
use nudge_cluster::index::Index;
use nudge_core::keys::ConfigKey;
use nudge_core::namespaces::Enabled;
use ring::hmac;
use rustls::ServerConfig;

use super::injecting::Injecting;

/// What the guards work with.
pub(super) struct Means {
    /// What is there.
    pub(super) index: Arc<Index>,
    /// Which namespaces are enabled.
    pub(super) enabled: Enabled,
    /// What marks are made with.
    pub(super) content_key: Arc<hmac::Key>,
    /// What pods are made of.
    pub(super) injecting: Injecting,
}

/// Starts it.
pub(super) async fn start(
    settings: AdmissionSettings,
    tls: Arc<ServerConfig>,
    metrics: AdmissionMetrics,
    config: Config,
    means: Means,
) -> Result<AdmissionServer, StartError> {
    let Means { index, enabled, content_key, injecting } = means;
    let pods_of = Arc::clone(&index);
    let subscribers: Subscribers = Arc::new(move |namespace, name| {
        let pods = ConfigKey::parse(namespace, name).map(|key| pods_of.subscribers(&key)).unwrap_or_default();
        pods.iter().filter(|pod| !pod.terminating && !pod.finished).count()
    });
    let known_enabled: KnownEnabled = Arc::new(move |namespace| index.is_enabled(namespace));
    let webhooks = move || -> futures::future::BoxFuture<'static, Result<Webhooks, kube::Error>> {
        Box::pin(async move {
            let client = Client::try_from(config)?;
            let lookups = Arc::new(KubeLookups::new(client.clone(), subscribers, known_enabled, enabled));
            let pod_lookups = KubePodLookups::new(client, injecting.known);
            let mutate = MutateVersions::new(Arc::clone(&lookups), content_key);
            let versions = ValidateVersions::new(Arc::clone(&lookups));
            let configs = ValidateConfigs::new(Arc::clone(&lookups));
            let pods = InjectPods::new(pod_lookups, injecting.settings);
            let webhooks: Webhooks = vec![
                Arc::new(OnlyEnabled::new(mutate, &lookups)),
                Arc::new(OnlyEnabled::new(versions, &lookups)),
                Arc::new(OnlyEnabled::new(configs, &lookups)),
                Arc::new(OnlyEnabled::new(pods, &lookups)),
            ];
            Ok(webhooks)
        })
    };
    AdmissionServer::start(settings, tls, metrics, webhooks).await
}
