//! The webhook of objects whose text a config follows. It refuses an edit that would pass the gates of the config.

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::jiff::Timestamp;
use kube::core::admission::Operation;
use nudge_api::PartKind;
use nudge_core::followed_objects::{TextEdit, edit_refusal};
use nudge_core::versions::part_digest;
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
}

impl<L: Lookups> ValidateTexts<L> {
    /// Creates a webhook that lets the user of the controllers pass.
    pub fn new(lookups: &Arc<L>, controllers: String) -> Self {
        Self { lookups: Arc::clone(lookups), controllers }
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
        let config = self.lookups.index().config(request.required_namespace()?, new.name());
        let Some(config) = config.filter(|_| follows(&old) || follows(&new)) else {
            return Ok(AdmissionVerdict::allow());
        };
        let policies = self.lookups.index().policies(request.required_namespace()?);
        let digest = (new.kind == PartKind::ConfigMap).then(|| part_digest(&new.content.0, None));
        let edit = TextEdit { kind: new.kind, digest: digest.as_deref() };
        let refusal = edit_refusal(&config, &policies, &edit, Timestamp::now());
        Ok(refusal.map_or_else(AdmissionVerdict::allow, |why| AdmissionVerdict::Deny(Denial::forbidden(why.message))))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use nudge_api::{DirectReaders, Hold, VersionedConfigStatus};
    use serde_json::{Value, json};

    use super::*;
    use crate::fixtures::{FakeLookups, request, shop};

    const CONTROLLERS: &str = "system:serviceaccount:nudge-system:nudge-injector";

    /// A held config whose objects a Deployment reads itself.
    fn held() -> FakeLookups {
        let mut status = VersionedConfigStatus { current_version: Some("1".to_owned()), ..Default::default() };
        status.internal.readers = Some(DirectReaders { total: 1, workloads: vec!["Deployment/api".to_owned()] });
        let mut config = shop(status);
        config.spec.objects = vec![PartKind::ConfigMap];
        config.spec.rollout.hold = Some(Hold { reason: "fair".to_owned(), until_time: None, protected: false });
        FakeLookups { config: Some(config), ..FakeLookups::default() }
    }

    fn object(name: &str, value: &str, follows: Option<&str>) -> Value {
        let labels: BTreeMap<&str, &str> = follows.map(|config| (labels::FOLLOWS, config)).into_iter().collect();
        json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"lives": value},
               "metadata": {"name": name, "labels": labels}})
    }

    async fn is_denied(lookups: FakeLookups, operation: &str, old: &Value, new: &Value, user: &str) -> bool {
        let mut review = request("ConfigMap", operation, Some(old), Some(new));
        review.user_info.username = Some(user.to_owned());
        ValidateTexts::new(&Arc::new(lookups), CONTROLLERS.to_owned()).review(&review).await.unwrap().is_denied()
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
}
