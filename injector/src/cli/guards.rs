//! The admission server with what its guards ask: the API server by a client of their own, and the world.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::{Client, Config};
use ring::hmac;
use rustls::ServerConfig;

use super::injecting::Injecting;
use crate::admission::pods::{ClusterSurroundings, InjectPods};
use crate::admission::{
    AdmissionMetrics, AdmissionServer, AdmissionSettings, DigestAlgorithm, DigestFn, KubeLookups, MutateVersions,
    StartError, Subscribers, ValidateConfigs, ValidateVersions, Webhooks,
};
use crate::versions::part_digest;
use crate::world::{ConfigKey, World};

/// Starts it.
pub(super) async fn start(
    settings: AdmissionSettings,
    tls: Arc<ServerConfig>,
    metrics: AdmissionMetrics,
    config: Config,
    world: &Arc<World>,
    content_key: &Arc<hmac::Key>,
    injecting: Injecting,
) -> Result<AdmissionServer, StartError> {
    let (world, key) = (Arc::clone(world), Arc::clone(content_key));
    let subscribers: Subscribers = Arc::new(move |namespace, name| {
        let pods = world.subscribers(&ConfigKey::new(namespace, name));
        pods.iter().filter(|pod| !pod.going && !pod.finished).map(|pod| pod.name.clone()).collect()
    });
    let digest: DigestFn = Arc::new(move |_, content: &BTreeMap<String, Vec<u8>>, algorithm| {
        Ok(match algorithm {
            DigestAlgorithm::Sha256 => part_digest(content, None),
            DigestAlgorithm::HmacSha256 => part_digest(content, Some(&key)),
        })
    });
    let webhooks = move || -> futures::future::BoxFuture<'static, Result<Webhooks, kube::Error>> {
        Box::pin(async move {
            let client = Client::try_from(config)?;
            let lookups = Arc::new(KubeLookups::new(client.clone(), subscribers, digest));
            let surroundings = ClusterSurroundings::new(client, injecting.known);
            let webhooks: Webhooks = vec![
                Arc::new(MutateVersions),
                Arc::new(ValidateVersions::new(Arc::clone(&lookups))),
                Arc::new(ValidateConfigs::new(lookups)),
                Arc::new(InjectPods::new(surroundings, injecting.settings)),
            ];
            Ok(webhooks)
        })
    };
    AdmissionServer::start(settings, tls, metrics, webhooks).await
}
