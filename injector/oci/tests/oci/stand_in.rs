//! A server that gives the answers of a test, and notes the requests.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Result;
use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{AUTHORIZATION, HeaderName, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use nudge_protocol::hex::hex;
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};
use rustls::ServerConfig;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::asking::HIDDEN;

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) method: String,
    /// Path and query.
    pub(crate) path: String,
    pub(crate) authorization: Option<String>,
}

pub(crate) type Answer = Response<Full<Bytes>>;

pub(crate) struct StandIn {
    pub(crate) address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
    task: JoinHandle<()>,
}

impl StandIn {
    pub(crate) async fn start(answer: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Result<Self> {
        Self::start_at("127.0.0.1", None, answer).await
    }

    pub(crate) async fn start_at(
        ip: &str,
        tls: Option<Arc<ServerConfig>>,
        answer: impl Fn(&Asked) -> Answer + Send + Sync + 'static,
    ) -> Result<Self> {
        let listener = TcpListener::bind((ip, 0)).await?;
        let address = listener.local_addr()?;
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (noted, answer) = (Arc::clone(&asked), Arc::new(answer));
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (noted, answer, tls) = (Arc::clone(&noted), Arc::clone(&answer), tls.clone());
                let service = service_fn(move |request: Request<hyper::body::Incoming>| {
                    let authorization = request.headers().get(AUTHORIZATION);
                    let asked = Asked {
                        method: request.method().to_string(),
                        path: request.uri().to_string(),
                        authorization: authorization.and_then(|it| it.to_str().ok()).map(str::to_owned),
                    };
                    let answer = answer(&asked);
                    noted.lock().push(asked);
                    async move { Ok::<_, std::convert::Infallible>(answer) }
                });
                tokio::spawn(async move {
                    let http = hyper::server::conn::http1::Builder::new();
                    match tls {
                        None => drop(http.serve_connection(TokioIo::new(stream), service).await),
                        Some(config) => {
                            if let Ok(stream) = TlsAcceptor::from(config).accept(stream).await {
                                drop(http.serve_connection(TokioIo::new(stream), service).await);
                            }
                        }
                    }
                });
            }
        });
        Ok(Self { address, asked, task })
    }

    pub(crate) fn host(&self) -> String {
        self.address.to_string()
    }

    /// By the name that is not that of the address.
    pub(crate) fn by_name(&self) -> String {
        format!("localhost:{}", self.address.port())
    }

    /// Returns the requests since the last call.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut *self.asked.lock())
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(crate) fn answer(status: u16, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Answer {
    let mut answer = Answer::new(Full::new(body.into()));
    *answer.status_mut() = StatusCode::from_u16(status).unwrap_or_default();
    for (name, value) in headers {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(*name), HeaderValue::try_from(*value)) {
            answer.headers_mut().append(name, value);
        }
    }
    answer
}

/// An error with a text that nobody repeats.
pub(crate) fn fault(status: u16, code: &str) -> Answer {
    let body = json!({"errors": [{"code": code, "message": HIDDEN, "detail": HIDDEN}]});
    answer(status, &[("x-more", HIDDEN)], body.to_string())
}

pub(crate) fn digest_of(content: &[u8]) -> String {
    format!("sha256:{}", hex(digest(&SHA256, content).as_ref()))
}

/// The content of one repository of a registry, `team/shop`.
#[derive(Clone, Default)]
pub(crate) struct Content(BTreeMap<String, Vec<u8>>);

impl Content {
    /// Adds a blob, and describes it.
    pub(crate) fn blob(&mut self, kind: &str, content: &[u8], annotations: &Value) -> Value {
        let digest = digest_of(content);
        self.0.insert(format!("/v2/team/shop/blobs/{digest}"), content.to_vec());
        json!({"mediaType": kind, "digest": digest, "size": content.len(), "annotations": annotations})
    }

    /// Adds a document by its digest and a tag, and describes it.
    pub(crate) fn document(&mut self, tag: &str, document: &Value) -> Value {
        let text = document.to_string();
        let digest = digest_of(text.as_bytes());
        for name in [tag, &digest] {
            self.0.insert(format!("/v2/team/shop/manifests/{name}"), text.clone().into_bytes());
        }
        json!({"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": digest, "size": text.len()})
    }

    /// An artifact of these layers, by a tag.
    pub(crate) fn artifact(&mut self, tag: &str, layers: &[Value]) -> Value {
        let config = self.blob("application/vnd.oci.empty.v1+json", b"{}", &json!({}));
        self.document(tag, &json!({"schemaVersion": 2, "config": config, "layers": layers}))
    }

    /// One of a single layer, which is an archive.
    pub(crate) fn of_archive(archive: &[u8]) -> Self {
        let mut content = Self::default();
        let layer = content.blob("application/vnd.cncf.flux.content.v1.tar+gzip", archive, &json!({}));
        content.artifact("1.0.0", &[layer]);
        content
    }

    /// Another content in place of that of a digest.
    pub(crate) fn replace(&mut self, digest: &str, with: &[u8]) {
        for (path, content) in &mut self.0 {
            if path.ends_with(digest) {
                *content = with.to_vec();
            }
        }
    }

    pub(crate) fn answer(&self, asked: &Asked) -> Answer {
        match self.0.get(&asked.path) {
            Some(content) => answer(200, &[("docker-content-digest", &digest_of(content))], content.clone()),
            None => fault(404, "MANIFEST_UNKNOWN"),
        }
    }

    pub(crate) async fn serve(self) -> Result<StandIn> {
        StandIn::start(move |asked| self.answer(asked)).await
    }
}
