//! The status of a pod as its kubelet writes it: whether its application is ready, and how often its containers were
//! started again.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use nudge_tests::cluster::TestNamespace;
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::versions::is_bad;
use crate::history::{How, Values};

/// How often the status is compared with the state of the pod.
const WRITE_INTERVAL: Duration = Duration::from_millis(200);

/// The state of a pod that its status follows from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct State {
    life: Option<u32>,
    bad: bool,
    node_away: bool,
    app_restarts: u32,
    agent_restarts: u32,
}

/// The health of a pod, which its status is to show.
#[derive(Default)]
pub(crate) struct PodHealth(Mutex<State>);

impl PodHealth {
    /// Records what the application has read.
    pub(crate) fn record_reading(&self, life: u32, how: How, values: &Values) {
        let mut state = self.lock();
        if state.life.is_some_and(|before| before != life) {
            state.app_restarts += 1;
        }
        state.life = Some(life);
        if how != How::Files {
            state.bad = is_bad(values);
        }
    }

    pub(crate) fn record_agent_restart(&self) {
        self.lock().agent_restarts += 1;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }
}

/// Writes the status of a pod whenever its health has changed, until the task is ended.
pub(crate) async fn write_pod_status(
    space: TestNamespace,
    pod: String,
    health: Arc<PodHealth>,
    node: watch::Receiver<bool>,
) {
    let mut written = State::default();
    let mut ticks = tokio::time::interval(WRITE_INTERVAL);
    loop {
        ticks.tick().await;
        let now = State { node_away: !*node.borrow(), ..*health.lock() };
        let is_written = |state: State| (state.bad, state.node_away, state.app_restarts, state.agent_restarts);
        // The API server is away from time to time; the next tick tries again.
        if is_written(now) == is_written(written) || write(&space, &pod, now).await.is_ok() {
            written = now;
        }
    }
}

async fn write(space: &TestNamespace, pod: &str, state: State) -> Result<()> {
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
    // While a node is away, its containers keep their conditions and only the pod is not Ready.
    let kinds = [("ContainersReady", !state.bad), ("Ready", !state.bad && !state.node_away)];
    let conditions = kinds.map(|(kind, is_true)| {
        let status = if is_true { "True" } else { "False" };
        json!({"type": kind, "status": status, "lastTransitionTime": now})
    });
    let patch = Patch::Strategic(json!({"status": {"containerStatuses": statuses, "conditions": conditions}}));
    pods.patch_status(pod, &PatchParams::default(), &patch).await?;
    Ok(())
}
