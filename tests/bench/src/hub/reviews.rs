//! Admission reviews, a hundred a second, from a thread of its own: they show how a storm on the hub delays the API
//! server's requests.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use serde_json::json;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::progress;
use crate::samples::Samples;

/// The time between two reviews.
const REVIEW_INTERVAL: Duration = Duration::from_millis(10);

/// Asks until it is dropped.
pub(super) struct Reviews {
    taken: Arc<Mutex<Vec<f64>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Reviews {
    /// Asks the server at `address`.
    pub(super) fn start(address: SocketAddr, connector: TlsConnector) -> Result<Self> {
        let (taken, stop) = (Arc::default(), Arc::new(AtomicBool::new(false)));
        let (kept, stopped) = (Arc::clone(&taken), Arc::clone(&stop));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = std::thread::spawn(move || {
            if let Err(error) = runtime.block_on(ask(address, connector, &kept, &stopped)) {
                progress(&format!("no more admission reviews: {error:#}"));
            }
        });
        Ok(Self { taken, stop, thread: Some(thread) })
    }

    /// Returns the times since the last call, in ms.
    pub(super) fn take(&self) -> Samples {
        Samples::new(std::mem::take(&mut *self.taken.lock()))
    }
}

impl Drop for Reviews {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn ask(address: SocketAddr, connector: TlsConnector, taken: &Mutex<Vec<f64>>, stop: &AtomicBool) -> Result<()> {
    let mut sender = connect(address, &connector).await?;
    let body = Bytes::from(review().to_string());
    let mut turns = tokio::time::interval(REVIEW_INTERVAL);
    turns.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while !stop.load(Ordering::Relaxed) {
        turns.tick().await;
        let request = Request::post("/mutate/versions?timeout=3s")
            .header("host", "nudge")
            .header("content-type", "application/json")
            .body(Full::new(body.clone()))?;
        let began = Instant::now();
        let reply = sender.send_request(request).await?;
        let status = reply.status();
        reply.into_body().collect().await?;
        ensure!(status == 200, "the review was answered with {status}");
        let millis = began.elapsed().as_secs_f64() * 1000.0;
        taken.lock().push(millis);
    }
    Ok(())
}

async fn connect(address: SocketAddr, connector: &TlsConnector) -> Result<SendRequest<Full<Bytes>>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let stream = connector.connect(ServerName::from(address.ip()), stream).await?;
    let (sender, connection) = handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender)
}

/// Returns a version of 4 KiB that is not immutable yet.
fn review() -> serde_json::Value {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "1", "operation": "CREATE", "namespace": "team", "name": "shop-1",
            "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
            "resource": {"group": "", "version": "v1", "resource": "configmaps"},
            "requestKind": {"group": "", "version": "v1", "kind": "ConfigMap"},
            "requestResource": {"group": "", "version": "v1", "resource": "configmaps"},
            "userInfo": {"username": "jane"}, "dryRun": false,
            "object": {
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": "shop-1", "namespace": "team", "labels": {"nudge.dev/config": "shop", "nudge.dev/version": "1"}},
                "data": {"key": "x".repeat(4096)},
            },
        },
    })
}
