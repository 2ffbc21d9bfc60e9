//! The front of every webhook: a check that the namespace is enabled. Any client that reaches the port may ask about
//! other namespaces.

use std::sync::Arc;

use async_trait::async_trait;

use super::webhook::{Webhook, WebhookError};
use crate::lookups::Lookups;
use crate::review::ReviewRequest;
use crate::verdict::{AdmissionVerdict, Denial, UndecidedDeletions};

/// A webhook that refuses reviews of other namespaces. An error instead would let them pass under the failure policy
/// `Ignore`.
#[derive(Clone, Debug)]
pub struct OnlyEnabled<W, L> {
    webhook: W,
    lookups: Arc<L>,
}

impl<W, L> OnlyEnabled<W, L> {
    /// Restricts `webhook` to namespaces that `lookups` finds enabled.
    pub fn new(webhook: W, lookups: &Arc<L>) -> Self {
        Self { webhook, lookups: Arc::clone(lookups) }
    }
}

#[async_trait]
impl<W: Webhook, L: Lookups> Webhook for OnlyEnabled<W, L> {
    fn path(&self) -> &'static str {
        self.webhook.path()
    }

    fn undecided_deletions(&self) -> UndecidedDeletions {
        self.webhook.undecided_deletions()
    }

    async fn review(&self, request: &ReviewRequest) -> Result<AdmissionVerdict, WebhookError> {
        if self.lookups.is_enabled(request, request.required_namespace()?).await? {
            return self.webhook.review(request).await;
        }
        // The message is the same for a namespace that does not exist.
        Ok(AdmissionVerdict::Deny(Denial::forbidden(
            "Nudge does not decide in this namespace, because it is not enabled there",
        )))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixtures::{FakeLookups, request};
    use crate::review::ReviewError;
    use crate::webhooks::versions::ValidateVersions;

    #[tokio::test]
    async fn requests_from_other_namespaces_are_refused() {
        let object = json!({"metadata": {"name": "a"}});
        let mut deletion = request("ConfigMap", "DELETE", Some(&object), None);
        let reviewed = async |lookups: FakeLookups, request: &ReviewRequest| {
            let lookups = Arc::new(lookups);
            OnlyEnabled::new(ValidateVersions::new(Arc::clone(&lookups)), &lookups).review(request).await
        };
        let enabled = FakeLookups { enabled: true, ..FakeLookups::default() };
        assert_eq!(reviewed(enabled, &deletion).await.unwrap(), AdmissionVerdict::allow());
        assert!(reviewed(FakeLookups::default(), &deletion).await.unwrap().is_denied());
        let away = FakeLookups { fails: true, ..FakeLookups::default() };
        assert!(matches!(reviewed(away, &deletion).await, Err(WebhookError::Lookup(_))));
        deletion.namespace = None;
        let nowhere = reviewed(FakeLookups::default(), &deletion).await;
        assert!(matches!(nowhere, Err(WebhookError::Review(ReviewError::Request(_)))));
    }
}
