//! The webhooks of versions: asks what the guards must know, in the order in which it costs least.

use std::sync::Arc;

use futures::future::BoxFuture;
use kube::core::admission::Operation;
use nudge_protocol::labels;

use super::lookups::Lookups;
use super::object::VersionObject;
use super::requester::empties_namespace;
use super::review::{Request, ReviewError};
use super::verdict::Verdict;
use super::versions::{self, Digests};
use super::webhook::{Webhook, WebhookError};

/// Makes versions immutable.
#[derive(Clone, Copy, Debug, Default)]
pub struct MutateVersions;

impl MutateVersions {
    /// Where it answers.
    pub const PATH: &str = "/mutate/versions";

    fn decide(request: &Request) -> Result<Verdict, WebhookError> {
        let old = match request.operation {
            Operation::Create => None,
            Operation::Update => Some(VersionObject::old_of(request)?),
            Operation::Delete | Operation::Connect => return Ok(Verdict::allow()),
        };
        Ok(versions::make_immutable(old.as_ref(), &VersionObject::new_of(request)?))
    }
}

impl Webhook for MutateVersions {
    fn path(&self) -> &'static str {
        Self::PATH
    }

    fn review<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Result<Verdict, WebhookError>> {
        Box::pin(std::future::ready(Self::decide(request)))
    }
}

/// Guards versions.
#[derive(Clone, Debug)]
pub struct ValidateVersions<L> {
    lookups: Arc<L>,
}

impl<L: Lookups> ValidateVersions<L> {
    /// Where it answers.
    pub const PATH: &str = "/validate/versions";

    /// A guard that asks `lookups`.
    pub fn new(lookups: Arc<L>) -> Self {
        Self { lookups }
    }

    async fn decide(&self, request: &Request) -> Result<Verdict, WebhookError> {
        match request.operation {
            Operation::Create => self.create(request).await,
            Operation::Update => {
                let (old, new) = (VersionObject::old_of(request)?, VersionObject::new_of(request)?);
                Ok(versions::update(&old, &new).into())
            }
            Operation::Delete => self.delete(request).await,
            Operation::Connect => Ok(Verdict::allow()),
        }
    }

    async fn create(&self, request: &Request) -> Result<Verdict, WebhookError> {
        let object = VersionObject::new_of(request)?;
        if !object.is_labelled() {
            return Ok(Verdict::allow());
        }
        let id = match versions::shape(&object) {
            Ok(id) => id,
            Err(denial) => return Ok(Verdict::Deny(denial)),
        };
        let config = self.lookups.config(namespace(request)?, id.config.as_str()).await?;
        let record = config.as_ref().and_then(|config| config.status.as_ref());
        let mut digests = Digests::new();
        for algorithm in versions::needed_digests(&id, record) {
            digests.insert(algorithm, self.lookups.digest(object.kind, &object.content, algorithm).await?);
        }
        if let Err(denial) = versions::put_back(&object, &id, record, &digests) {
            return Ok(Verdict::Deny(denial));
        }
        let (user, namespace) = (&request.user_info, namespace(request)?);
        if versions::becomes_current(&id, config.as_ref())
            && !self.lookups.may_update_config_map(user, namespace, id.config.as_str()).await?
        {
            let user = user.username.as_deref().unwrap_or_default();
            return Ok(Verdict::Deny(versions::not_permitted(user, namespace, &object, &id)));
        }
        Ok(Verdict::allow())
    }

    async fn delete(&self, request: &Request) -> Result<Verdict, WebhookError> {
        let object = VersionObject::old_of(request)?;
        let Some(config) = object.label(labels::CONFIG).filter(|_| !empties_namespace(&request.user_info)) else {
            return Ok(Verdict::allow());
        };
        let namespace = namespace(request)?;
        let config = self.lookups.config(namespace, config).await?;
        let verdict = Verdict::from(versions::delete(&object, config.as_ref()));
        // Asked only where it makes a difference.
        if verdict.is_denied() && self.lookups.is_terminating(namespace).await? {
            return Ok(Verdict::allow());
        }
        Ok(verdict)
    }
}

impl<L: Lookups> Webhook for ValidateVersions<L> {
    fn path(&self) -> &'static str {
        Self::PATH
    }

    fn review<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Result<Verdict, WebhookError>> {
        Box::pin(self.decide(request))
    }
}

/// The namespace of a request about a namespaced object.
pub(super) fn namespace(request: &Request) -> Result<&str, ReviewError> {
    request.namespace.as_deref().filter(|name| !name.is_empty()).ok_or(ReviewError::Request("it has no namespace"))
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::admission::fixtures::{FakeLookups, digest, request, retired, shop};
    use crate::admission::lookups::DigestAlgorithm;
    use crate::admission::object::Content;
    use crate::api::VersionedConfigStatus;

    fn object() -> Value {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "a", "labels": {"nudge.dev/config": "shop", "nudge.dev/version": "1.0.1"}},
            "immutable": true, "data": {"lives": "3"}
        })
    }

    fn current() -> FakeLookups {
        let status = VersionedConfigStatus { current: Some("1.0.1".into()), ..Default::default() };
        FakeLookups { config: Some(shop(status)), ..FakeLookups::default() }
    }

    async fn reviewed(lookups: FakeLookups, request: &Request) -> (Verdict, Vec<String>) {
        let lookups = Arc::new(lookups);
        let verdict = ValidateVersions::new(Arc::clone(&lookups)).review(request).await.unwrap();
        let asked = std::mem::take(&mut *lookups.asked.lock().unwrap());
        (verdict, asked)
    }

    #[tokio::test]
    async fn the_namespace_is_looked_at_only_before_a_refusal() {
        let deletion = request("ConfigMap", "DELETE", Some(&object()), None);
        let (verdict, asked) = reviewed(current(), &deletion).await;
        assert!(verdict.is_denied());
        assert_eq!(asked, ["config team/shop", "terminating team"]);
        let (verdict, asked) = reviewed(FakeLookups::default(), &deletion).await;
        assert_eq!((verdict, asked), (Verdict::allow(), vec!["config team/shop".to_owned()]));
        let terminating = FakeLookups { terminating: true, ..current() };
        assert_eq!(reviewed(terminating, &deletion).await.0, Verdict::allow());
    }

    #[tokio::test]
    async fn the_namespace_controller_passes_unasked() {
        let mut deletion = request("ConfigMap", "DELETE", Some(&object()), None);
        deletion.user_info.username = Some("system:serviceaccount:kube-system:namespace-controller".into());
        assert_eq!(reviewed(current(), &deletion).await, (Verdict::allow(), Vec::new()));
    }

    #[tokio::test]
    async fn a_pruned_version_can_be_put_back() {
        let content = Content([("lives".to_owned(), b"3".to_vec())].into());
        let digests = [digest(&content, DigestAlgorithm::HmacSha256)];
        let record = || {
            let current = Some("1.0.0".to_owned());
            let status =
                VersionedConfigStatus { current, retired: vec![retired("1.0.1", &digests)], ..Default::default() };
            FakeLookups { config: Some(shop(status)), ..FakeLookups::default() }
        };
        let same = request("ConfigMap", "CREATE", None, Some(&object()));
        assert_eq!(reviewed(record(), &same).await.0, Verdict::allow());
        let mut other = object();
        other["data"]["lives"] = json!("4");
        assert!(reviewed(record(), &request("ConfigMap", "CREATE", None, Some(&other))).await.0.is_denied());
    }

    #[tokio::test]
    async fn who_makes_the_first_version_must_be_allowed_to_publish_it() {
        let creation = request("ConfigMap", "CREATE", None, Some(&object()));
        let lookups = |may_update| FakeLookups {
            config: Some(shop(VersionedConfigStatus::default())),
            may_update,
            ..FakeLookups::default()
        };
        let (verdict, asked) = reviewed(lookups(false), &creation).await;
        assert!(verdict.is_denied());
        assert_eq!(asked.last().map(String::as_str), Some("may eve update team/shop"));
        assert_eq!(reviewed(lookups(true), &creation).await.0, Verdict::allow());
    }

    #[tokio::test]
    async fn a_request_that_lacks_its_object_is_no_review() {
        let mut odd = request("ConfigMap", "CREATE", None, Some(&object()));
        odd.object = None;
        assert!(matches!(MutateVersions.review(&odd).await, Err(WebhookError::Review(_))));
        let pod = request("Pod", "CREATE", None, Some(&object()));
        assert!(matches!(MutateVersions.review(&pod).await, Err(WebhookError::Review(_))));
    }

    proptest! {
        #[test]
        fn whatever_comes_there_is_no_panic(cut in any::<prop::sample::Index>(), noise in "\\PC{0,12}", keep in any::<bool>()) {
            let text = serde_json::to_string(&json!({
                "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
                "request": {
                    "uid": "7", "kind": {"group": "", "version": "v1", "kind": "Secret"},
                    "resource": {"group": "", "version": "v1", "resource": "secrets"}, "name": "a", "namespace": "team",
                    "operation": "UPDATE", "userInfo": {"username": "eve"}, "oldObject": object(), "object": object()
                }
            })).unwrap();
            let at = (0..=cut.index(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
            let (head, tail) = text.split_at(at);
            let tail = if keep { tail } else { tail.get(noise.len()..).unwrap_or_default() };
            if let Ok(request) = crate::admission::review::parse(format!("{head}{noise}{tail}").as_bytes()) {
                let _ = MutateVersions::decide(&request);
                let reviewed = ValidateVersions::new(Arc::new(current())).review(&request).now_or_never();
                prop_assert!(reviewed.is_some());
            }
        }
    }
}
