//! A validating webhook of the cluster that refuses statuses of configs in one namespace, as the test sets it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use nudge_api::VersionedConfig;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::TestNamespace;
use crate::eventually;
use crate::fakes::hub_tls::HubAuthority;

/// How long the API server may take to ask a new webhook, or not to ask one that is gone.
const WAIT_TIMEOUT: Duration = Duration::from_secs(30);

/// Why a status is refused: a code and a message. `None` if it is not.
pub type Refuses = fn(&Value) -> Option<(u16, String)>;

/// A number of pods that no config has: a status with it is refused, so that it shows whether the webhook is asked.
const PROBE: u64 = 4711;
/// Why it is refused.
const ASKED: &str = "the webhook is asked";

/// Refuses statuses until it is removed.
pub struct RefusingWebhook {
    webhooks: Api<ValidatingWebhookConfiguration>,
    name: String,
    refused: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl RefusingWebhook {
    /// Listens on loopback, and has the API server ask about each status in the namespaces with this label; `space` is
    /// one of them, with a config of the name `config`.
    pub async fn start(
        admin: Client,
        (label, value): (&str, &str),
        (space, config): (&TestNamespace, &str),
        refuses: Refuses,
    ) -> Result<Self> {
        let authority = HubAuthority::new()?;
        let (tls, listener) = (authority.acceptor()?, TcpListener::bind("127.0.0.1:0").await?);
        let url = format!("https://{}/", listener.local_addr()?);
        let refused = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&refused);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (tls, count) = (tls.clone(), Arc::clone(&count));
                tokio::spawn(async move {
                    let Ok(stream) = tls.accept(stream).await else { return };
                    let service = service_fn(|request| answer(request, refuses, &count));
                    // The API server ends connections as it likes.
                    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        let webhook = json!({
            "name": "refuses.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail",
            "namespaceSelector": {"matchLabels": {label: value}},
            "clientConfig": {"url": url, "caBundle": BASE64_STANDARD.encode(authority.pem())},
            "rules": [{
                "apiGroups": ["nudge.dev"], "apiVersions": ["*"], "resources": ["versionedconfigs/status"],
                "operations": ["UPDATE"], "scope": "Namespaced",
            }],
        });
        let name = format!("refuses-{}", space.name);
        let object = json!({"metadata": {"name": name}, "webhooks": [webhook]});
        let webhooks = Api::<ValidatingWebhookConfiguration>::all(admin);
        webhooks.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
        let is_asked =
            async || probe(space, config).await.err().filter(|error| error.to_string().contains(ASKED)).map(drop);
        eventually(WAIT_TIMEOUT, "the webhook is asked", is_asked).await?;
        Ok(Self { webhooks, name, refused, task })
    }

    /// Returns how many statuses it has refused.
    pub fn refused(&self) -> usize {
        self.refused.load(Ordering::Relaxed)
    }

    /// Removes it from the cluster. Nothing is refused from then on.
    pub async fn remove(self, space: &TestNamespace, config: &str) -> Result<()> {
        self.webhooks.delete(&self.name, &DeleteParams::default()).await.context("can't delete the webhook")?;
        eventually(WAIT_TIMEOUT, "nothing is refused", async || probe(space, config).await.ok()).await
    }
}

impl Drop for RefusingWebhook {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Tries to write the status that is refused, without effect.
async fn probe(space: &TestNamespace, config: &str) -> Result<()> {
    let parameters = PatchParams { dry_run: true, ..PatchParams::default() };
    let patch = Patch::Merge(json!({"status": {"pods": {"total": PROBE}}}));
    space.api::<VersionedConfig>().patch_status(config, &parameters, &patch).await?;
    Ok(())
}

async fn answer(request: Request<Incoming>, refuses: Refuses, refused: &AtomicUsize) -> Result<Response<Full<Bytes>>> {
    let body = request.into_body().collect().await?.to_bytes();
    let review: Value = serde_json::from_slice(&body)?;
    let status = &review["request"]["object"]["status"];
    let refusal = if status["pods"]["total"] == PROBE {
        Some((422, ASKED.to_owned()))
    } else {
        let refusal = refuses(status);
        refused.fetch_add(usize::from(refusal.is_some()), Ordering::Relaxed);
        refusal
    };
    let mut response = json!({"uid": review["request"]["uid"], "allowed": refusal.is_none()});
    if let Some((code, message)) = refusal {
        response["status"] = json!({"code": code, "message": message});
    }
    let answer = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
    Ok(Response::new(serde_json::to_vec(&answer)?.into()))
}
