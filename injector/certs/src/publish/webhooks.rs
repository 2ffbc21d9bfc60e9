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

use super::{PublishError, PublishTimes, in_time, next_check};

/// When to look again at a configuration that is not there, or could not be changed.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Field manager of writes.
const FIELD_MANAGER: &str = "nudge-controller";

/// One webhook of a configuration.
type Entry<'a> = (&'a str, &'a WebhookClientConfig);

trait Configuration: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug {
    fn entries(&self) -> Vec<Entry<'_>>;
}

impl Configuration for MutatingWebhookConfiguration {
    fn entries(&self) -> Vec<Entry<'_>> {
        self.webhooks.iter().flatten().map(|webhook| (webhook.name.as_str(), &webhook.client_config)).collect()
    }
}

impl Configuration for ValidatingWebhookConfiguration {
    fn entries(&self) -> Vec<Entry<'_>> {
        self.webhooks.iter().flatten().map(|webhook| (webhook.name.as_str(), &webhook.client_config)).collect()
    }
}

/// Publishes the bundle to the two configurations of this name; returns when there will be no other.
pub async fn publish_to_webhooks(
    client: Client,
    name: String,
    mut bundle: watch::Receiver<Arc<str>>,
    times: PublishTimes,
) {
    let mut faults = Faults::default();
    // While an installation is applied, the configurations may come after this process: they are waited for with short pauses first.
    let (backoff, mut failures) = (Backoff { first: RETRY_AFTER, longest: times.check }, 0);
    loop {
        let now = Arc::clone(&bundle.borrow_and_update());
        let mut wait = times.check;
        if !now.is_empty() {
            let mutating = publish_to::<MutatingWebhookConfiguration>(&client, &name, &now, &mut faults).await;
            let validating = publish_to::<ValidatingWebhookConfiguration>(&client, &name, &now, &mut faults).await;
            failures = if mutating && validating { 0 } else { failures + 1 };
            if failures > 0 {
                wait = backoff.wait(failures);
            }
        }
        if !next_check(&mut bundle, wait).await {
            return;
        }
    }
}

/// Returns whether the configuration has the bundle now.
async fn publish_to<K: Configuration>(client: &Client, name: &str, bundle: &str, faults: &mut Faults) -> bool {
    let api = Api::<K>::all(client.clone());
    let kind = K::kind(&());
    let set = async {
        let result = in_time(api.get_opt(name)).await;
        let Some(configuration) = faults.log(&kind, result).flatten() else { return false };
        let Some(patch) = patch(&configuration.entries(), bundle) else { return true };
        let parameters = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let patched = in_time(api.patch(name, &parameters, &Patch::Json::<()>(patch))).await;
        let is_set = faults.log(&kind, patched).is_some();
        if is_set {
            tracing::info!("caBundle set");
        }
        is_set
    };
    set.instrument(tracing::error_span!("publish_ca", %kind, name)).await
}

/// Failures by kind; each is logged once for as long as it lasts.
#[derive(Default)]
struct Faults(BTreeMap<String, String>);

impl Faults {
    fn log<T>(&mut self, kind: &str, result: Result<T, PublishError>) -> Option<T> {
        match result {
            Ok(done) => {
                self.0.remove(kind);
                Some(done)
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

/// The patch that a configuration needs, if any. It fails as a whole when somebody else has moved its webhooks meanwhile.
fn patch(entries: &[Entry<'_>], bundle: &str) -> Option<JsonPatch> {
    let expected = ByteString(bundle.as_bytes().to_vec());
    let text = serde_json::to_value(&expected).ok()?;
    let mut operations = Vec::new();
    for (index, (name, config)) in entries.iter().enumerate() {
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
        assert_eq!(patch(&[("a", &right)], "A"), None);
        assert_eq!(patch(&[], "A"), None);
        let made = serde_json::to_value(patch(&[("a", &right), ("b", &empty), ("c", &other)], "A").unwrap()).unwrap();
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
