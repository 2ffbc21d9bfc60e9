//! The statuses of policies and approvals that the controllers write, also of objects that no webhook has seen, against
//! a real API server.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use nudge_api::{
    ConditionType, RolloutPolicy, RolloutPolicyStatus, VersionApproval, VersionApprovalSpec, VersionedConfig,
    VersionedConfigStatus, find_condition,
};
use nudge_core::derived_keys::{NOTES, NoteKey};
use nudge_core::governance::{sealed_digest, sign_approver_groups};
use nudge_protocol::labels::APPROVER_GROUPS;
use nudge_tests::cluster::TestNamespace;
use nudge_tests::cluster::installation::{NAMESPACE, at_once, bind, create_part};
use nudge_tests::cluster::space::user;
use nudge_tests::{Installation, eventually};
use serde_json::{Value, json};
use tokio::time::sleep;

/// How long anything may take on a busy machine. Rights of approvers are requested again every 15 s.
const WAIT_TIMEOUT: Duration = Duration::from_mins(2);
const POLICY: &str = "statuses";

async fn version(space: &TestNamespace, version: &str) -> Result<()> {
    let labels = json!({"nudge.dev/config": "shop", "nudge.dev/version": version});
    let meta = json!({"name": format!("shop-{version}"), "labels": labels});
    create_part::<ConfigMap>(space, json!({"metadata": meta, "immutable": true, "data": {"key": version}}))
        .await
        .map(drop)
}

/// Waits until the status of the config is so.
async fn wait_for_status(
    space: &TestNamespace,
    what: &str,
    is: impl Fn(&VersionedConfigStatus) -> bool,
) -> Result<VersionedConfigStatus> {
    let is_expected = |config: &VersionedConfig| config.status.as_ref().is_some_and(&is);
    space.object_until(WAIT_TIMEOUT, "shop", what, is_expected).await?.status.context("just seen")
}

async fn wait_until_current(space: &TestNamespace, version: &str) -> Result<()> {
    let is_expected = |status: &VersionedConfigStatus| status.current_version.as_deref() == Some(version);
    wait_for_status(space, &format!("version {version} is current"), is_expected).await.map(drop)
}

fn window(name: &str, zone: &str) -> Value {
    let days = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
    json!({"name": name, "days": days, "from": "00:00", "to": "24:00", "timeZone": zone})
}

#[tokio::test]
async fn a_policy_says_whether_it_can_be_used_and_what_it_is_about() -> Result<()> {
    let Some((installation, _)) = Installation::shared().await? else { return Ok(()) };
    let labels = [("nudge.dev/enabled", "true"), ("team", POLICY)];
    let space = installation.cluster.space_with("policies", &labels).await?;
    bind(&space, "nudge-namespace").await?;
    let policies: Api<RolloutPolicy> = Api::all(installation.cluster.admin().await?);
    let policy = json!({
        "apiVersion": "nudge.dev/v1alpha1", "kind": "RolloutPolicy", "metadata": {"name": POLICY},
        "spec": {"namespaceSelector": {"matchLabels": {"team": POLICY}}, "windows": [window("mars", "Mars/Olympus")]},
    });
    policies.create(&PostParams::default(), &serde_json::from_value(policy)?).await?;
    let wait_for_policy = async |configs: u32, reason: &str| -> Result<RolloutPolicyStatus> {
        let status = async || {
            let policy = policies.get(POLICY).await.ok()?;
            let status = policy.status.filter(|status| status.observed_generation == policy.metadata.generation)?;
            let ready = find_condition(&status.conditions, ConditionType::Ready)?;
            (ready.reason == reason && (status.namespaces, status.configs) == (1, configs)).then_some(status)
        };
        eventually(WAIT_TIMEOUT, &format!("the policy says {reason} of {configs} configs"), status).await
    };
    let status = wait_for_policy(0, "UnknownTimeZone").await?;
    let ready = &status.conditions[0];
    ensure!(
        ready.status == "False" && ready.message.starts_with("spec.windows: window mars: time zone \"Mars/Olympus\""),
        "{ready:?}"
    );

    let config = json!({"metadata": {"name": "shop"}, "spec": {"version": "1", "rollout": at_once()}});
    space.create_object::<VersionedConfig>(config).await?;
    version(&space, "1").await?;
    wait_until_current(&space, "1").await?;
    wait_for_policy(1, "UnknownTimeZone").await?;
    // That window is never open, and no other is there.
    version(&space, "2").await?;
    let configs = space.api::<VersionedConfig>();
    let wants = Patch::Merge(json!({"spec": {"version": "2"}}));
    configs.patch("shop", &PatchParams::default(), &wants).await?;
    let waits = |status: &VersionedConfigStatus| {
        let ready = find_condition(&status.conditions, ConditionType::Ready);
        let closed = format!("a window of RolloutPolicy {POLICY} can't be used, so no version continues");
        ready.is_some_and(|ready| ready.reason == "OutsideWindow" && ready.message.starts_with(&closed))
    };
    wait_for_status(&space, "it waits", waits).await?;
    // It does not count against another one.
    let change = async |windows: Value| {
        let patch = Patch::Merge(json!({"spec": {"windows": windows}}));
        policies.patch(POLICY, &PatchParams::default(), &patch).await
    };
    change(json!([window("mars", "Mars/Olympus"), window("earth", "UTC")])).await?;
    wait_until_current(&space, "2").await?;
    wait_for_policy(1, "UnknownTimeZone").await?;
    change(json!([window("earth", "UTC")])).await?;
    let ready = wait_for_policy(1, "Valid").await?.conditions;
    ensure!(ready[0].status == "True", "{ready:?}");

    let before = policies.get(POLICY).await?.resource_version();
    sleep(Duration::from_secs(7)).await;
    ensure!(policies.get(POLICY).await?.resource_version() == before, "at rest nothing is written");
    policies.delete(POLICY, &DeleteParams::default()).await?;
    Ok(())
}

/// An approval of version 1 by bob, as admission stores it if it has the key.
async fn create_approval(space: &TestNamespace, name: &str, digest: &str, key: Option<&NoteKey>) -> Result<()> {
    let spec = json!({
        "configName": "shop", "version": "1", "digest": digest, "decision": "Approve", "reason": "read it", "approver": "bob"
    });
    let approval: VersionApprovalSpec = serde_json::from_value(spec.clone())?;
    let note = key.and_then(|key| sign_approver_groups(key, &space.name, &approval, &[], Timestamp::now()));
    let annotations = note.map(|note| json!({APPROVER_GROUPS: note}));
    let object = json!({"metadata": {"name": name, "annotations": annotations}, "spec": spec});
    space.create_object::<VersionApproval>(object).await.map(drop)
}

/// Waits until the approval says this.
async fn wait_for_condition(space: &TestNamespace, name: &str, reason: &str) -> Result<VersionApproval> {
    let is_expected = |approval: &VersionApproval| {
        let conditions = approval.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
        find_condition(conditions, ConditionType::Counted).is_some_and(|counted| counted.reason == reason)
    };
    space.object_until(WAIT_TIMEOUT, name, &format!("it says {reason}"), is_expected).await
}

#[tokio::test]
async fn an_approval_says_whether_it_counts_and_why_not() -> Result<()> {
    let Some((installation, _)) = Installation::shared().await? else { return Ok(()) };
    let space = installation.enabled("approvals").await?;
    let secrets: Api<Secret> = Api::namespaced(space.client.clone(), NAMESPACE);
    let key = secrets.get("nudge-content-key").await?.data.and_then(|mut data| data.remove(NOTES)).context("no key")?;
    let key = NoteKey::new(&key.0);

    create_approval(&space, "early", &format!("sha256:{}", "0".repeat(48)), Some(&key)).await?;
    wait_for_condition(&space, "early", "NoConfig").await?;
    let mut rollout = at_once();
    rollout["approval"] = json!({"required": 1, "notAuthor": false});
    let config = json!({"metadata": {"name": "shop"}, "spec": {"rollout": rollout}});
    space.create_object::<VersionedConfig>(config).await?;
    wait_for_condition(&space, "early", "NoVersion").await?;
    version(&space, "1").await?;
    wait_for_condition(&space, "early", "OtherContent").await?;
    let status = wait_for_status(&space, "version 1 is sealed", |status| status.version("1").is_some()).await?;
    let digest = sealed_digest(status.version("1").context("just seen")?);
    create_approval(&space, "forged", &digest, None).await?;
    wait_for_condition(&space, "forged", "NotSigned").await?;
    create_approval(&space, "bobs", &digest, Some(&key)).await?;
    let refused = wait_for_condition(&space, "bobs", "NoRight").await?;
    ensure!(refused.status.as_ref().is_some_and(|status| status.observed_generation == refused.metadata.generation));
    let approve = json!([{"apiGroups": ["nudge.dev"], "resources": ["versionedconfigs"], "verbs": ["approve"]}]);
    space.grant("bob", approve, user("bob")).await?;
    wait_until_current(&space, "1").await?;
    wait_for_condition(&space, "bobs", "Counted").await?;

    // Nobody else writes that.
    let rules = json!([{"apiGroups": ["nudge.dev"], "resources": ["versionapprovals"], "verbs": ["*"]}]);
    space.grant("walter", rules, user("walter")).await?;
    let walter = installation.cluster.client(&installation.cluster.user("walter", &[])).await?;
    let approvals: Api<VersionApproval> = Api::namespaced(walter, &space.name);
    eventually(WAIT_TIMEOUT, "the role is bound", async || approvals.get("forged").await.ok().map(drop)).await?;
    let forged = Patch::Merge(json!({"status": {"conditions": []}}));
    let refused =
        approvals.patch_status("forged", &PatchParams::default(), &forged).await.err().context("it was taken")?;
    ensure!(refused.to_string().contains("versionapprovals/status"), "{refused}");
    approvals.patch("forged", &PatchParams::default(), &forged).await?;
    let before = wait_for_condition(&space, "forged", "NotSigned").await?.resource_version();
    sleep(Duration::from_secs(5)).await;
    ensure!(approvals.get("forged").await?.resource_version() == before, "at rest nothing is written");
    wait_for_condition(&space, "bobs", "Counted").await.map(drop)
}
