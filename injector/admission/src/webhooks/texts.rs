//! The webhook of objects whose text a config follows. It refuses an edit that would pass the gates of the config.

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::jiff::Timestamp;
use kube::core::admission::Operation;
use nudge_core::derived_keys::ContentKey;
use nudge_core::followed_objects::{TextEdit, edit_refusal};
use nudge_core::identity::Identity;
use nudge_core::keys::ConfigKey;
use nudge_core::versions::Seals;
use nudge_protocol::labels;

use super::webhook::{Webhook, WebhookError};
use crate::lookups::Lookups;
use crate::review::ReviewRequest;
use crate::verdict::{AdmissionVerdict, Denial};
use crate::version_object::VersionObject;

/// Checks edits of objects whose text a config follows, by the index alone.
#[derive(Clone, Debug)]
pub struct ValidateTexts<L> {
    lookups: Arc<L>,
    /// The user of the controllers, who put texts back.
    controllers: String,
    /// The key behind the seals that a text is compared with.
    key: Arc<ContentKey>,
}

impl<L: Lookups> ValidateTexts<L> {
    /// Creates a webhook that lets the user of the controllers pass.
    pub fn new(lookups: &Arc<L>, controllers: String, key: Arc<ContentKey>) -> Self {
        Self { lookups: Arc::clone(lookups), controllers, key }
    }
}

#[async_trait]
impl<L: Lookups> Webhook for ValidateTexts<L> {
    fn path(&self) -> &'static str {
        "/validate/texts"
    }

    async fn review(&self, request: &ReviewRequest) -> Result<AdmissionVerdict, WebhookError> {
        if request.operation != Operation::Update || request.user_info.username.as_ref() == Some(&self.controllers) {
            return Ok(AdmissionVerdict::allow());
        }
        let (old, new) = (VersionObject::old_of(request)?, VersionObject::new_of(request)?);
        if old.content == new.content {
            return Ok(AdmissionVerdict::allow());
        }
        let follows = |object: &VersionObject| object.label(labels::FOLLOWS) == Some(new.name());
        let namespace = request.required_namespace()?;
        let config = self.lookups.index().config(namespace, new.name());
        let config = config.filter(|_| follows(&old) || follows(&new));
        let Some((config, key)) = config.zip(ConfigKey::parse(namespace, new.name()).ok()) else {
            return Ok(AdmissionVerdict::allow());
        };
        let policies = self.lookups.index().policies(namespace);
        let seals = Seals::new(&self.key, &key, Identity::of(&config));
        let edit = TextEdit { kind: new.kind, content: &new.content, seals: &seals };
        let refusal = edit_refusal(&config, &policies, &edit, Timestamp::now());
        Ok(refusal.map_or_else(AdmissionVerdict::allow, |why| AdmissionVerdict::Deny(Denial::forbidden(why.message))))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use nudge_api::{DirectReaders, Hold, PartKind, VersionedConfigStatus};
    use nudge_core::versions::part_digest;
    use serde_json::{Value, json};

    use super::*;
    use crate::fixtures::{FakeLookups, request, sealed, shop};

    const CONTROLLERS: &str = "system:serviceaccount:nudge-system:nudge-injector";

    fn content_key() -> ContentKey {
        ContentKey::new(&[7; 32])
    }

    /// A held config whose objects a Deployment reads itself. The Secret of its current version has the value 3.
    fn held() -> FakeLookups {
        let versions = vec![sealed("1", &["a"])];
        let mut status =
            VersionedConfigStatus { current_version: Some("1".to_owned()), versions, ..Default::default() };
        let kinds = [PartKind::ConfigMap, PartKind::Secret];
        let workloads = vec!["Deployment/api".to_owned()];
        status.internal.readers =
            kinds.map(|kind| DirectReaders { kind, total: 1, workloads: workloads.clone() }).into();
        let mut config = shop(status);
        config.spec.objects = kinds.into();
        let seals = Seals::new(&content_key(), &ConfigKey::parse("team", "shop").unwrap(), Identity::of(&config));
        let content = BTreeMap::from([("lives", "3")].map(|(key, value)| (key.to_owned(), value.as_bytes().to_vec())));
        let part = &mut config.status.as_mut().unwrap().versions[0].parts[0];
        part.kind = PartKind::Secret;
        part.digest = seals.seal("1", 1, &part_digest(&content, Some(&content_key())));
        config.spec.rollout.hold = Some(Hold { reason: "fair".to_owned(), until_time: None, protected: false });
        FakeLookups { config: Some(config), ..FakeLookups::default() }
    }

    fn object(name: &str, value: &str, follows: Option<&str>) -> Value {
        let labels: BTreeMap<&str, &str> = follows.map(|config| (labels::FOLLOWS, config)).into_iter().collect();
        json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"lives": value},
               "metadata": {"name": name, "labels": labels}})
    }

    async fn is_denied(lookups: FakeLookups, operation: &str, old: &Value, new: &Value, user: &str) -> bool {
        let mut review = request(new["kind"].as_str().unwrap(), operation, Some(old), Some(new));
        review.user_info.username = Some(user.to_owned());
        let key = Arc::new(content_key());
        let webhook = ValidateTexts::new(&Arc::new(lookups), CONTROLLERS.to_owned(), key);
        webhook.review(&review).await.unwrap().is_denied()
    }

    #[tokio::test]
    async fn only_an_edit_of_a_followed_text_by_somebody_else_is_refused() {
        let (three, four) = (object("shop", "3", Some("shop")), object("shop", "4", Some("shop")));
        assert!(is_denied(held(), "UPDATE", &three, &four, "eve").await);
        assert!(is_denied(held(), "UPDATE", &three, &object("shop", "4", None), "eve").await, "kubectl replace");
        assert!(!is_denied(held(), "UPDATE", &three, &object("shop", "3", None), "eve").await, "a label");
        assert!(!is_denied(held(), "UPDATE", &three, &four, CONTROLLERS).await, "it puts texts back");
        assert!(!is_denied(held(), "DELETE", &three, &four, "eve").await);
        assert!(!is_denied(FakeLookups::default(), "UPDATE", &three, &four, "eve").await, "no config");
        let (other, edited) = (object("other", "3", Some("shop")), object("other", "4", Some("shop")));
        assert!(!is_denied(held(), "UPDATE", &other, &edited, "eve").await, "a config has objects of its own name");
    }

    #[tokio::test]
    async fn the_text_of_a_secret_can_be_put_back() {
        let secret = |value: &str| {
            json!({"apiVersion": "v1", "kind": "Secret", "data": {"lives": value},
            "metadata": {"name": "shop", "labels": {labels::FOLLOWS: "shop"}}})
        };
        let [three, four, five] = ["Mw==", "NA==", "NQ=="].map(secret);
        assert!(!is_denied(held(), "UPDATE", &four, &three, "eve").await);
        assert!(is_denied(held(), "UPDATE", &four, &five, "eve").await);
        let of_map = |value: &str| object("shop", value, Some("shop"));
        assert!(is_denied(held(), "UPDATE", &of_map("4"), &of_map("3"), "eve").await, "the version has no ConfigMap");
    }
}
