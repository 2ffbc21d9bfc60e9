//! The log of a container, followed from its start, every line with the time when the container runtime got it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use futures::{AsyncBufReadExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::LogParams;
use parking_lot::Mutex;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::task::JoinHandle;

use nudge_tests::eventually;

/// A line of a log.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    /// The time, by the clock of the pod's node.
    pub(crate) at: OffsetDateTime,
    pub(crate) text: String,
}

/// Follows a log until it is dropped.
pub(crate) struct Log {
    lines: Arc<Mutex<Vec<Line>>>,
    task: JoinHandle<()>,
}

impl Log {
    /// Follows the container, which must have started.
    pub(crate) async fn follow(pods: &Api<Pod>, pod: &str, container: &str) -> Result<Self> {
        let container = Some(container.to_owned());
        let parameters = LogParams { container, follow: true, timestamps: true, ..LogParams::default() };
        let mut stream = pods.log_stream(pod, &parameters).await.context("no log")?.lines();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let into = Arc::clone(&lines);
        let task = tokio::spawn(async move {
            while let Ok(Some(line)) = stream.try_next().await {
                let Some((at, text)) = line.split_once(' ') else { continue };
                let Ok(at) = OffsetDateTime::parse(at, &Rfc3339) else { continue };
                into.lock().push(Line { at, text: text.to_owned() });
            }
        });
        Ok(Self { lines, task })
    }

    /// Returns all that has come so far.
    pub(crate) fn lines(&self) -> Vec<Line> {
        self.lines.lock().clone()
    }

    /// Returns the first line with this in it that is not older than `since`.
    pub(crate) async fn line(&self, since: OffsetDateTime, within: Duration, text: &str) -> Result<Line> {
        let exists = async || self.lines().into_iter().find(|line| line.at >= since && line.text.contains(text));
        let result = eventually(within, &format!("the log says {text:?}"), exists).await;
        result
            .with_context(|| format!("it says: {:#?}", self.lines().iter().map(|line| &line.text).collect::<Vec<_>>()))
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.task.abort();
    }
}
