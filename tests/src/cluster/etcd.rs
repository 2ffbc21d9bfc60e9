//! etcd: its arguments, and the few requests that tests have for it.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::header::HOST;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::part::Part;

/// How long etcd may take to answer after its start, on a busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// etcd with one member, which only this machine reaches.
#[derive(Debug)]
pub(super) struct Etcd {
    pub(super) part: Part,
    gateway: Gateway,
}

impl Etcd {
    /// Returns an etcd that keeps its data in `data`.
    pub(super) fn new(mut part: Part, data: &Path, ports: [u16; 2], sync: bool) -> Result<Self> {
        let [client, peer] = ports.map(|port| format!("http://127.0.0.1:{port}"));
        fs::create_dir_all(data).with_context(|| format!("can't make {}", data.display()))?;
        part.flag("data-dir", data);
        part.flag("name", "test");
        part.flag("initial-cluster", format!("test={peer}"));
        for flag in ["listen-client-urls", "advertise-client-urls"] {
            part.flag(flag, &client);
        }
        for flag in ["listen-peer-urls", "initial-advertise-peer-urls"] {
            part.flag(flag, &peer);
        }
        // There is nobody to be elected but this one, and a start need not wait for others.
        part.flag("heartbeat-interval", "20");
        part.flag("election-timeout", "200");
        part.flag("enable-grpc-gateway", "true");
        if !sync {
            part.flag("unsafe-no-fsync", "true");
        }
        Ok(Self { part, gateway: Gateway { address: (Ipv4Addr::LOCALHOST, ports[0]).into() } })
    }

    /// Returns its address.
    pub(super) fn address(&self) -> SocketAddr {
        self.gateway.address
    }

    /// Returns where clients find it.
    pub(super) fn url(&self) -> String {
        format!("http://{}", self.gateway.address)
    }

    /// Starts it, and returns when it answers.
    pub(super) async fn start(&mut self) -> Result<()> {
        self.part.start()?;
        let gateway = self.gateway;
        self.part.until(START_TIMEOUT, "etcd answers", async || gateway.revision().await.is_ok()).await
    }

    /// Puts a copy of all files of a folder in place of another, while it does not run.
    pub(super) fn copy_data(from: &Path, to: &Path) -> Result<()> {
        if to.exists() {
            fs::remove_dir_all(to).with_context(|| format!("can't remove {}", to.display()))?;
        }
        let copied = Command::new("cp").arg("-a").args([from, to]).status()?;
        ensure!(copied.success(), "{} can't be copied", from.display());
        Ok(())
    }

    /// Drops the history before now.
    pub(super) async fn compact(&self) -> Result<()> {
        let revision = self.gateway.revision().await?;
        self.gateway.compact(revision).await
    }

    /// Returns all keys that begin so, with their values, in Base64.
    pub(super) async fn pairs(&self, prefixes: &[String]) -> Result<Vec<Value>> {
        let mut collected = Vec::new();
        for prefix in prefixes {
            // The end is the first key that does not begin so.
            let mut end = prefix.clone().into_bytes();
            *end.last_mut().context("an empty prefix")? += 1;
            let range = json!({"key": BASE64_STANDARD.encode(prefix), "range_end": BASE64_STANDARD.encode(end)});
            let reply = self.gateway.post("/v3/kv/range", &range).await?;
            collected.extend(
                reply["kvs"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .map(|pair| json!({"key": pair["key"], "value": pair["value"]})),
            );
        }
        Ok(collected)
    }

    /// Writes such pairs.
    pub(super) async fn put(&self, pairs: &[Value]) -> Result<()> {
        for pair in pairs {
            self.gateway.post("/v3/kv/put", pair).await?;
        }
        Ok(())
    }
}

/// etcd's API in JSON.
#[derive(Clone, Copy, Debug)]
struct Gateway {
    address: SocketAddr,
}

impl Gateway {
    async fn revision(&self) -> Result<u64> {
        // Any key will do; it is in Base64.
        let reply = self.post("/v3/kv/range", &json!({"key": "AA=="})).await?;
        let revision = reply["header"]["revision"].as_str().context("etcd's reply has no revision")?;
        Ok(revision.parse()?)
    }

    async fn compact(&self, revision: u64) -> Result<()> {
        self.post("/v3/kv/compaction", &json!({"revision": revision.to_string(), "physical": true})).await?;
        Ok(())
    }

    async fn post(&self, path: &str, body: &Value) -> Result<Value> {
        let stream = TcpStream::connect(self.address).await.context("can't connect to etcd")?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let connection = tokio::spawn(connection);
        let request = Request::builder().method(Method::POST).uri(path).header(HOST, self.address.to_string());
        let reply = sender.send_request(request.body(Full::new(Bytes::from(body.to_string())))?).await?;
        let status = reply.status();
        let body = reply.into_body().collect().await?.to_bytes();
        connection.abort();
        ensure!(status.is_success(), "etcd answers {path} with {status}: {}", String::from_utf8_lossy(&body));
        Ok(serde_json::from_slice(&body)?)
    }
}
