use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::authentication::v1::UserInfo;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::PostParams;
use kube::core::{DynamicObject, PartialObjectMeta};
use kube::{Api, Client, ResourceExt as _};
use nudge_api::{PartKind, VersionedConfig};
use nudge_cluster::call::{CallError, call_within};
use nudge_cluster::object_referrers::object_referrers;
use nudge_cluster::rights::{resource_right, service_account};
use nudge_core::namespaces::NamespaceRule;
use nudge_core::pods::ObjectReferrers;
use nudge_protocol::labels;
use nudge_server::rates::{Rate, Rates};
use nudge_server::slots::Peer;
use tokio::time::timeout;

use super::answer_cache::{AnswerCache, CacheSettings};
use super::{AttendedKind, IndexLookups, LookupError, Lookups, Right};
use crate::review::ReviewRequest;
use crate::tenants::TenantShares;

/// The time limit of one look-up. The shortest webhook has 2 s and makes at most three.
pub const LOOKUP_TIMEOUT: Duration = Duration::from_millis(600);
/// The cache of what pods and templates of a namespace name. Deletions at the same time share lists that began after
/// them: an older list may lack a template that was changed since.
const REFERRERS_CACHE: CacheSettings =
    CacheSettings { renewal_age: Duration::ZERO, max_age: Duration::ZERO, max_entries: 8 };
/// The time that the lists of all pods and workloads of a namespace may take. The webhook of deletions has 5 s, and
/// makes two other look-ups.
const REFERRERS_TIMEOUT: Duration = Duration::from_secs(3);
/// The time limit of an access review. Its webhooks have 3 s, and make at most two other look-ups. Without an answer a
/// version is not marked, and a user has to make it current.
const REVIEW_TIMEOUT: Duration = Duration::from_millis(1500);
/// The maximum rate of questions to the API server that one address may cause per namespace, about users and unknown
/// namespaces. The API server is one such address. By default one client (client-go, Argo CD, Flux) sends it 50
/// requests a second in the long run, and each request needs one access review, seldom three. Other addresses can't use
/// up this rate, because each has its own.
const QUERY_RATE: Rate = Rate { per_second: 50, burst: 200 };
/// The rate of one address over all namespaces, twenty times that of one namespace. A user has half of it.
const TOTAL_QUERY_RATE: Rate = Rate { per_second: 1000, burst: 4000 };
/// The maximum number of concurrent access reviews. An address has a quarter, which its tenants share.
const MAX_REVIEWS: usize = 256;
/// The maximum number of addresses, namespaces and users that are counted apart.
const MAX_COUNTED_KEYS: usize = 4096;

/// The service accounts of the roles, as `namespace:name`.
#[derive(Clone, Debug)]
pub struct Accounts {
    /// The account of the role `control`.
    pub control: String,
    /// The account of the role `sources`.
    pub sources: String,
    /// The account of the role `analysis`.
    pub analysis: String,
}

/// The look-ups at the API server and in the index.
#[derive(Clone)]
pub struct KubeLookups {
    client: Client,
    index: Arc<dyn IndexLookups>,
    namespace_rule: NamespaceRule,
    accounts: Option<Accounts>,
    query_rates: Arc<QueryRates>,
    reviews: Arc<TenantShares>,
    referrers: Arc<AnswerCache<String, Arc<ObjectReferrers>>>,
}

/// The rates of questions to the API server that each address causes: per namespace, per user, and in total.
struct QueryRates {
    namespaces: Rates<(Peer, String)>,
    users: Rates<(Peer, String)>,
    addresses: Rates<Peer>,
}

impl QueryRates {
    fn new(of_namespace: Rate, total: Rate) -> Arc<Self> {
        let now = Instant::now();
        let of_user = Rate { per_second: total.per_second.div_ceil(2), burst: total.burst.div_ceil(2) };
        Arc::new(Self {
            namespaces: Rates::new(of_namespace, MAX_COUNTED_KEYS, now),
            users: Rates::new(of_user, MAX_COUNTED_KEYS, now),
            addresses: Rates::new(total, MAX_COUNTED_KEYS, now),
        })
    }

    /// Counts one query, or returns the rate that is used up. A query refused in its namespace does not count for the
    /// user. A query refused to the user does not count for the address.
    fn take(&self, peer: Peer, user: &str, namespace: &str, now: Instant) -> Result<(), Rate> {
        let check = |is_taken: bool, rate: Rate| if is_taken { Ok(()) } else { Err(rate) };
        check(self.namespaces.take((peer, namespace.to_owned()), now), self.namespaces.rate())?;
        check(self.users.take((peer, user.to_owned()), now), self.users.rate())?;
        check(self.addresses.take(peer, now), self.addresses.rate())
    }
}

impl KubeLookups {
    /// Creates look-ups with `client`, which must be created on the runtime of the admission server. The client's tasks
    /// run there. The rule decides about namespaces that the index does not know.
    pub fn new(client: Client, index: Arc<dyn IndexLookups>, namespace_rule: NamespaceRule) -> Self {
        let query_rates = QueryRates::new(QUERY_RATE, TOTAL_QUERY_RATE);
        let reviews = Arc::new(TenantShares::new(MAX_REVIEWS, 1));
        let referrers = Arc::new(AnswerCache::new(REFERRERS_CACHE));
        Self { client, index, namespace_rule, accounts: None, query_rates, reviews, referrers }
    }

    /// Replaces the rates of queries of each address, in a namespace and in total.
    #[must_use]
    pub fn with_query_rates(self, of_namespace: Rate, total: Rate) -> Self {
        Self { query_rates: QueryRates::new(of_namespace, total), ..self }
    }

    /// Warns of objects that none of these accounts may handle.
    #[must_use]
    pub fn with_accounts(self, accounts: Accounts) -> Self {
        Self { accounts: Some(accounts), ..self }
    }

    /// Returns whether the user of a review may do action it asks about.
    async fn review_access(
        &self,
        request: &ReviewRequest,
        action: impl FnOnce() -> String,
        review: SubjectAccessReview,
    ) -> Result<bool, LookupError> {
        let api = Api::<SubjectAccessReview>::all(self.client.clone());
        let parameters = PostParams::default();
        let reviewed = async {
            let _permit = self.reviews.take(&request.tenant(), 1).await;
            api.create(&parameters, &review).await
        };
        let reviewed = call_within(REVIEW_TIMEOUT, action, reviewed).await?;
        Ok(reviewed.status.is_some_and(|status| status.allowed))
    }

    /// Counts a query that a client makes Nudge send. `namespace` is empty for those about unknown namespaces.
    fn count(
        &self,
        request: &ReviewRequest,
        namespace: &str,
        action: impl FnOnce() -> String,
    ) -> Result<(), LookupError> {
        let caller = request.caller;
        let too_many = |rate: Rate| LookupError::TooMany {
            action: action(),
            address: caller.address,
            per_second: rate.per_second,
        };
        self.query_rates.take(caller.peer(), request.user(), namespace, Instant::now()).map_err(too_many)
    }

    async fn namespace(&self, name: &str) -> Result<Option<PartialObjectMeta<Namespace>>, LookupError> {
        let api = Api::<Namespace>::all(self.client.clone());
        Ok(call_within(LOOKUP_TIMEOUT, || format!("reading Namespace {name}"), api.get_metadata_opt(name)).await?)
    }
}

impl Lookups for KubeLookups {
    async fn config(&self, namespace: &str, name: &str) -> Result<Option<VersionedConfig>, LookupError> {
        let api = Api::<VersionedConfig>::namespaced(self.client.clone(), namespace);
        let action = || format!("reading VersionedConfig {namespace}/{name}");
        Ok(call_within(LOOKUP_TIMEOUT, action, api.get_opt(name)).await?)
    }

    async fn is_terminating(&self, namespace: &str) -> Result<bool, LookupError> {
        Ok(self.namespace(namespace).await?.is_none_or(|stored| stored.metadata.deletion_timestamp.is_some()))
    }

    async fn is_enabled(&self, request: &ReviewRequest, namespace: &str) -> Result<bool, LookupError> {
        if self.index.is_enabled(namespace) {
            return Ok(true);
        }
        self.count(request, "", || "looking up the namespace".to_owned())?;
        // The API server asks only about enabled namespaces, and may know one before our watch does.
        let stored = self.namespace(namespace).await?;
        Ok(stored.is_some_and(|stored| self.namespace_rule.is_enabled(namespace, stored.metadata.labels.as_ref())))
    }

    fn index(&self) -> &dyn IndexLookups {
        &*self.index
    }

    async fn config_map(
        &self,
        request: &ReviewRequest,
        namespace: &str,
        name: &str,
    ) -> Result<Option<ConfigMap>, LookupError> {
        let action = || format!("reading ConfigMap {namespace}/{name}");
        self.count(request, namespace, action)?;
        let api = Api::<ConfigMap>::namespaced(self.client.clone(), namespace);
        Ok(call_within(LOOKUP_TIMEOUT, action, api.get_opt(name)).await?)
    }

    async fn may(&self, request: &ReviewRequest, namespace: &str, right: Right<'_>) -> Result<bool, LookupError> {
        let action = || format!("reviewing who may {right} in namespace {namespace}");
        self.count(request, namespace, action)?;
        let (right, name) = right.rbac();
        let review = access_review(&request.user_info, resource_right(namespace, right, name));
        self.review_access(request, action, review).await
    }

    async fn referrer(
        &self,
        request: &ReviewRequest,
        namespace: &str,
        (kind, name): (PartKind, &str),
    ) -> Result<Option<String>, LookupError> {
        let own = self.accounts.as_ref().map(|accounts| service_account(&accounts.control).0);
        if own.is_some() && own == request.user_info.username {
            return Ok(None);
        }
        let action = || format!("listing what names {kind} {name} in namespace {namespace}");
        self.count(request, namespace, action)?;
        let (client, of_namespace) = (self.client.clone(), namespace.to_owned());
        let list = || async move {
            // An agent does without the version that its pod was admitted with.
            let has_no_agent = |pod: &DynamicObject| !pod.labels().contains_key(labels::AGENT);
            object_referrers(&client, &of_namespace, has_no_agent).await.map(|referrers| Some(Arc::new(referrers)))
        };
        let listed = timeout(REFERRERS_TIMEOUT, self.referrers.get(&namespace.to_owned(), list)).await;
        let referrers = listed.map_err(|_| CallError::Timeout { what: action(), limit: REFERRERS_TIMEOUT })??;
        Ok(referrers.and_then(|referrers| referrers.get(&(kind, name.to_owned())).cloned()))
    }

    async fn attends(&self, request: &ReviewRequest, namespace: &str, kind: AttendedKind) -> Result<bool, LookupError> {
        let Some(accounts) = &self.accounts else { return Ok(true) };
        let account = match kind {
            AttendedKind::Sources => &accounts.sources,
            AttendedKind::Secrets => &accounts.control,
            AttendedKind::Analyses => &accounts.analysis,
        };
        let action = || format!("reviewing whether {account} may work in namespace {namespace}");
        self.count(request, namespace, action)?;
        let (username, groups) = service_account(account);
        let user = UserInfo { username: Some(username), groups: Some(groups), ..UserInfo::default() };
        let review = access_review(&user, resource_right(namespace, kind.rbac(), None));
        self.review_access(request, action, review).await
    }
}

fn access_review(user: &UserInfo, right: ResourceAttributes) -> SubjectAccessReview {
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: user.username.clone(),
            uid: user.uid.clone(),
            groups: user.groups.clone(),
            extra: user.extra.clone(),
            resource_attributes: Some(right),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use hyper::Response;
    use kube::client::Body;
    use serde_json::json;

    use super::*;
    use crate::fixtures;

    struct EmptyIndex;

    impl IndexLookups for EmptyIndex {}

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
        let client = Client::new(service, "ns");
        let lookups = KubeLookups::new(client, Arc::new(EmptyIndex), NamespaceRule::Labelled);
        for _ in 0..MAX_REVIEWS / 2 {
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

    /// Eight lists begin before one of them ends, and deletions of the same second share them.
    #[tokio::test(start_paused = true)]
    async fn deletions_of_many_versions_share_eight_lists_at_the_same_time() {
        let lists = Arc::new(AtomicUsize::new(0));
        let begun = Arc::clone(&lists);
        let service = tower::service_fn(move |_: hyper::Request<Body>| {
            let number = begun.fetch_add(1, Ordering::Relaxed);
            async move {
                tokio::time::sleep(Duration::from_millis(100)).await;
                let item = json!({"metadata": {"name": "web"}, "spec": {"template": {"spec": {"containers": [],
                    "volumes": [{"name": "a", "configMap": {"name": "shop-1"}}]}}}});
                let items: Vec<_> = (number == 0).then_some(item).into_iter().collect();
                let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items});
                Ok::<_, kube::Error>(Response::new(Body::from(list.to_string().into_bytes())))
            }
        });
        let lookups = KubeLookups::new(Client::new(service, "ns"), Arc::new(EmptyIndex), NamespaceRule::Labelled);
        let mut request = fixtures::request("ConfigMap", "DELETE", Some(&json!({"metadata": {"name": "a"}})), None);
        request.namespace = Some("team".to_owned());
        let began = tokio::time::Instant::now();
        let referrer = async |name| lookups.referrer(&request, "team", (PartKind::ConfigMap, name)).await.unwrap();
        assert_eq!(referrer("shop-1").await.as_deref(), Some("Deployment web"));
        assert_eq!((began.elapsed(), lists.load(Ordering::Relaxed)), (Duration::from_millis(100), 8));
        let names = ["shop-1", "shop-2", "shop-3", "shop-4"];
        let referrers = futures::future::join_all(names.map(referrer)).await;
        assert_eq!(
            (referrers, lists.load(Ordering::Relaxed)),
            (vec![None; 4], 24),
            "three wait for the lists after the first"
        );
    }

    #[test]
    fn an_address_asks_no_more_in_many_namespaces() {
        let rate = |burst| Rate { per_second: 1, burst };
        let (rates, now) = (QueryRates::new(rate(5), rate(20)), Instant::now());
        let asked = |host, namespaces: u32, users: u32| {
            let peer = IpAddr::from([10, 0, 0, host]).into();
            let names = (0..namespaces).flat_map(|number| vec![(format!("team-{number}"), number % users); 10]);
            names.filter(|(team, user)| rates.take(peer, &format!("user-{user}"), team, now).is_ok()).count()
        };
        assert_eq!((asked(1, 1, 1), asked(2, 100, 10)), (5, 20));
        // Refusals in one namespace have taken nothing from the other namespaces.
        assert_eq!((asked(1, 3, 3), asked(3, 2, 1)), (10, 10));
        assert_eq!((asked(4, 100, 1), asked(5, 100, 2)), (10, 20), "a user has half");
    }
}
