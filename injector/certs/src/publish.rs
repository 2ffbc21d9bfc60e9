//! Publishes the CA that the API server trusts: keeps `caBundle` of Nudge's webhook configurations, and restores it
//! when others overwrite it. Agents get the CA by injection.

use std::collections::BTreeMap;
use std::fmt::Debug;
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
use nudge_cluster::call::{CallError, call};
use nudge_cluster::jitter::with_jitter;
use nudge_protocol::backoff::Backoff;
use nudge_protocol::error_chain::chain;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::Instrument as _;

/// The interval between checks for foreign changes of the CA.
pub const PUBLISH_CHECK_INTERVAL: Duration = Duration::from_secs(45);

/// The first delay before another attempt, after a configuration was missing or could not be changed.
const FIRST_RETRY_DELAY: Duration = Duration::from_secs(1);
/// The field manager of writes.
const FIELD_MANAGER: &str = "nudge-controller";

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
            let patch = |object: &MutatingWebhookConfiguration| {
                bundle_patch(object.webhooks.iter().flatten().map(|hook| (&*hook.name, &hook.client_config)), &newest)
            };
            let mutating = publish_to(&client, &name, &mut faults, patch).await;
            let patch = |object: &ValidatingWebhookConfiguration| {
                bundle_patch(object.webhooks.iter().flatten().map(|hook| (&*hook.name, &hook.client_config)), &newest)
            };
            let validating = publish_to(&client, &name, &mut faults, patch).await;
            failures = if mutating && validating { 0 } else { failures + 1 };
            if failures > 0 {
                delay = backoff.wait(failures);
            }
        }
        tokio::select! {
            changed = bundle.changed() => if changed.is_err() {
                return;
            },
            () = sleep(with_jitter(delay)) => {}
        }
    }
}

/// Publishes the bundle to one configuration, by the patch that it needs. Returns whether it has the bundle after that.
async fn publish_to<K>(
    client: &Client,
    name: &str,
    faults: &mut Faults,
    patch: impl Fn(&K) -> Option<JsonPatch>,
) -> bool
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let api = Api::<K>::all(client.clone());
    let kind = K::kind(&());
    let publish = async {
        let result = call(|| format!("reading {kind} {name}"), api.get_opt(name)).await;
        let Some(configuration) = faults.log(&kind, result).flatten() else { return false };
        let Some(patch) = patch(&configuration) else { return true };
        let parameters = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let patch = Patch::Json::<()>(patch);
        let result = call(|| format!("patching {kind} {name}"), api.patch(name, &parameters, &patch)).await;
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
    fn log<T>(&mut self, kind: &str, result: Result<T, CallError>) -> Option<T> {
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
fn bundle_patch<'a>(
    webhooks: impl IntoIterator<Item = (&'a str, &'a WebhookClientConfig)>,
    bundle: &str,
) -> Option<JsonPatch> {
    let expected = ByteString(bundle.as_bytes().to_vec());
    let text = serde_json::to_value(&expected).ok()?;
    let mut operations = Vec::new();
    for (index, (name, config)) in webhooks.into_iter().enumerate() {
        if config.ca_bundle.as_ref() == Some(&expected) {
            continue;
        }
        let index = index.to_string();
        let path = PointerBuf::from_tokens(["webhooks", &index, "name"]);
        operations.push(PatchOperation::Test(TestOperation { path, value: Value::String(name.to_owned()) }));
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
        assert_eq!(bundle_patch([("a", &right)], "A"), None);
        assert_eq!(bundle_patch([], "A"), None);
        let made =
            serde_json::to_value(bundle_patch([("a", &right), ("b", &empty), ("c", &other)], "A").unwrap()).unwrap();
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
