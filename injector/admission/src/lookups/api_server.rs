//! Look-ups at the API server.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::authentication::v1::UserInfo;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::PostParams;
use kube::{Api, Client};
use nudge_api::{PartKind, VersionApproval, VersionedConfig};
use nudge_core::governance::Policies;
use nudge_core::namespaces::NamespaceRule;
use nudge_server::rates::{Rate, Rates};
use nudge_server::slots::Peer;

use super::{AttendedKind, LookupError, Lookups, Right};
use crate::review::Request;
use crate::tenants::TenantShares;

/// Time limit of one look-up. The shortest webhook has 2 s and makes at most three.
pub const LOOKUP_TIMEOUT: Duration = Duration::from_millis(600);
/// Time limit of an access review. Its webhooks have 3 s, and make at most two other look-ups. Without an answer a version is not
/// marked, and somebody has to make it current by hand.
const REVIEW_TIMEOUT: Duration = Duration::from_millis(1500);
/// How often one address may make Nudge ask the API server about users and unknown namespaces, in each namespace. The API server is one such
/// address: clients ask it 50 times a second in the long run by default (client-go, Argo CD, Flux), and each of their
/// requests needs one access review, seldom three. Other clients can't use it up, because each address has a rate of its own.
const QUERY_RATE: Rate = Rate { per_second: 50, burst: 200 };
/// How often over all namespaces: as much as twenty of them, and of one user half.
const TOTAL_QUERY_RATE: Rate = Rate { per_second: 1000, burst: 4000 };
/// Access reviews at the same time, of one address a quarter; its tenants share that.
const REVIEWS: usize = 256;
/// Most addresses and namespaces that are counted apart.
const MAX_COUNTED_KEYS: usize = 4096;

/// How many pods use a config, by namespace and name.
pub type Subscribers = Arc<dyn Fn(&str, &str) -> Option<usize> + Send + Sync>;
/// Whether something is known of a namespace.
pub type KnownNamespaces = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// What the index knows of a config, by namespace and name.
pub type KnownConfigs = Arc<dyn Fn(&str, &str) -> Option<Arc<VersionedConfig>> + Send + Sync>;

/// The policies of a namespace.
pub type KnownPolicies = Arc<dyn Fn(&str) -> Policies + Send + Sync>;

/// The service accounts of the roles, as `namespace:name`.
#[derive(Clone, Debug)]
pub struct Accounts {
    /// Account of the role `control`.
    pub control: String,
    /// Account of the role `sources`.
    pub sources: String,
    /// Account of the role `analysis`.
    pub analysis: String,
}

/// What users have decided about versions of a config, by namespace and name.
pub type KnownApprovals = Arc<dyn Fn(&str, &str) -> Vec<Arc<VersionApproval>> + Send + Sync>;

/// The kinds of the objects that are labelled as parts of a config, by namespace and name.
pub type KnownPartKinds = Arc<dyn Fn(&str, &str) -> BTreeSet<PartKind> + Send + Sync>;

/// Asks the API server, and the index by functions.
#[derive(Clone)]
pub struct KubeLookups {
    client: Client,
    subscribers: Subscribers,
    known_enabled: KnownNamespaces,
    secrets: KnownNamespaces,
    configs: Option<KnownConfigs>,
    policies: Option<KnownPolicies>,
    approvals: Option<KnownApprovals>,
    part_kinds: Option<KnownPartKinds>,
    accounts: Option<Accounts>,
    enabled: NamespaceRule,
    asking: Arc<Asking>,
    reviews: Arc<TenantShares>,
}

/// How often each address asks: in a namespace, for a user, and over all.
struct Asking {
    each: Rates<(Peer, String)>,
    users: Rates<(Peer, String)>,
    all: Rates<Peer>,
}

impl Asking {
    fn new(each: Rate, all: Rate) -> Arc<Self> {
        let now = Instant::now();
        let of_user = Rate { per_second: all.per_second.div_ceil(2), burst: all.burst.div_ceil(2) };
        Arc::new(Self {
            each: Rates::new(each, MAX_COUNTED_KEYS, now),
            users: Rates::new(of_user, MAX_COUNTED_KEYS, now),
            all: Rates::new(all, MAX_COUNTED_KEYS, now),
        })
    }

    /// Counts one question, or gives the rate that is used up. What is refused in one namespace is not counted for the user, nor what is
    /// refused to the user over all.
    fn take(&self, peer: Peer, user: &str, namespace: &str, now: Instant) -> Result<(), Rate> {
        let counted = |taken: bool, rate: Rate| if taken { Ok(()) } else { Err(rate) };
        counted(self.each.take((peer, namespace.to_owned()), now), self.each.rate())?;
        counted(self.users.take((peer, user.to_owned()), now), self.users.rate())?;
        counted(self.all.take(peer, now), self.all.rate())
    }
}

impl KubeLookups {
    /// Uses `client`, which must be created on the runtime of the admission server, where its tasks run. `enabled` decides about namespaces
    /// that `known_enabled` does not know. In namespaces of `secrets` versions may have Secrets as parts.
    pub fn new(
        client: Client,
        subscribers: Subscribers,
        known_enabled: KnownNamespaces,
        secrets: KnownNamespaces,
        enabled: NamespaceRule,
    ) -> Self {
        let (asking, reviews) = (Asking::new(QUERY_RATE, TOTAL_QUERY_RATE), Arc::new(TenantShares::new(REVIEWS, 1)));
        Self {
            client,
            subscribers,
            known_enabled,
            secrets,
            configs: None,
            policies: None,
            approvals: None,
            part_kinds: None,
            accounts: None,
            enabled,
            asking,
            reviews,
        }
    }

    /// With another rate for each address and namespace, and for each address over all.
    #[must_use]
    pub fn asking_at(self, each: Rate, all: Rate) -> Self {
        Self { asking: Asking::new(each, all), ..self }
    }

    /// Judges versions when they are created, by these configs.
    #[must_use]
    pub fn knowing(self, configs: KnownConfigs) -> Self {
        Self { configs: Some(configs), ..self }
    }

    /// Warns of versions that have to wait because of these policies.
    #[must_use]
    pub fn under(self, policies: KnownPolicies) -> Self {
        Self { policies: Some(policies), ..self }
    }

    /// Bounds what users decide, by what these have decided.
    #[must_use]
    pub fn bounding(self, approvals: KnownApprovals) -> Self {
        Self { approvals: Some(approvals), ..self }
    }

    /// Asks who deletes a config for the right to delete these kinds, too.
    #[must_use]
    pub fn deleting(self, part_kinds: KnownPartKinds) -> Self {
        Self { part_kinds: Some(part_kinds), ..self }
    }

    /// Warns of objects that none of these accounts may look at.
    #[must_use]
    pub fn attended_by(self, accounts: Accounts) -> Self {
        Self { accounts: Some(accounts), ..self }
    }

    /// Returns whether the user of a review may do what it asks about.
    async fn reviewed(
        &self,
        request: &Request,
        what: impl FnOnce() -> String,
        review: SubjectAccessReview,
    ) -> Result<bool, LookupError> {
        let api = Api::<SubjectAccessReview>::all(self.client.clone());
        let parameters = PostParams::default();
        let reviewed = async {
            let _turn = self.reviews.take(&request.tenant(), 1).await;
            api.create(&parameters, &review).await
        };
        let answered = LookupError::within(REVIEW_TIMEOUT, what, reviewed).await?;
        Ok(answered.status.is_some_and(|status| status.allowed))
    }

    /// Counts a question that a client makes Nudge ask. `namespace` is empty for those about unknown namespaces.
    fn count(&self, request: &Request, namespace: &str, what: impl FnOnce() -> String) -> Result<(), LookupError> {
        let caller = request.caller;
        let too_many =
            |rate: Rate| LookupError::TooMany { what: what(), address: caller.address, per_second: rate.per_second };
        self.asking.take(caller.peer(), request.user(), namespace, Instant::now()).map_err(too_many)
    }

    async fn ask<T>(
        &self,
        what: impl FnOnce() -> String,
        answer: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, LookupError> {
        LookupError::within(LOOKUP_TIMEOUT, what, answer).await
    }
}

impl Lookups for KubeLookups {
    async fn config(&self, namespace: &str, name: &str) -> Result<Option<VersionedConfig>, LookupError> {
        let api = Api::<VersionedConfig>::namespaced(self.client.clone(), namespace);
        self.ask(|| format!("read VersionedConfig {namespace}/{name}"), api.get_opt(name)).await
    }

    async fn is_terminating(&self, namespace: &str) -> Result<bool, LookupError> {
        let api = Api::<Namespace>::all(self.client.clone());
        let found = self.ask(|| format!("read Namespace {namespace}"), api.get_metadata_opt(namespace)).await?;
        Ok(found.is_none_or(|found| found.metadata.deletion_timestamp.is_some()))
    }

    async fn is_enabled(&self, request: &Request, namespace: &str) -> Result<bool, LookupError> {
        if (self.known_enabled)(namespace) {
            return Ok(true);
        }
        self.count(request, "", || "look up the namespace".to_owned())?;
        // The API server asks only about enabled namespaces, and may know one before our watch does.
        let api = Api::<Namespace>::all(self.client.clone());
        let found = self.ask(|| format!("read Namespace {namespace}"), api.get_metadata_opt(namespace)).await?;
        Ok(found.is_some_and(|found| self.enabled.holds(namespace, found.metadata.labels.as_ref())))
    }

    fn subscribers(&self, namespace: &str, config: &str) -> Option<usize> {
        (self.subscribers)(namespace, config)
    }

    fn may_have_secrets(&self, namespace: &str) -> bool {
        (self.secrets)(namespace)
    }

    fn known_config(&self, namespace: &str, name: &str) -> Option<Arc<VersionedConfig>> {
        self.configs.as_ref().and_then(|configs| configs(namespace, name))
    }

    fn policies(&self, namespace: &str) -> Policies {
        self.policies.as_ref().map_or_else(Policies::default, |policies| policies(namespace))
    }

    fn approvals(&self, namespace: &str, config: &str) -> Vec<Arc<VersionApproval>> {
        self.approvals.as_ref().map_or_else(Vec::new, |approvals| approvals(namespace, config))
    }

    fn part_kinds(&self, namespace: &str, config: &str) -> BTreeSet<PartKind> {
        self.part_kinds.as_ref().map_or_else(BTreeSet::new, |part_kinds| part_kinds(namespace, config))
    }

    async fn config_map(
        &self,
        request: &Request,
        namespace: &str,
        name: &str,
    ) -> Result<Option<ConfigMap>, LookupError> {
        let what = || format!("read ConfigMap {namespace}/{name}");
        self.count(request, namespace, what)?;
        let api = Api::<ConfigMap>::namespaced(self.client.clone(), namespace);
        self.ask(what, api.get_opt(name)).await
    }

    async fn may(&self, request: &Request, namespace: &str, right: Right<'_>) -> Result<bool, LookupError> {
        let what = || format!("review who may {right} in namespace {namespace}");
        self.count(request, namespace, what)?;
        let (verb, group, resource, name) = right.parts();
        let review = access_review(&request.user_info, namespace, (verb, group, resource), name);
        self.reviewed(request, what, review).await
    }

    async fn attends(&self, request: &Request, namespace: &str, what: AttendedKind) -> Result<bool, LookupError> {
        let Some(accounts) = &self.accounts else { return Ok(true) };
        let account = match what {
            AttendedKind::Sources => &accounts.sources,
            AttendedKind::Secrets => &accounts.control,
            AttendedKind::Analyses => &accounts.analysis,
        };
        let asked = || format!("review whether {account} may work in namespace {namespace}");
        self.count(request, namespace, asked)?;
        let review = access_review(&service_account(account), namespace, what.parts(), None);
        self.reviewed(request, asked, review).await
    }
}

/// A service account as the API server knows it. `account` is `namespace:name`.
fn service_account(account: &str) -> UserInfo {
    let namespace = account.split(':').next().unwrap_or_default();
    let groups = ["system:serviceaccounts", &format!("system:serviceaccounts:{namespace}"), "system:authenticated"];
    UserInfo {
        username: Some(format!("system:serviceaccount:{account}")),
        groups: Some(groups.map(str::to_owned).into()),
        ..UserInfo::default()
    }
}

fn access_review(
    user: &UserInfo,
    namespace: &str,
    (verb, group, resource): (&str, &str, &str),
    name: Option<&str>,
) -> SubjectAccessReview {
    let (resource, subresource) = resource.split_once('/').map_or((resource, None), |(one, of)| (one, Some(of)));
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: user.username.clone(),
            uid: user.uid.clone(),
            groups: user.groups.clone(),
            extra: user.extra.clone(),
            resource_attributes: Some(ResourceAttributes {
                verb: Some(verb.to_owned()),
                group: Some(group.to_owned()),
                version: Some("*".to_owned()),
                resource: Some(resource.to_owned()),
                subresource: subresource.map(str::to_owned),
                namespace: Some(namespace.to_owned()),
                name: name.map(str::to_owned),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use hyper::Response;
    use kube::client::Body;
    use serde_json::json;

    use super::*;
    use crate::fixtures;

    /// All tenants of a cluster come by way of one client, the API server.
    #[tokio::test(start_paused = true)]
    async fn slow_reviews_of_one_namespace_leave_turns_to_another() {
        let service = tower::service_fn(async |request: hyper::Request<Body>| {
            let body = request.into_body().collect_bytes().await?;
            if String::from_utf8_lossy(&body).contains("\"namespace\":\"loud\"") {
                std::future::pending::<()>().await;
            }
            let allowed = json!({
                "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
                "metadata": {}, "spec": {}, "status": {"allowed": true}
            });
            Ok::<_, kube::Error>(Response::new(Body::from(allowed.to_string().into_bytes())))
        });
        let none: KnownNamespaces = Arc::new(|_: &str| false);
        let subscribers: Subscribers = Arc::new(|_: &str, _: &str| None);
        let client = Client::new(service, "ns");
        let lookups = KubeLookups::new(client, subscribers, Arc::clone(&none), none, NamespaceRule::Labelled);
        for _ in 0..REVIEWS / 2 {
            tokio::spawn(may_create(lookups.clone(), "loud"));
        }
        tokio::task::yield_now().await;
        assert!(may_create(lookups, "quiet").await.unwrap());
    }

    async fn may_create(lookups: KubeLookups, namespace: &'static str) -> Result<bool, LookupError> {
        let object = json!({"metadata": {"name": "shop"}});
        let mut request = fixtures::request("VersionedConfig", "CREATE", None, Some(&object));
        request.namespace = Some(namespace.to_owned());
        lookups.may(&request, namespace, Right::CreateConfigs).await
    }

    #[test]
    fn an_address_asks_no_more_in_many_namespaces() {
        let rate = |burst| Rate { per_second: 1, burst };
        let (asking, now) = (Asking::new(rate(5), rate(20)), Instant::now());
        let asked = |host, namespaces: u32, users: u32| {
            let peer = IpAddr::from([10, 0, 0, host]).into();
            let names = (0..namespaces).flat_map(|number| vec![(format!("team-{number}"), number % users); 10]);
            names.filter(|(team, user)| asking.take(peer, &format!("user-{user}"), team, now).is_ok()).count()
        };
        assert_eq!((asked(1, 1, 1), asked(2, 100, 10)), (5, 20));
        // What was refused in one namespace has taken nothing from the others.
        assert_eq!((asked(1, 3, 3), asked(3, 2, 1)), (10, 10));
        assert_eq!((asked(4, 100, 1), asked(5, 100, 2)), (10, 20), "a user has half");
    }
}
