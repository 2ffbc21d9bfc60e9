//! The look-ups that injection needs beyond the pod: configs and features from this process, ConfigMaps, Secrets and
//! LimitRanges from the API server.

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{ConfigMap, LimitRange, LimitRangeItem, Secret};
use kube::api::ListParams;
use kube::core::ObjectMeta;
use kube::{Api, Client};
use nudge_api::{PartKind, VersionedConfig};
use nudge_cluster::call::{CallError, call_within};
use nudge_cluster::index::Index;
use nudge_cluster::part_objects::read_part;
use nudge_cluster::rights::may_make_secrets;
use nudge_core::baseline::{
    BaselineNamespace, BaselineObject, BaselineVerdict, NamespaceBaseline, SECRETS_NOT_MADE, baseline_verdict,
};
use nudge_core::identity::Identity;
use nudge_core::injection::{Features, MountedPart, ResolvedConfig};
use nudge_core::keys::{ConfigKey, ObjectKey};
use nudge_core::rollout::version_for_new_pod;
use nudge_core::versions::plain_digits;
use nudge_protocol::error_chain::chain;
use nudge_protocol::labels;
use nudge_server::rates::{Rate, Rates};
use nudge_server::slots::Peer;
use tokio::sync::watch;
use tokio::time::timeout;

use super::LookupError;
use super::answer_cache::{AnswerCache, CacheSettings};
use super::api_server::LOOKUP_TIMEOUT;
use crate::review::ReviewRequest;
use crate::tenants::TenantShares;

/// The cache of ConfigMaps and Secrets, which keeps the verdict about each.
const OBJECT_CACHE: CacheSettings =
    CacheSettings { renewal_age: Duration::from_secs(2), max_age: Duration::from_secs(10), max_entries: 2048 };
/// The maximum number of concurrent reads of ConfigMaps and Secrets. An address has a quarter, which its tenants share.
const MAX_CONCURRENT_READS: usize = 32;
/// The maximum rate of reads of one namespace's ConfigMaps and Secrets that one address may cause. The API server is
/// one such address. The pods of a workload share an answer, unless the object does not exist.
const READ_RATE: Rate = Rate { per_second: 200, burst: 500 };
/// The maximum number of addresses that are counted apart.
const MAX_COUNTED_ADDRESSES: usize = 4096;
/// The cache of the LimitRanges of namespaces that have any: the first may be created the next moment.
const LIMIT_CACHE: CacheSettings =
    CacheSettings { renewal_age: Duration::from_secs(3), max_age: Duration::from_secs(10), max_entries: 512 };
/// The maximum number of LimitRanges of one namespace, which usually has one or two.
const MAX_LIMIT_RANGES: u32 = 50;

/// The state of this process that injection needs.
#[derive(Clone)]
pub struct PodLookupState {
    /// The configs and the namespaces.
    pub index: Arc<Index>,
    /// The features of the cluster; `None` until they were read for the first time.
    pub features: watch::Receiver<Option<Features>>,
    /// The CA bundle that agents trust (PEM).
    pub hub_ca: watch::Receiver<Arc<str>>,
}

/// The look-ups of the pod webhook.
pub trait PodLookups: Send + Sync + 'static {
    /// Returns the features of the cluster and the CA bundle that agents trust, or the reason why pods can't be
    /// injected yet.
    fn basis(&self) -> Result<(Features, Arc<str>), &'static str>;

    /// Returns the config as a new pod of this service account gets it.
    fn config(&self, namespace: &str, name: &str, pod: &ObjectMeta, account: &str) -> Option<ResolvedConfig>;

    /// Returns whether an object that the pod of a review references becomes a config; `None` if it does not exist, or
    /// is a Secret that Nudge may not read.
    fn baseline(
        &self,
        request: &ReviewRequest,
        kind: PartKind,
        namespace: &str,
        name: &str,
    ) -> impl Future<Output = Result<Option<BaselineVerdict>, LookupError>> + Send;

    /// Reads the limits of a namespace. Returns none if they can't be read.
    fn limits(&self, namespace: &str) -> impl Future<Output = Vec<LimitRangeItem>> + Send;
}

/// The look-ups in this process and at the API server.
pub struct KubePodLookups {
    client: Client,
    state: PodLookupState,
    objects: AnswerCache<ObjectKey, BaselineVerdict>,
    limits: AnswerCache<String, Arc<[LimitRangeItem]>>,
    reads: Arc<TenantShares>,
    read_rates: Arc<Rates<(Peer, String)>>,
}

impl KubePodLookups {
    /// Creates look-ups with `client`, which must be created on the runtime of the admission server.
    pub fn new(client: Client, state: PodLookupState) -> Self {
        Self {
            client,
            state,
            objects: AnswerCache::new(OBJECT_CACHE),
            limits: AnswerCache::new(LIMIT_CACHE),
            reads: Arc::new(TenantShares::new(MAX_CONCURRENT_READS, 1)),
            read_rates: Arc::new(Rates::new(READ_RATE, MAX_COUNTED_ADDRESSES, Instant::now())),
        }
    }
}

impl PodLookups for KubePodLookups {
    fn basis(&self) -> Result<(Features, Arc<str>), &'static str> {
        if !self.state.index.is_synced() {
            return Err("it has not listed all configs yet");
        }
        let features = self.state.features.borrow();
        let features = features.ok_or("it does not know the versions of the API server and the nodes yet")?;
        Ok((features, Arc::clone(&self.state.hub_ca.borrow())))
    }

    fn config(&self, namespace: &str, name: &str, pod: &ObjectMeta, account: &str) -> Option<ResolvedConfig> {
        let index = &self.state.index;
        let config = index.config(&ConfigKey::parse(namespace, name).ok()?)?;
        if !config.spec.admits(account) {
            return Some(ResolvedConfig { closed: true, ..ResolvedConfig::default() });
        }
        Some(resolve(&config, pod, index.may_read_secrets(namespace)))
    }

    async fn baseline(
        &self,
        request: &ReviewRequest,
        kind: PartKind,
        namespace: &str,
        name: &str,
    ) -> Result<Option<BaselineVerdict>, LookupError> {
        let index = &self.state.index;
        if kind == PartKind::Secret && !index.may_read_secrets(namespace) {
            return Ok(None);
        }
        let key = ObjectKey::new(kind, namespace, name);
        let query = || {
            let client = self.client.clone();
            let (name, action, namespace) = (name.to_owned(), format!("reading {key}"), namespace.to_owned());
            let (reads, read_rates) = (Arc::clone(&self.reads), Arc::clone(&self.read_rates));
            let (caller, tenant) = (request.caller, request.tenant());
            let of_namespace = BaselineNamespace {
                baseline: NamespaceBaseline::of(index.namespace_label(&namespace, labels::BASELINE).as_deref()),
                configs: index.count_configs(&namespace),
            };
            async move {
                if !read_rates.take((caller.peer(), namespace.clone()), Instant::now()) {
                    let per_second = read_rates.rate().per_second;
                    return Err(LookupError::TooMany { action, address: caller.address, per_second });
                }
                // Each answer has up to 1 MiB: this bounds the memory of concurrent ones.
                let _permit = reads.take(&tenant, 1).await;
                // The values are wiped with the answer.
                let object = read_part::<ConfigMap, Secret>(&client, &namespace, kind, &name);
                let Some(object) = call_within(LOOKUP_TIMEOUT, || action, object).await? else { return Ok(None) };
                let verdict = baseline_verdict(&BaselineObject::from(&object), of_namespace);
                if kind == PartKind::Secret && verdict.becomes_config() && !may_make(&client, &namespace).await {
                    return Ok(Some(BaselineVerdict::Ordinary(SECRETS_NOT_MADE)));
                }
                Ok(Some(verdict))
            }
        };
        // The limit also holds for requests that wait for another one's look-up.
        match timeout(LOOKUP_TIMEOUT, self.objects.get(&key, query)).await {
            Ok(answer) => answer,
            Err(_) => Err(CallError::Timeout { what: format!("reading {key}"), limit: LOOKUP_TIMEOUT }.into()),
        }
    }

    async fn limits(&self, namespace: &str) -> Vec<LimitRangeItem> {
        let query = || {
            let api = Api::<LimitRange>::namespaced(self.client.clone(), namespace);
            let namespace = namespace.to_owned();
            async move {
                let action = || format!("listing LimitRanges of namespace {namespace}");
                // The limit holds here too, because a look-up that no request waits for any more must also end.
                let params = ListParams::default().limit(MAX_LIMIT_RANGES);
                let listed = call_within(LOOKUP_TIMEOUT, action, api.list(&params)).await?;
                Ok::<_, CallError>(collect_limits(listed.items))
            }
        };
        let error = match timeout(LOOKUP_TIMEOUT, self.limits.get(&namespace.to_owned(), query)).await {
            Ok(Ok(limits)) => return limits.map(|limits| limits.to_vec()).unwrap_or_default(),
            Ok(Err(error)) => chain(&error),
            Err(_) => format!("no answer within {LOOKUP_TIMEOUT:?}"),
        };
        // The API server checks the pod against them again.
        tracing::warn!(error, "LimitRanges not read; pod injected without regard to them");
        Vec::new()
    }
}

/// Returns the limits of all ranges; `None` if there are none.
fn collect_limits(ranges: Vec<LimitRange>) -> Option<Arc<[LimitRangeItem]>> {
    let limits: Arc<[_]> = ranges.into_iter().filter_map(|range| range.spec).flat_map(|spec| spec.limits).collect();
    (!limits.is_empty()).then_some(limits)
}

/// Returns whether Nudge may make versions of Secrets in the namespace, as far as the API server says.
async fn may_make(client: &Client, namespace: &str) -> bool {
    match timeout(LOOKUP_TIMEOUT, may_make_secrets(client, namespace)).await {
        Ok(Ok(may)) => may,
        Ok(Err(error)) => {
            tracing::warn!(error = chain(&error), "rights not known; no config is made of a Secret");
            false
        }
        Err(_) => false,
    }
}

/// Returns the config as a new pod gets it. If one of its parts may not be served here, it has no parts: the agent
/// takes the mounted ones for all.
fn resolve(config: &VersionedConfig, pod: &ObjectMeta, secrets: bool) -> ResolvedConfig {
    let selects = config.spec.rollout.steps.iter().any(|step| step.selector.is_some());
    let objects = config.spec.objects.clone();
    let unresolved = ResolvedConfig { selects, objects, serves_secrets: secrets, ..ResolvedConfig::default() };
    let Some(status) = &config.status else { return unresolved };
    let Some(version) = version_for_new_pod(status, Identity::of(config), pod) else { return unresolved };
    let sealed = status.version(version);
    let parts = sealed.map(|sealed| sealed.parts.as_slice()).unwrap_or_default();
    let is_withheld = !secrets && parts.iter().any(|part| part.kind == PartKind::Secret);
    let parts = if is_withheld { &[] } else { parts };
    ResolvedConfig {
        version: Some(version.to_owned()),
        parts: parts
            .iter()
            .zip(1_u32..)
            .map(|(part, number)| MountedPart {
                kind: part.kind,
                name: part.name.clone(),
                part: number,
                digest: plain_digits(&part.digest).map(str::to_owned),
            })
            .collect(),
        keys: sealed.map_or(0, |sealed| sealed.keys),
        bytes: sealed.map_or(0, |sealed| sealed.bytes),
        ..unresolved
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
                let resolved = resolve(&shop(status.clone()), &ObjectMeta::default(), secrets);
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
        for serves_secrets in [false, true] {
            let resolved = resolve(&shop(VersionedConfigStatus::default()), &ObjectMeta::default(), serves_secrets);
            assert_eq!(resolved, ResolvedConfig { serves_secrets, ..ResolvedConfig::default() });
        }
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
            let selects = |config: &VersionedConfig| resolve(config, &ObjectMeta::default(), true).selects;
            assert!(!selects(&config));
            config.spec.rollout.steps.push(serde_json::from_value(step.clone()).unwrap());
            assert!(selects(&config));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_without_limits_is_asked_about_for_each_pod() {
        let range = |limits| serde_json::from_value::<LimitRange>(json!({"spec": {"limits": limits}})).unwrap();
        let recent = AnswerCache::new(LIMIT_CACHE);
        let seen = async |ranges: Vec<LimitRange>| {
            let answer =
                recent.get(&"team".to_owned(), || async { Ok::<_, ()>(collect_limits(ranges)) }).await.unwrap();
            answer.map_or(0, |limits: Arc<[LimitRangeItem]>| limits.len())
        };
        assert_eq!(seen(vec![]).await, 0);
        assert_eq!(seen(vec![range(json!([])), LimitRange::default()]).await, 0);
        let one = range(json!([{"type": "Container", "min": {"memory": "64Mi"}}]));
        assert_eq!(seen(vec![one]).await, 1, "one that was created just now");
        assert_eq!(seen(vec![]).await, 1, "and is remembered");
    }
}
