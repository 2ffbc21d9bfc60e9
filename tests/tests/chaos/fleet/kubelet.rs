//! The kubelet's part: it writes into a pod's status whether its application is ready, and how often its containers were started again.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use nudge_tests::cluster::Space;
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::versions::is_bad;
use crate::history::{How, Values};

/// How often it looks.
const LOOK: Duration = Duration::from_millis(200);

/// What is so of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct State {
    life: Option<u32>,
    bad: bool,
    node_away: bool,
    app_restarts: u32,
    agent_restarts: u32,
}

/// What is so of a pod, to be written.
#[derive(Default)]
pub(crate) struct Condition(Mutex<State>);

impl Condition {
    /// The application has read this.
    pub(crate) fn seen(&self, life: u32, how: How, values: &Values) {
        let mut state = self.lock();
        if state.life.is_some_and(|before| before != life) {
            state.app_restarts += 1;
        }
        state.life = Some(life);
        if how != How::Files {
            state.bad = is_bad(values);
        }
    }

    pub(crate) fn agent_restarted(&self) {
        self.lock().agent_restarts += 1;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }
}

/// Writes the condition of a pod whenever it has changed, until the task is ended.
pub(crate) async fn kubelet(space: Space, pod: String, condition: Arc<Condition>, node: watch::Receiver<bool>) {
    let mut written = State::default();
    let mut turns = tokio::time::interval(LOOK);
    loop {
        turns.tick().await;
        let now = State { node_away: !*node.borrow(), ..*condition.lock() };
        let is_written = |state: State| (state.bad, state.node_away, state.app_restarts, state.agent_restarts);
        // The API server is away from time to time: at the next turn.
        if is_written(now) == is_written(written) || write(&space, &pod, now).await.is_ok() {
            written = now;
        }
    }
}

async fn write(space: &Space, pod: &str, state: State) -> Result<()> {
    let pods = space.api::<Pod>();
    let before = pods.get(pod).await?.status.and_then(|status| status.container_statuses);
    let mut statuses = serde_json::to_value(before)?;
    let now = Timestamp::now().to_string();
    for status in statuses.as_array_mut().context("no containers")? {
        let is_app = status["name"] == "app";
        let restarts = if is_app { state.app_restarts } else { state.agent_restarts };
        if status["restartCount"] != restarts {
            status["restartCount"] = restarts.into();
            status["lastState"] = json!({"terminated": {"exitCode": 137, "finishedAt": now}});
        }
        status["ready"] = Value::from(!(is_app && state.bad));
    }
    // Of a node that is away only the pod is known not to be Ready.
    let kinds = [("ContainersReady", !state.bad), ("Ready", !state.bad && !state.node_away)];
    let conditions = kinds.map(|(kind, is)| {
        let status = if is { "True" } else { "False" };
        json!({"type": kind, "status": status, "lastTransitionTime": now})
    });
    let patch = Patch::Strategic(json!({"status": {"containerStatuses": statuses, "conditions": conditions}}));
    pods.patch_status(pod, &PatchParams::default(), &patch).await?;
    Ok(())
}
