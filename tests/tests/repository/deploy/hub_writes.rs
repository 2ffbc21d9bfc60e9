//! The hub's account writes its own conditions of pods and nothing else, although `patch` of `pods/status` would allow
//! all of it.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::api::{Api, Patch, PatchParams};
use nudge_tests::cluster::TestNamespace;
use nudge_tests::cluster::installation::{HUB_ACCOUNT, NAMESPACE, bind};
use nudge_tests::eventually;
use nudge_tests::policies::Recorder;
use serde_json::{Value, json};

use crate::deploy::installing::installed;

const POLICY: &str = "nudge-pods-status";
const WAIT_TIMEOUT: Duration = Duration::from_mins(1);

async fn pod(space: &TestNamespace) -> Result<Pod> {
    space.service_account("app").await?;
    let pod = json!({
        "metadata": {
            "name": "web", "labels": {"app": "web"}, "annotations": {"team": "shop"}, "finalizers": ["example.com/held"],
        },
        "spec": {
            "serviceAccountName": "app", "automountServiceAccountToken": false,
            "containers": [{"name": "app", "image": "test"}],
            "readinessGates": [{"conditionType": "example.com/gate"}],
        },
    });
    let pod = space.create_object::<Pod>(pod).await?;
    let pod = space.run(&pod).await?;
    ensure!(space.api::<ServiceAccount>().get_opt("app").await?.is_some());
    Ok(pod)
}

fn condition(kind: &str, status: &str) -> Value {
    json!({"status": {"conditions": [{"type": kind, "status": status, "reason": "Tried", "message": "tried"}]}})
}

#[tokio::test]
async fn the_hub_writes_its_own_condition_and_nothing_else() -> Result<()> {
    let Some(cluster) = installed().await? else { return Ok(()) };
    if !cluster.has(30, "the policy of pods/status") {
        return Ok(());
    }
    // The policy also holds where Nudge is not enabled.
    let space = cluster.space("written").await?;
    bind(&space, "nudge-namespace").await?;
    let before = pod(&space).await?;
    let user = format!("system:serviceaccount:{NAMESPACE}:{HUB_ACCOUNT}");
    let hub: Api<Pod> = Api::namespaced(cluster.client(&cluster.user(&user, &[])).await?, &space.name);
    let writes = async |patch: Patch<Value>| hub.patch_status("web", &PatchParams::default(), &patch).await;

    // Its own condition: created, changed, and without effect on other conditions.
    let condition_type = "nudge.dev/ConfigCurrent";
    let create = async || writes(Patch::Strategic(condition(condition_type, "False"))).await.ok().map(drop);
    eventually(WAIT_TIMEOUT, "the hub writes its condition", create).await?;
    writes(Patch::Strategic(condition(condition_type, "True"))).await?;

    // The policy is in force a moment after it was applied.
    let label = json!({"metadata": {"labels": {"app": "other"}}});
    let held = async || {
        let dry = PatchParams { dry_run: true, ..PatchParams::default() };
        hub.patch_status("web", &dry, &Patch::Merge(&label)).await.err().map(drop)
    };
    eventually(WAIT_TIMEOUT, "the policy is in force", held).await?;
    let recorder = Recorder::start("pods-status", &cluster.admin().await?, &[("", "pods/status")]).await?;
    let containers = json!({"status": {"containerStatuses": [{"name": "app", "ready": false}]}});
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "gone"}]);
    let attacks = [
        ("a label", Patch::Merge(label.clone())),
        ("the label of agents", Patch::Merge(json!({"metadata": {"labels": {"nudge.dev/agent": "0.1.0"}}}))),
        ("no label", Patch::Merge(json!({"metadata": {"labels": {"app": null}}}))),
        ("an annotation", Patch::Merge(json!({"metadata": {"annotations": {"team": "evil"}}}))),
        (
            "another finalizer",
            Patch::Merge(json!({"metadata": {"finalizers": ["example.com/held", "example.com/more"]}})),
        ),
        ("no finalizer", Patch::Merge(json!({"metadata": {"finalizers": null}}))),
        ("readiness", Patch::Strategic(condition("Ready", "False"))),
        ("a readiness gate", Patch::Strategic(condition("example.com/gate", "True"))),
        ("a condition like its own", Patch::Strategic(condition("nudge.development/x", "True"))),
        ("no conditions", Patch::Merge(json!({"status": {"conditions": []}}))),
        ("an address", Patch::Merge(json!({"status": {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]}}))),
        ("no address", Patch::Merge(json!({"status": {"podIP": null, "podIPs": null}}))),
        ("the phase", Patch::Merge(json!({"status": {"phase": "Failed"}}))),
        ("a new field", Patch::Merge(json!({"status": {"reason": "Evicted", "message": "evil"}}))),
        ("a nominated node", Patch::Merge(json!({"status": {"nominatedNodeName": "evil"}}))),
        ("a container's readiness", Patch::Strategic(containers)),
        ("the start", Patch::Merge(json!({"status": {"startTime": "2001-01-01T00:00:00Z"}}))),
        (
            "its condition and a label",
            Patch::Strategic(json!({
                "metadata": {"labels": {"app": "other"}}, "status": condition(condition_type, "False")["status"],
            })),
        ),
    ];
    for (what, patch) in attacks {
        let error = writes(patch).await.err().with_context(|| format!("the hub wrote {what}"))?;
        let kube::Error::Api(status) = &error else { return Err(error.into()) };
        let denied = status.message.split_once("denied request: ").map(|(_, message)| message);
        let denied =
            denied.filter(|message| status.message.contains(POLICY) && message.starts_with("pod web: the hub may not"));
        recorder.denied(POLICY, denied.with_context(|| format!("{what}: {error}"))?);
    }
    writes(Patch::Strategic(condition(condition_type, "False"))).await?;
    recorder.write()?;
    // The API server itself keeps owners as they are here; the policy would hold them.
    let owned = writes(Patch::Merge(json!({"metadata": {"ownerReferences": owner}}))).await;
    ensure!(owned.is_err() || hub_left_no_owner(&space).await?, "the hub gave the pod an owner");

    let after = space.api::<Pod>().get("web").await?;
    assert_eq!(
        (after.metadata.labels, after.metadata.annotations),
        (before.metadata.labels, before.metadata.annotations)
    );
    let (mut old, mut new) = (before.status.context("a status")?, after.status.context("a status")?);
    let conditions = new.conditions.take().context("conditions")?;
    let others = conditions.iter().filter(|condition| condition.type_ != condition_type).cloned().collect::<Vec<_>>();
    assert_eq!(Some(others), old.conditions.take());
    assert_eq!(old, new);
    // Others are not held.
    let admin = space.api::<Pod>();
    admin
        .patch_status("web", &PatchParams::default(), &Patch::Strategic(condition("example.com/gate", "True")))
        .await?;
    let released = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    admin.patch("web", &PatchParams::default(), &released).await.map(drop)?;
    Ok(())
}

async fn hub_left_no_owner(space: &TestNamespace) -> Result<bool> {
    Ok(space.api::<Pod>().get("web").await?.metadata.owner_references.is_none())
}
