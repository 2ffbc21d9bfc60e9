//! A pod whose agent says to the hub what the test likes.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use hyper::StatusCode;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use nudge_protocol::hub::REPORT_PATH;
use nudge_tests::Raw;
use nudge_tests::agent::tls;
use nudge_tests::cluster::TestNamespace;
use nudge_tests::cluster::installation::{agent_token, hub_ca, injected_pod};
use rustls::ClientConfig;
use serde_json::json;
use tokio::net::TcpStream;

/// A pod that is Ready, and what runs in its agent's container.
pub(crate) struct Speaker {
    token: String,
    hub: SocketAddr,
    tls: Arc<ClientConfig>,
}

impl Speaker {
    /// Returns a pod of the config `shop`.
    pub(crate) async fn new(space: &TestNamespace, hub: SocketAddr) -> Result<Self> {
        let pod: Pod = injected_pod(space, "web", "shop").await?;
        ensure!(pod.name_any() == "web");
        let folder = tempfile::tempdir()?;
        let authority = folder.path().join("ca.crt");
        std::fs::write(&authority, hub_ca(space).await?)?;
        Ok(Self { token: agent_token(space, &pod).await?, hub, tls: tls::trusting(&authority)? })
    }

    /// Says that the pod runs this version of the config with that uid, or why it can't.
    pub(crate) async fn report_version(&self, uid: &str, version: &str, problem: Option<&str>) -> Result<()> {
        let mut config = json!({"name": "shop", "uid": uid, "revision": 1, "version": version});
        if let Some(problem) = problem {
            config["problem"] = json!({"reason": problem, "message": "it is broken"});
        }
        let body = json!({"configs": [config], "acknowledged": problem.is_none()}).to_string();
        let (token, length) = (&self.token, body.len());
        let head = format!(
            "POST {REPORT_PATH} HTTP/1.1\r\nhost: hub\r\nauthorization: Bearer {token}\r\ncontent-length: {length}"
        );
        let stream = TcpStream::connect(self.hub).await.context("the hub is away")?;
        let mut raw = Raw::over(stream, self.hub.ip(), &self.tls).await?;
        raw.send(format!("{head}\r\n\r\n{body}")).await?;
        let reply = raw.reply().await?;
        ensure!(reply.status == StatusCode::NO_CONTENT, "{reply:?}");
        Ok(())
    }
}
