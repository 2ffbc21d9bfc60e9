//! Keeps `caBundle` of Nudge's webhook configurations, and restores it when others overwrite it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch as JsonPatch, PatchOperation, TestOperation};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, Resource};
use nudge_protocol::backoff::Backoff;
use nudge_protocol::error_chain::chain;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::watch;
use tracing::Instrument as _;

use super::{PublishError, wait_for_check, with_timeout};

/// The first delay before another attempt, after a configuration was missing or could not be changed.
const FIRST_RETRY_DELAY: Duration = Duration::from_secs(1);
/// The field manager of writes.
const FIELD_MANAGER: &str = "nudge-controller";

/// The name and the client settings of one webhook of a configuration.
type Webhook<'a> = (&'a str, &'a WebhookClientConfig);

trait Configuration: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug {
    fn webhooks(&self) -> Vec<Webhook<'_>>;
}

impl Configuration for MutatingWebhookConfiguration {
    fn webhooks(&self) -> Vec<Webhook<'_>> {
        self.webhooks.iter().flatten().map(|webhook| (webhook.name.as_str(), &webhook.client_config)).collect()
    }
}

impl Configuration for ValidatingWebhookConfiguration {
    fn webhooks(&self) -> Vec<Webhook<'_>> {
        self.webhooks.iter().flatten().map(|webhook| (webhook.name.as_str(), &webhook.client_config)).collect()
    }
}

/// Publishes the bundle to the two configurations of this name. Returns when there will be no other bundle.
pub async fn publish_to_webhooks(
    client: Client,
    name: String,
    mut bundle: watch::Receiver<Arc<str>>,
    check_interval: Duration,
) {
    let mut faults = Faults::default();
    // When an installation is applied, this process may start before the configurations exist, so the first delays are
    // short.
    let (backoff, mut failures) = (Backoff { first: FIRST_RETRY_DELAY, longest: check_interval }, 0);
    loop {
        let newest = Arc::clone(&bundle.borrow_and_update());
        let mut delay = check_interval;
        if !newest.is_empty() {
            let mutating = publish_to::<MutatingWebhookConfiguration>(&client, &name, &newest, &mut faults).await;
            let validating = publish_to::<ValidatingWebhookConfiguration>(&client, &name, &newest, &mut faults).await;
            failures = if mutating && validating { 0 } else { failures + 1 };
            if failures > 0 {
                delay = backoff.wait(failures);
            }
        }
        if !wait_for_check(&mut bundle, delay).await {
            return;
        }
    }
}

/// Publishes the bundle to one configuration. Returns whether the configuration has the bundle after that.
async fn publish_to<K: Configuration>(client: &Client, name: &str, bundle: &str, faults: &mut Faults) -> bool {
    let api = Api::<K>::all(client.clone());
    let kind = K::kind(&());
    let publish = async {
        let result = with_timeout(api.get_opt(name)).await;
        let Some(configuration) = faults.log(&kind, result).flatten() else { return false };
        let Some(patch) = bundle_patch(&configuration.webhooks(), bundle) else { return true };
        let parameters = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let result = with_timeout(api.patch(name, &parameters, &Patch::Json::<()>(patch))).await;
        let succeeded = faults.log(&kind, result).is_some();
        if succeeded {
            tracing::info!("caBundle set");
        }
        succeeded
    };
    publish.instrument(tracing::error_span!("publish_ca", %kind, name)).await
}

/// The failures by kind of configuration. Each is logged once while it lasts.
#[derive(Default)]
struct Faults(BTreeMap<String, String>);

impl Faults {
    fn log<T>(&mut self, kind: &str, result: Result<T, PublishError>) -> Option<T> {
        match result {
            Ok(value) => {
                self.0.remove(kind);
                Some(value)
            }
            Err(error) => {
                let error = chain(&error);
                if self.0.get(kind) != Some(&error) {
                    tracing::error!(error, "publishing the CA in caBundle failed; retrying");
                    self.0.insert(kind.to_owned(), error);
                }
                None
            }
        }
    }
}

/// Returns the patch that a configuration needs. The whole patch fails if somebody has moved the webhooks meanwhile.
fn bundle_patch(webhooks: &[Webhook<'_>], bundle: &str) -> Option<JsonPatch> {
    let expected = ByteString(bundle.as_bytes().to_vec());
    let text = serde_json::to_value(&expected).ok()?;
    let mut operations = Vec::new();
    for (index, (name, config)) in webhooks.iter().enumerate() {
        if config.ca_bundle.as_ref() == Some(&expected) {
            continue;
        }
        let index = index.to_string();
        let path = PointerBuf::from_tokens(["webhooks", &index, "name"]);
        operations.push(PatchOperation::Test(TestOperation { path, value: Value::String((*name).to_owned()) }));
        let path = PointerBuf::from_tokens(["webhooks", &index, "clientConfig", "caBundle"]);
        operations.push(PatchOperation::Add(AddOperation { path, value: text.clone() }));
    }
    (!operations.is_empty()).then_some(JsonPatch(operations))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_differs_is_patched() {
        let right = WebhookClientConfig { ca_bundle: Some(ByteString(b"A".to_vec())), ..Default::default() };
        let empty = WebhookClientConfig::default();
        let other = WebhookClientConfig { ca_bundle: Some(ByteString(b"B".to_vec())), ..Default::default() };
        assert_eq!(bundle_patch(&[("a", &right)], "A"), None);
        assert_eq!(bundle_patch(&[], "A"), None);
        let made =
            serde_json::to_value(bundle_patch(&[("a", &right), ("b", &empty), ("c", &other)], "A").unwrap()).unwrap();
        assert_eq!(
            made,
            json!([
                {"op": "test", "path": "/webhooks/1/name", "value": "b"},
                {"op": "add", "path": "/webhooks/1/clientConfig/caBundle", "value": "QQ=="},
                {"op": "test", "path": "/webhooks/2/name", "value": "c"},
                {"op": "add", "path": "/webhooks/2/clientConfig/caBundle", "value": "QQ=="}
            ])
        );
    }
}
