//! etcd's own history of the configs, by a watch of etcd itself: it goes on over restarts, from the revision that was seen last.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use nudge_api::VersionedConfig;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::recorder::Recorder;
use super::{Stored, What};

/// Before etcd is asked again.
const PAUSE: Duration = Duration::from_millis(50);

/// Follows the configs of a namespace until it is dropped.
pub(crate) struct Follower {
    restored: watch::Sender<bool>,
    task: AbortHandle,
}

impl Follower {
    pub(crate) fn start(etcd: SocketAddr, namespace: &str, recorder: Recorder) -> Self {
        let prefix = format!("/registry/nudge.dev/versionedconfigs/{namespace}/");
        let (restored, mut is_restored) = watch::channel(false);
        let task = tokio::spawn(async move {
            let mut seen = 0;
            loop {
                tokio::select! {
                    // What it is does not matter: etcd is away from time to time, and the watch goes on where it ended.
                    _ = follow(etcd, &prefix, &mut seen, &recorder) => {}
                    () = until(&mut is_restored, true) => {
                        // It is somebody else's history from here on: it begins anew when etcd is back.
                        until(&mut is_restored, false).await;
                        while again(etcd, &prefix, &mut seen, &recorder).await.is_err() {
                            tokio::time::sleep(PAUSE).await;
                        }
                    }
                }
                tokio::time::sleep(PAUSE).await;
            }
        });
        Self { restored, task: task.abort_handle() }
    }

    /// Whether etcd is being restored from a backup.
    pub(crate) fn set_restored(&self, restored: bool) {
        self.restored.send_replace(restored);
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn until(restored: &mut watch::Receiver<bool>, is: bool) {
    // Its sender goes with the task.
    let _ = restored.wait_for(|now| *now == is).await;
}

/// All there is, as a beginning.
async fn again(etcd: SocketAddr, prefix: &str, seen: &mut i64, recorder: &Recorder) -> Result<()> {
    let range = json!({"key": encode(prefix), "range_end": encode(&end_of(prefix))});
    let body = ask(etcd, "/v3/kv/range", &range).await?.collect().await?.to_bytes();
    let reply: Value = serde_json::from_slice(&body)?;
    *seen = number(&reply["header"]["revision"]).context("no revision")?;
    recorder.note(What::Restored);
    for held in reply["kvs"].as_array().into_iter().flatten() {
        note(held, prefix, recorder)?;
    }
    Ok(())
}

fn end_of(prefix: &str) -> String {
    format!("{}0", prefix.trim_end_matches('/')) // the character after the slash
}

fn encode(text: &str) -> String {
    BASE64_STANDARD.encode(text)
}

fn number(value: &Value) -> Option<i64> {
    value.as_str().and_then(|text| text.parse().ok())
}

async fn ask(etcd: SocketAddr, path: &str, body: &Value) -> Result<Incoming> {
    let stream = TcpStream::connect(etcd).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let request = Request::post(path).header("host", etcd.to_string());
    Ok(sender.send_request(request.body(Full::new(Bytes::from(body.to_string())))?).await?.into_body())
}

/// One watch, from the revision after the last one.
async fn follow(etcd: SocketAddr, prefix: &str, seen: &mut i64, recorder: &Recorder) -> Result<()> {
    let from = (*seen + 1).to_string();
    let watch = json!({"key": encode(prefix), "range_end": encode(&end_of(prefix)), "start_revision": from});
    let mut body = ask(etcd, "/v3/watch", &json!({"create_request": watch})).await?;
    let mut rest = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        rest.extend_from_slice(&data);
        while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = rest.drain(..=end).collect();
            take(&serde_json::from_slice(&line)?, prefix, seen, recorder)?;
        }
    }
    Ok(())
}

/// One message of the watch.
fn take(message: &Value, prefix: &str, seen: &mut i64, recorder: &Recorder) -> Result<()> {
    let result = &message["result"];
    if result["canceled"] == true {
        // Compacted: what was written meanwhile is lost.
        recorder.note(What::Missed);
        *seen = number(&result["compact_revision"]).unwrap_or(*seen + 1) - 1;
        bail!("the watch was cancelled: {message}");
    }
    for event in result["events"].as_array().into_iter().flatten() {
        let held = &event["kv"];
        *seen = number(&held["mod_revision"]).context("no revision")?;
        note(held, prefix, recorder)?;
    }
    Ok(())
}

/// One config, or its end.
fn note(held: &Value, prefix: &str, recorder: &Recorder) -> Result<()> {
    let key = BASE64_STANDARD.decode(held["key"].as_str().context("no key")?)?;
    let config = String::from_utf8(key)?.trim_start_matches(prefix).to_owned();
    let object = match held["value"].as_str() {
        Some(value) => Some(Box::new(stored(&BASE64_STANDARD.decode(value)?)?)),
        None => None,
    };
    recorder.note(What::Stored { config, object });
    Ok(())
}

/// What matters of a config.
fn stored(bytes: &[u8]) -> Result<Stored> {
    let config: VersionedConfig = serde_json::from_slice(bytes)?;
    let mut status = config.status.unwrap_or_default();
    // The bulk of it, about which nothing is asked.
    (status.versions, status.internal.retired) = (Vec::new(), Vec::new());
    let millis = |seconds: u32| u64::from(seconds) * 1000;
    Ok(Stored {
        uid: config.metadata.uid.unwrap_or_default(),
        generation: config.metadata.generation.unwrap_or_default(),
        wanted: config.spec.version,
        held: config.spec.rollout.hold.is_some(),
        dwell: millis(config.spec.rollout.min_ready_seconds),
        bake: millis(config.spec.rollout.bake_seconds),
        status,
    })
}
