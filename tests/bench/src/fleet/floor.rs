//! The floor: the patches that the hub makes of pods' statuses, of another condition, in a bare loop. The control plane
//! and its agents are there as in the rollouts, and at rest.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;

use super::pods::FleetPod;

/// Patches at the same time.
pub(super) const MAX_CONCURRENT_REQUESTS: usize = 16;

/// Returns how long the patches of these pods take.
pub(super) async fn floor(client: &Client, pods: impl Iterator<Item = &FleetPod>) -> Result<Duration> {
    // Each time another content: a patch that changes nothing costs nothing.
    static ROUND: AtomicU32 = AtomicU32::new(0);
    let round = ROUND.fetch_add(1, Ordering::Relaxed);
    let began = Instant::now();
    let patches = stream::iter(pods).map(|pod| async move {
        let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let condition = json!({
            "type": "nudge.dev/Floor", "status": "True", "reason": "Applied", "message": format!("shop-0={round}"),
            "lastTransitionTime": now, "lastProbeTime": now,
        });
        let patch = json!({"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}});
        let api = Api::<Pod>::namespaced(client.clone(), &pod.namespace);
        api.patch_status(&pod.name, &PatchParams::default(), &Patch::Strategic(patch)).await.map(drop)
    });
    patches.buffer_unordered(MAX_CONCURRENT_REQUESTS).try_collect::<()>().await?;
    Ok(began.elapsed())
}
