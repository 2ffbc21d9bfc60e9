//! Look-ups that injection needs beyond the pod: configs and features from this process, ConfigMaps and LimitRanges from the API server.

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{ConfigMap, LimitRange, LimitRangeItem};
use kube::api::ListParams;
use kube::core::ObjectMeta;
use kube::{Api, Client};
use nudge_api::{PartKind, VersionedConfig};
use nudge_cluster::index::Index;
use nudge_core::identity::Identity;
use nudge_core::injection::{Features, MountedPart, ReferencedConfigMap, ResolvedConfig};
use nudge_core::keys::{ConfigKey, ObjectKey};
use nudge_core::rollout::newborn;
use nudge_core::versions::wants_baseline;
use nudge_protocol::error_chain::chain;
use nudge_protocol::labels;
use nudge_server::rates::{Rate, Rates};
use nudge_server::slots::Peer;
use tokio::sync::watch;
use tokio::time::timeout;

use super::LookupError;
use super::answer_cache::{Recent, RecentSettings};
use super::api_server::LOOKUP_TIMEOUT;
use crate::review::Request;
use crate::tenants::TenantShares;

/// How ConfigMaps are remembered, four flags of each.
const CONFIG_MAPS: RecentSettings =
    RecentSettings { fresh: Duration::from_secs(2), usable: Duration::from_secs(10), most: 2048 };
/// Most ConfigMaps that are read at the same time: of one address a quarter; its tenants share that.
const CONCURRENT_READS: usize = 32;
/// How often one address may make Nudge read ConfigMaps of one namespace. The API server is one such address. The pods of a workload share
/// an answer, unless there is no such ConfigMap.
const READ_RATE: Rate = Rate { per_second: 200, burst: 500 };
/// Most addresses that are counted apart.
const MAX_COUNTED_ADDRESSES: usize = 4096;
/// How the LimitRanges of a namespace are remembered, where it has any: the first may be created the next moment.
const LIMITS: RecentSettings =
    RecentSettings { fresh: Duration::from_secs(3), usable: Duration::from_secs(10), most: 512 };
/// Most LimitRanges of one namespace; usually there are one or two.
const LIMIT_RANGES: u32 = 50;

/// What this process knows.
#[derive(Clone)]
pub struct PodLookupState {
    /// Configs and namespaces.
    pub index: Arc<Index>,
    /// What the cluster can do; `None` until it was read for the first time.
    pub features: watch::Receiver<Option<Features>>,
    /// The CA bundle that agents trust (PEM).
    pub hub_ca: watch::Receiver<Arc<str>>,
}

/// The look-ups of the pod webhook.
pub trait PodLookups: Send + Sync + 'static {
    /// What the cluster can do and the CA bundle that agents trust, or why pods can't be injected yet.
    fn basis(&self) -> Result<(Features, Arc<str>), &'static str>;

    /// The config as a new pod of this service account gets it; `None` where there is none.
    fn config(&self, namespace: &str, name: &str, pod: &ObjectMeta, account: &str) -> Option<ResolvedConfig>;

    /// A ConfigMap that the pod of a review references; `None` where there is none.
    fn config_map(
        &self,
        request: &Request,
        namespace: &str,
        name: &str,
    ) -> impl Future<Output = Result<Option<ReferencedConfigMap>, LookupError>> + Send;

    /// The limits of a namespace; none where they can't be read.
    fn limits(&self, namespace: &str) -> impl Future<Output = Vec<LimitRangeItem>> + Send;
}

/// Asks this process and the API server.
pub struct KubePodLookups {
    client: Client,
    known: PodLookupState,
    config_maps: Recent<ObjectKey, ReferencedConfigMap>,
    limits: Recent<String, Arc<[LimitRangeItem]>>,
    room: Arc<TenantShares>,
    reading: Arc<Rates<(Peer, String)>>,
}

impl KubePodLookups {
    /// Uses `client`, which must be created on the runtime of the admission server.
    pub fn new(client: Client, known: PodLookupState) -> Self {
        Self {
            client,
            known,
            config_maps: Recent::new(CONFIG_MAPS),
            limits: Recent::new(LIMITS),
            room: Arc::new(TenantShares::new(CONCURRENT_READS, 1)),
            reading: Arc::new(Rates::new(READ_RATE, MAX_COUNTED_ADDRESSES, Instant::now())),
        }
    }
}

impl PodLookups for KubePodLookups {
    fn basis(&self) -> Result<(Features, Arc<str>), &'static str> {
        if !self.known.index.is_synced() {
            return Err("it has not listed all configs yet");
        }
        let features = self.known.features.borrow();
        let features = features.ok_or("it does not know the versions of the API server and the nodes yet")?;
        Ok((features, Arc::clone(&self.known.hub_ca.borrow())))
    }

    fn config(&self, namespace: &str, name: &str, pod: &ObjectMeta, account: &str) -> Option<ResolvedConfig> {
        let index = &self.known.index;
        let config = index.config(&ConfigKey::parse(namespace, name).ok()?)?;
        if !config.spec.admits(account) {
            return Some(ResolvedConfig { closed: true, ..ResolvedConfig::default() });
        }
        Some(resolved(&config, pod, index.secrets_allowed(namespace)))
    }

    async fn config_map(
        &self,
        request: &Request,
        namespace: &str,
        name: &str,
    ) -> Result<Option<ReferencedConfigMap>, LookupError> {
        let key = ObjectKey::new(PartKind::ConfigMap, namespace, name);
        let ask = || {
            let api = Api::<ConfigMap>::namespaced(self.client.clone(), namespace);
            let (name, what, namespace) = (name.to_owned(), format!("read {key}"), namespace.to_owned());
            let (room, reading) = (Arc::clone(&self.room), Arc::clone(&self.reading));
            let (caller, tenant) = (request.caller, request.tenant());
            async move {
                if !reading.take((caller.peer(), namespace), Instant::now()) {
                    let per_second = reading.rate().per_second;
                    return Err(LookupError::TooMany { what, address: caller.address, per_second });
                }
                // Each answer has up to 1 MiB: this bounds the memory of concurrent ones.
                let _room = room.take(&tenant, 1).await;
                let found = LookupError::within(LOOKUP_TIMEOUT, || what, api.get_opt(&name)).await?;
                Ok(found.as_ref().map(referenced_config_map))
            }
        };
        // The limit also holds for requests that wait for another one's look-up.
        match timeout(LOOKUP_TIMEOUT, self.config_maps.get(&key, ask)).await {
            Ok(found) => found,
            Err(_) => Err(LookupError::TooSlow { what: format!("read {key}"), within: LOOKUP_TIMEOUT }),
        }
    }

    async fn limits(&self, namespace: &str) -> Vec<LimitRangeItem> {
        let ask = || {
            let api = Api::<LimitRange>::namespaced(self.client.clone(), namespace);
            let namespace = namespace.to_owned();
            async move {
                let what = || format!("list LimitRanges of namespace {namespace}");
                // Limited here too, because a look-up that no request waits for any more must also end.
                let params = ListParams::default().limit(LIMIT_RANGES);
                let listed = LookupError::within(LOOKUP_TIMEOUT, what, api.list(&params)).await?;
                Ok::<_, LookupError>(limits(listed.items))
            }
        };
        let error = match timeout(LOOKUP_TIMEOUT, self.limits.get(&namespace.to_owned(), ask)).await {
            Ok(Ok(limits)) => return limits.map(|limits| limits.to_vec()).unwrap_or_default(),
            Ok(Err(error)) => chain(&error),
            Err(_) => format!("no answer within {LOOKUP_TIMEOUT:?}"),
        };
        // The API server checks the pod against them again.
        tracing::warn!(error, "LimitRanges not read; pod injected without regard to them");
        Vec::new()
    }
}

/// What the ranges limit; `None` where there are none.
fn limits(ranges: Vec<LimitRange>) -> Option<Arc<[LimitRangeItem]>> {
    let limits: Arc<[_]> = ranges.into_iter().filter_map(|range| range.spec).flat_map(|spec| spec.limits).collect();
    (!limits.is_empty()).then_some(limits)
}

fn referenced_config_map(map: &ConfigMap) -> ReferencedConfigMap {
    let meta = &map.metadata;
    let labelled = |name: &str| meta.labels.as_ref().is_some_and(|labels| labels.contains_key(name));
    ReferencedConfigMap {
        owned: meta.owner_references.as_ref().is_some_and(|owners| !owners.is_empty()),
        immutable: map.immutable.unwrap_or(false),
        part: labelled(labels::CONFIG) || labelled(labels::VERSION),
        baseline: wants_baseline(map),
    }
}

/// The config as a new pod gets it. Without parts where one of them may not be served here: the agent takes the mounted ones for all.
fn resolved(config: &VersionedConfig, pod: &ObjectMeta, secrets: bool) -> ResolvedConfig {
    let selects = config.spec.rollout.steps.iter().any(|step| step.selector.is_some());
    let none = ResolvedConfig { selects, ..ResolvedConfig::default() };
    let Some(status) = &config.status else { return none };
    let Some(version) = newborn(status, Identity::of(config), pod) else { return none };
    let sealed = status.version(version);
    let parts = sealed.map(|sealed| sealed.parts.as_slice()).unwrap_or_default();
    let withheld = !secrets && parts.iter().any(|part| part.kind == PartKind::Secret);
    let parts = if withheld { &[] } else { parts };
    ResolvedConfig {
        version: Some(version.to_owned()),
        parts: parts
            .iter()
            .zip(1_u32..)
            .map(|(part, number)| MountedPart { kind: part.kind, name: part.name.clone(), part: number })
            .collect(),
        keys: sealed.map_or(0, |sealed| sealed.keys),
        bytes: sealed.map_or(0, |sealed| sealed.bytes),
        ..none
    }
}

#[cfg(test)]
mod tests {
    use nudge_api::VersionedConfigStatus;
    use serde_json::json;

    use super::*;
    use crate::fixtures::{sealed, shop};

    #[test]
    fn a_version_with_a_secret_is_mounted_whole_or_not_at_all() {
        for secret in 0..3 {
            let mut version = sealed("1.0.1", &["shop-a", "shop-b", "shop-c"]);
            version.parts[secret].kind = PartKind::Secret;
            let status = VersionedConfigStatus {
                current_version: Some("1.0.1".to_owned()),
                versions: vec![sealed("1.0.0", &["old"]), version],
                ..VersionedConfigStatus::default()
            };
            let parts = |secrets| {
                let resolved = resolved(&shop(status.clone()), &ObjectMeta::default(), secrets);
                assert_eq!(resolved.version.as_deref(), Some("1.0.1"));
                resolved.parts.into_iter().map(|part| (part.name, part.part)).collect::<Vec<_>>()
            };
            let part = |name: &str, number| (name.to_owned(), number);
            assert_eq!(parts(false), []);
            assert_eq!(parts(true), [part("shop-a", 1), part("shop-b", 2), part("shop-c", 3)]);
        }
    }

    #[test]
    fn a_config_without_a_version_resolves() {
        let resolved = resolved(&shop(VersionedConfigStatus::default()), &ObjectMeta::default(), true);
        assert_eq!(resolved, ResolvedConfig::default());
    }

    #[test]
    fn a_selector_of_any_step_is_seen_with_and_without_a_version() {
        let current = VersionedConfigStatus {
            current_version: Some("1".to_owned()),
            versions: vec![sealed("1", &["shop-1"])],
            ..VersionedConfigStatus::default()
        };
        let step = json!({"pods": 1, "selector": {"matchLabels": {"zone": "a"}}});
        for status in [VersionedConfigStatus::default(), current] {
            let mut config = shop(status);
            let selects = |config: &VersionedConfig| resolved(config, &ObjectMeta::default(), true).selects;
            assert!(!selects(&config));
            config.spec.rollout.steps.push(serde_json::from_value(step.clone()).unwrap());
            assert!(selects(&config));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_without_limits_is_asked_about_for_each_pod() {
        let range = |limits| serde_json::from_value::<LimitRange>(json!({"spec": {"limits": limits}})).unwrap();
        let recent = Recent::new(LIMITS);
        let seen = async |ranges: Vec<LimitRange>| {
            let answer = recent.get(&"team".to_owned(), || async { Ok::<_, ()>(limits(ranges)) }).await.unwrap();
            answer.map_or(0, |limits: Arc<[LimitRangeItem]>| limits.len())
        };
        assert_eq!(seen(vec![]).await, 0);
        assert_eq!(seen(vec![range(json!([])), LimitRange::default()]).await, 0);
        let one = range(json!([{"type": "Container", "min": {"memory": "64Mi"}}]));
        assert_eq!(seen(vec![one]).await, 1, "one that was created just now");
        assert_eq!(seen(vec![]).await, 1, "and is remembered");
    }

    #[test]
    fn a_config_map_is_reduced_to_four_flags() {
        let map = |value| referenced_config_map(&serde_json::from_value(value).unwrap());
        assert_eq!(map(json!({"metadata": {"name": "a"}})), ReferencedConfigMap::default());
        let owner = json!([{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "u"}]);
        let all = map(
            json!({"metadata": {"labels": {"nudge.dev/config": "a", "nudge.dev/baseline": "true"}, "ownerReferences": owner}, "immutable": true}),
        );
        assert_eq!(all, ReferencedConfigMap { owned: true, immutable: true, part: true, baseline: true });
        let odd = map(json!({"metadata": {"labels": {"nudge.dev/baseline": "yes"}}}));
        assert_eq!(odd, ReferencedConfigMap::default());
    }
}
