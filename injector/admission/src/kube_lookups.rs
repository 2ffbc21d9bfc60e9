//! Look-ups at the API server.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::authentication::v1::UserInfo;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::PostParams;
use kube::{Api, Client};
use nudge_api::VersionedConfig;
use nudge_core::namespaces::Enabled;

use super::lookups::{LookupError, Lookups};

/// Time limit of one look-up. The shortest webhook has 2 s and makes at most three.
pub const LOOKUP_TIMEOUT: Duration = Duration::from_millis(600);
/// Time limit of an access review. Its webhooks have 3 s, and make at most one other look-up before it. Without an answer a version is not
/// marked, and somebody has to make it current by hand.
const REVIEW_TIMEOUT: Duration = Duration::from_millis(1800);

/// How many pods subscribe to a config, by namespace and name.
pub type Subscribers = Arc<dyn Fn(&str, &str) -> usize + Send + Sync>;
/// Whether a namespace is known as enabled.
pub type KnownEnabled = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// Asks the API server, and the index by functions.
#[derive(Clone)]
pub struct KubeLookups {
    client: Client,
    subscribers: Subscribers,
    known_enabled: KnownEnabled,
    enabled: Enabled,
}

impl KubeLookups {
    /// Uses `client`, which must be created on the runtime of the admission server, where its tasks run. `enabled` decides about namespaces
    /// that `known_enabled` does not know.
    pub fn new(client: Client, subscribers: Subscribers, known_enabled: KnownEnabled, enabled: Enabled) -> Self {
        Self { client, subscribers, known_enabled, enabled }
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

    async fn is_enabled(&self, namespace: &str) -> Result<bool, LookupError> {
        if (self.known_enabled)(namespace) {
            return Ok(true);
        }
        // The API server asks only about enabled namespaces, and may know one before our watch does.
        let api = Api::<Namespace>::all(self.client.clone());
        let found = self.ask(|| format!("read Namespace {namespace}"), api.get_metadata_opt(namespace)).await?;
        Ok(found.is_some_and(|found| self.enabled.holds(namespace, found.metadata.labels.as_ref())))
    }

    fn subscribers(&self, namespace: &str, config: &str) -> usize {
        (self.subscribers)(namespace, config)
    }

    async fn may_update_config_map(&self, user: &UserInfo, namespace: &str, name: &str) -> Result<bool, LookupError> {
        let review = access_review(user, namespace, name);
        let api = Api::<SubjectAccessReview>::all(self.client.clone());
        let what = || format!("review who may update ConfigMap {namespace}/{name}");
        let parameters = PostParams::default();
        let answered = LookupError::within(REVIEW_TIMEOUT, what, api.create(&parameters, &review)).await?;
        Ok(answered.status.is_some_and(|status| status.allowed))
    }
}

fn access_review(user: &UserInfo, namespace: &str, name: &str) -> SubjectAccessReview {
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: user.username.clone(),
            uid: user.uid.clone(),
            groups: user.groups.clone(),
            extra: user.extra.clone(),
            resource_attributes: Some(ResourceAttributes {
                verb: Some("update".to_owned()),
                version: Some("v1".to_owned()),
                resource: Some("configmaps".to_owned()),
                namespace: Some(namespace.to_owned()),
                // Without a name the review is about all ConfigMaps, which is stricter.
                name: (!name.is_empty()).then(|| name.to_owned()),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    }
}
