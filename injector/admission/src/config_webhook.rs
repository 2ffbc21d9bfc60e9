//! The webhook of `VersionedConfig`s.

use std::sync::Arc;

use futures::future::BoxFuture;
use kube::core::admission::Operation;
use kube::core::dynamic::DynamicObject;
use nudge_api::VersionedConfig;

use super::configs;
use super::lookups::Lookups;
use super::requester::empties_namespace;
use super::review::{Request, ReviewError};
use super::verdict::Verdict;
use super::version_webhooks::namespace;
use super::webhook::{Webhook, WebhookError};

/// Checks requests about configs.
#[derive(Clone, Debug)]
pub(super) struct ValidateConfigs<L> {
    lookups: Arc<L>,
}

impl<L: Lookups> ValidateConfigs<L> {
    /// A webhook that uses `lookups`.
    pub(super) fn new(lookups: Arc<L>) -> Self {
        Self { lookups }
    }

    async fn verdict(&self, request: &Request) -> Result<Verdict, WebhookError> {
        if request.kind.group != "nudge.dev" || request.kind.kind != "VersionedConfig" {
            return Err(ReviewError::Request("it is not about a VersionedConfig").into());
        }
        match request.operation {
            Operation::Create => self.change(request, None).await,
            Operation::Update => self.change(request, Some(config(request.old_object.as_ref())?)).await,
            Operation::Delete => self.delete(request).await,
            Operation::Connect => Ok(Verdict::allow()),
        }
    }

    async fn change(&self, request: &Request, old: Option<VersionedConfig>) -> Result<Verdict, WebhookError> {
        let (object, old_object) = (object(request.object.as_ref())?, old.as_ref().and(request.old_object.as_ref()));
        let new = config(Some(object))?;
        let old_spec = old.as_ref().map(|old| &old.spec);
        // The API server may still have to generate the name.
        let name = new.metadata.name.as_deref().filter(|name| !name.is_empty()).unwrap_or(&request.name);
        if !name.is_empty()
            && let Err(denial) = configs::name_and_version(name, old_spec, &new.spec)
        {
            return Ok(Verdict::Deny(denial));
        }
        let Some(what) = configs::needs(old_object, object) else { return Ok(Verdict::allow()) };
        let (user, namespace) = (&request.user_info, namespace(request)?);
        if !self.lookups.may_update_config_map(user, namespace, name).await? {
            let user = user.username.as_deref().unwrap_or_default();
            return Ok(Verdict::Deny(configs::not_permitted(user, namespace, name, what)));
        }
        if configs::chosen_version(old_spec, &new.spec).is_none() {
            return Ok(Verdict::allow());
        }
        // Only the stored object has a status.
        let status = old.as_ref().and_then(|old| old.status.as_ref());
        Ok(Verdict::warn(configs::not_complete(&new, status).into_iter().collect()))
    }

    async fn delete(&self, request: &Request) -> Result<Verdict, WebhookError> {
        if empties_namespace(&request.user_info) {
            return Ok(Verdict::allow());
        }
        let old = config(request.old_object.as_ref())?;
        let namespace = namespace(request)?;
        let name = old.metadata.name.as_deref().unwrap_or(&request.name);
        // A client that knows the uid has read the config. No other learns from the answer whether it exists and what uses it.
        let known = old.metadata.uid.as_ref().filter(|uid| !uid.is_empty());
        let stored = self.lookups.config(namespace, name).await?.and_then(|config| config.metadata.uid);
        if known.is_none() || stored.as_ref() != known {
            return Ok(Verdict::allow());
        }
        let verdict = Verdict::from(configs::delete(&old, self.lookups.subscribers(namespace, name)));
        if verdict.is_denied() && self.lookups.is_terminating(namespace).await? {
            return Ok(Verdict::allow());
        }
        Ok(verdict)
    }
}

impl<L: Lookups> Webhook for ValidateConfigs<L> {
    fn path(&self) -> &'static str {
        "/validate/configs"
    }

    fn review<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Result<Verdict, WebhookError>> {
        Box::pin(self.verdict(request))
    }
}

fn object(object: Option<&DynamicObject>) -> Result<&DynamicObject, ReviewError> {
    object.ok_or(ReviewError::Request("it lacks the object that its operation needs"))
}

fn config(object: Option<&DynamicObject>) -> Result<VersionedConfig, ReviewError> {
    self::object(object)?.clone().try_parse().map_err(|_| ReviewError::Request("its object is not a VersionedConfig"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::fixtures::{FakeLookups, request};

    fn config(current: &str) -> Value {
        json!({
            "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": "shop", "namespace": "team"},
            "spec": {"current": current}, "status": {}
        })
    }

    async fn reviewed(lookups: FakeLookups, request: &Request) -> (Verdict, Vec<String>) {
        let lookups = Arc::new(lookups);
        let verdict = ValidateConfigs::new(Arc::clone(&lookups)).review(request).await.unwrap();
        let asked = std::mem::take(&mut *lookups.asked.lock().unwrap());
        (verdict, asked)
    }

    #[tokio::test]
    async fn a_change_needs_the_right_to_update_the_config_map() {
        let chosen = request("VersionedConfig", "UPDATE", Some(&config("1")), Some(&config("2")));
        let (verdict, asked) = reviewed(FakeLookups::default(), &chosen).await;
        let Verdict::Deny(denial) = verdict else { panic!("{verdict:?}") };
        assert_eq!(
            denial.message,
            "VersionedConfig shop: user \"eve\" may not change its spec, because it decides what ConfigMap shop holds; this needs the right \
             to update ConfigMap shop in namespace team"
        );
        assert_eq!(asked, ["may eve update team/shop"]);
        let allowed = || FakeLookups { may_update: true, ..FakeLookups::default() };
        let (verdict, _) = reviewed(allowed(), &chosen).await;
        assert!(matches!(verdict, Verdict::Allow { warnings, .. } if warnings.len() == 1));
        let same = request("VersionedConfig", "UPDATE", Some(&config("1")), Some(&config("1")));
        assert_eq!(reviewed(FakeLookups::default(), &same).await, (Verdict::allow(), Vec::new()));
        let mut bare = config("1");
        bare["spec"] = json!({});
        let made = request("VersionedConfig", "CREATE", None, Some(&bare));
        assert!(reviewed(FakeLookups::default(), &made).await.0.is_denied());
        assert_eq!(reviewed(allowed(), &made).await.0, Verdict::allow());
    }

    #[tokio::test]
    async fn a_config_with_pods_stays_unless_its_namespace_is_terminating() {
        let mut object = config("1");
        object["metadata"]["uid"] = json!("u");
        let deletion = request("VersionedConfig", "DELETE", Some(&object), None);
        let stored: VersionedConfig = serde_json::from_value(object.clone()).unwrap();
        let there = |subscribers| FakeLookups { config: Some(stored.clone()), subscribers, ..FakeLookups::default() };
        assert!(reviewed(there(1), &deletion).await.0.is_denied());
        let terminating = FakeLookups { terminating: true, ..there(1) };
        assert_eq!(reviewed(terminating, &deletion).await.0, Verdict::allow());
        assert_eq!(reviewed(there(0), &deletion).await.0, Verdict::allow());
        for uid in [Value::Null, json!(""), json!("v")] {
            object["metadata"]["uid"] = uid;
            let guess = request("VersionedConfig", "DELETE", Some(&object), None);
            assert_eq!(reviewed(there(1), &guess).await, reviewed(FakeLookups::default(), &guess).await);
        }
    }
}
