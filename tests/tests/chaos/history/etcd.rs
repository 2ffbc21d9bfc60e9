//! The history of the configs in etcd, by a watch of etcd itself: it continues over restarts, from the revision that
//! was seen last.

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
use super::{Occurrence, Stored};

/// The time until etcd is asked again.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

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
            let mut revision = 0;
            loop {
                tokio::select! {
                    // An error does not matter: etcd is away from time to time, and the watch continues where it ended.
                    _ = follow(etcd, &prefix, &mut revision, &recorder) => {}
                    () = wait_until(&mut is_restored, true) => {
                        // A restored etcd has another history, which begins again when etcd is back.
                        wait_until(&mut is_restored, false).await;
                        while note_all(etcd, &prefix, &mut revision, &recorder).await.is_err() {
                            tokio::time::sleep(RETRY_INTERVAL).await;
                        }
                    }
                }
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
        });
        Self { restored, task: task.abort_handle() }
    }

    /// Sets whether etcd is being restored from a backup.
    pub(crate) fn set_restored(&self, restored: bool) {
        self.restored.send_replace(restored);
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn wait_until(restored: &mut watch::Receiver<bool>, wanted: bool) {
    // The sender is dropped with the task.
    let _ = restored.wait_for(|now| *now == wanted).await;
}

/// Notes all configs that etcd holds.
async fn note_all(etcd: SocketAddr, prefix: &str, seen: &mut i64, recorder: &Recorder) -> Result<()> {
    let range = json!({"key": encode(prefix), "range_end": encode(&end_of(prefix))});
    let body = ask(etcd, "/v3/kv/range", &range).await?.collect().await?.to_bytes();
    let reply: Value = serde_json::from_slice(&body)?;
    *seen = number(&reply["header"]["revision"]).context("no revision")?;
    recorder.note(Occurrence::Restored);
    for entry in reply["kvs"].as_array().into_iter().flatten() {
        note(entry, prefix, recorder)?;
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

/// Follows one watch, from the revision after the last one.
async fn follow(etcd: SocketAddr, prefix: &str, seen: &mut i64, recorder: &Recorder) -> Result<()> {
    let from = (*seen + 1).to_string();
    let watch = json!({"key": encode(prefix), "range_end": encode(&end_of(prefix)), "start_revision": from});
    let mut body = ask(etcd, "/v3/watch", &json!({"create_request": watch})).await?;
    let mut unparsed = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        unparsed.extend_from_slice(&data);
        while let Some(end) = unparsed.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = unparsed.drain(..=end).collect();
            note_message(&serde_json::from_slice(&line)?, prefix, seen, recorder)?;
        }
    }
    Ok(())
}

/// Notes one message of the watch.
fn note_message(message: &Value, prefix: &str, seen: &mut i64, recorder: &Recorder) -> Result<()> {
    let result = &message["result"];
    if result["canceled"] == true {
        // etcd was compacted, so what was written meanwhile is lost.
        recorder.note(Occurrence::Missed);
        *seen = number(&result["compact_revision"]).unwrap_or(*seen + 1) - 1;
        bail!("the watch was cancelled: {message}");
    }
    for event in result["events"].as_array().into_iter().flatten() {
        let entry = &event["kv"];
        *seen = number(&entry["mod_revision"]).context("no revision")?;
        note(entry, prefix, recorder)?;
    }
    Ok(())
}

/// Notes a config as it is stored, or its deletion.
fn note(entry: &Value, prefix: &str, recorder: &Recorder) -> Result<()> {
    let key = BASE64_STANDARD.decode(entry["key"].as_str().context("no key")?)?;
    let config = String::from_utf8(key)?.trim_start_matches(prefix).to_owned();
    let object = match entry["value"].as_str() {
        Some(value) => Some(Box::new(parse_config(&BASE64_STANDARD.decode(value)?)?)),
        None => None,
    };
    recorder.note(Occurrence::Stored { config, object });
    Ok(())
}

/// Returns what matters of a config.
fn parse_config(bytes: &[u8]) -> Result<Stored> {
    let config: VersionedConfig = serde_json::from_slice(bytes)?;
    let mut status = config.status.unwrap_or_default();
    // The largest parts, which no check reads.
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
