//! An admission webhook that refuses everything.

use std::convert::Infallible;
use std::sync::Arc;

use anyhow::Result;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::api::PostParams;
use kube::{Api, Client};
use nudge_tests::cluster::{Authority, Certified};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// Listens until it is dropped.
pub(crate) struct Hook {
    authority: Authority,
    port: u16,
    task: JoinHandle<()>,
}

impl Hook {
    /// Refuses with this message.
    pub(crate) async fn start(message: &'static str) -> Result<Self> {
        let authority = Authority::new("webhook")?;
        let tls = TlsAcceptor::from(Arc::new(server_config(&authority.server(&["127.0.0.1"])?)?));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let tls = tls.clone();
                tokio::spawn(async move {
                    let Ok(stream) = tls.accept(stream).await else { return };
                    let service = service_fn(move |request| refuse(request, message));
                    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Ok(Self { authority, port, task })
    }

    /// Has the API server ask about ConfigMaps in namespaces with the label.
    pub(crate) async fn register(&self, client: &Client, name: &str, label: (&str, &str)) -> Result<()> {
        use base64::Engine as _;
        let bundle = base64::prelude::BASE64_STANDARD.encode(self.authority.certificate());
        let configuration: ValidatingWebhookConfiguration = serde_json::from_value(json!({
            "metadata": {"name": name},
            "webhooks": [{
                "name": name,
                "clientConfig": {"url": format!("https://127.0.0.1:{}/refuse", self.port), "caBundle": bundle},
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
                "namespaceSelector": {"matchLabels": {label.0: label.1}},
                "failurePolicy": "Ignore",
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
            }],
        }))?;
        let api = Api::<ValidatingWebhookConfiguration>::all(client.clone());
        api.create(&PostParams::default(), &configuration).await?;
        Ok(())
    }
}

impl Drop for Hook {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn refuse(request: Request<Incoming>, message: &str) -> Result<Response<Full<Bytes>>, Infallible> {
    let body = request.into_body().collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let review: Value = serde_json::from_slice(&body).unwrap_or_default();
    let reply = json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": review["request"]["uid"], "allowed": false, "status": {"message": message}},
    });
    Ok(Response::new(Full::new(Bytes::from(reply.to_string()))))
}

fn server_config(certified: &Certified) -> Result<ServerConfig> {
    let certificate = CertificateDer::from_pem_slice(certified.certificate.as_bytes())?;
    let key = PrivateKeyDer::from_pem_slice(certified.key.as_bytes())?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    Ok(config.with_safe_default_protocol_versions()?.with_no_client_auth().with_single_cert(vec![certificate], key)?)
}
