//! Texts behind the gates of a policy. No webhook knows who writes them.

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use nudge_api::{
    ConditionType, Reason, RolloutPolicy, VersionApproval, VersionApprovalSpec, VersionedConfigStatus, find_condition,
};
use nudge_core::derived_keys::{NOTES, NoteKey};
use nudge_core::governance::{sealed_digest, sign_approver_groups};
use nudge_protocol::labels::APPROVER_GROUPS;
use nudge_tests::cluster::installation::{NAMESPACE, at_once};
use nudge_tests::cluster::space::user;
use nudge_tests::{Installation, Replica, eventually};
use serde_json::{Value, json};

use super::baseline_space;
use super::followed::{Followed, Origin, WAIT_TIMEOUT};
use super::tools::{HelmChart, Tool};

/// Users who may approve.
const APPROVERS: [&str; 2] = ["bob", "carol"];

/// A config that its namespace has made, with a text that waits for what a policy requires.
struct Gated<'a> {
    followed: Followed<'a>,
    tool: Tool,
    helm: Option<HelmChart>,
    policies: Api<RolloutPolicy>,
}

impl<'a> Gated<'a> {
    /// Creates a config with two pods at the first text, and then the policy.
    async fn new(
        (installation, replica): &'a (Installation<'static>, Replica),
        name: &'static str,
        tool: Tool,
        rules: Value,
    ) -> Result<Self> {
        let cluster = installation.cluster;
        let helm = tokio::task::spawn_blocking(HelmChart::find).await??;
        let tool = if helm.is_some() { tool } else { Tool::Apply };
        let space = baseline_space(cluster, name).await?;
        let mut followed = Followed::new(cluster, space, name, Origin::Baseline).await?;
        tool.write(&followed, helm.as_ref(), 0).await?;
        followed.start(replica.hub).await?;
        followed.set(json!({"rollout": at_once()})).await?;
        let policies: Api<RolloutPolicy> = Api::all(cluster.admin().await?);
        let mut spec = rules;
        spec["namespaceSelector"] = json!({"matchLabels": {"team": name}});
        let policy = json!({
            "apiVersion": "nudge.dev/v1alpha1", "kind": "RolloutPolicy", "metadata": {"name": name}, "spec": spec,
        });
        policies.create(&PostParams::default(), &serde_json::from_value(policy)?).await?;
        let is_known = async || policies.get(name).await.ok()?.status.filter(|status| status.configs == 1).map(drop);
        eventually(WAIT_TIMEOUT, "the policy is known", is_known).await?;
        Ok(Self { followed, tool, helm, policies })
    }

    /// Writes a text, and waits until its version waits for this reason. The tool ends well, the text stays, and pods
    /// keep what they have.
    async fn write(&self, index: usize, reason: Reason) -> Result<VersionedConfigStatus> {
        let (followed, value) = (&self.followed, self.tool.texts()[index]);
        let before = followed.wait_for("its text", |status| status.desired_version.is_some()).await?.desired_version;
        self.tool.write(followed, self.helm.as_ref(), index).await?;
        let status = followed
            .wait_for(&format!("{value:?} waits: {reason}"), |status| {
                let ready = find_condition(&status.conditions, ConditionType::Ready);
                let is_withheld = ready.is_some_and(|ready| ready.reason == reason.as_str());
                is_withheld && status.desired_version != before
            })
            .await?;
        let version = status.desired_version.as_deref().and_then(|desired| status.version(desired));
        ensure!(version.is_some_and(|version| !version.digest.is_empty()), "{status:#?}");
        ensure!(status.current_version.as_deref() == Some("1.0.0"), "{status:#?}");
        ensure!(followed.serves("one"), "pods have a text that waits");
        followed.check_text(value).await?;
        Ok(status)
    }

    /// Approves the version that waits, as these users do.
    async fn approve(&self, status: &VersionedConfigStatus, users: &[&str]) -> Result<()> {
        let space = &self.followed.space;
        let secrets: Api<Secret> = Api::namespaced(space.client.clone(), NAMESPACE);
        let key =
            secrets.get("nudge-content-key").await?.data.and_then(|mut data| data.remove(NOTES)).context("no key")?;
        let version = status.desired_version.as_deref().context("no version")?;
        let digest = sealed_digest(status.version(version).context("not sealed")?);
        for user in users {
            let spec = json!({
                "configName": self.followed.name, "version": version, "digest": digest, "decision": "Approve",
                "reason": "read it", "approver": user,
            });
            let approval: VersionApprovalSpec = serde_json::from_value(spec.clone())?;
            let note = sign_approver_groups(&NoteKey::new(&key.0), &space.name, &approval, &[], Timestamp::now());
            let metadata = json!({"generateName": format!("{user}-"), "annotations": {APPROVER_GROUPS: note}});
            space.create_object::<VersionApproval>(json!({"metadata": metadata, "spec": spec})).await?;
        }
        Ok(())
    }

    async fn end(self) -> Result<()> {
        self.policies.delete(self.followed.name, &DeleteParams::default()).await?;
        Ok(())
    }
}

fn window(days: &[&str]) -> Value {
    json!({"name": "office", "days": days, "from": "00:00", "to": "24:00", "timeZone": "UTC"})
}

/// Returns a day of the week that is neither today nor tomorrow.
fn other_day() -> &'static str {
    let today = Timestamp::now().to_zoned(k8s_openapi::jiff::tz::TimeZone::UTC).weekday();
    let number = usize::from(today.to_monday_zero_offset().unsigned_abs());
    ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"][(number + 3) % 7]
}

#[tokio::test]
async fn a_text_waits_for_approval_and_for_a_window_and_its_tool_ends_well() -> Result<()> {
    let Some(shared) = Installation::shared().await? else { return Ok(()) };
    let windowed = async {
        let rules = json!({"windows": [window(&[other_day()])]});
        let gated = Gated::new(shared, "texts-in-windows", Tool::HelmUpgrade, rules).await?;
        gated.write(1, Reason::OutsideWindow).await?;
        gated.write(2, Reason::OutsideWindow).await?;
        let open = json!({"spec": {"windows": [window(&["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"])]}});
        gated.policies.patch(gated.followed.name, &PatchParams::default(), &Patch::Merge(&open)).await?;
        gated.followed.wait_until_current("three").await?;
        gated.followed.check_text("three").await?;
        gated.end().await
    };
    // The second text fails, and the third one comes while the move is stopped.
    let approved = async {
        let rules = json!({"approval": {"required": 1, "notAuthor": true}});
        let gated = Gated::new(shared, "texts-with-approval", Tool::ApplyServerSide, rules).await?;
        for name in APPROVERS {
            let rule = json!([{"apiGroups": ["nudge.dev"], "resources": ["versionedconfigs"], "verbs": ["approve"]}]);
            gated.followed.space.grant(name, rule, user(name)).await?;
        }
        let second = gated.write(1, Reason::AwaitingApproval).await?;
        gated.followed.set(json!({"rollout": {"onFailure": "Hold"}})).await?;
        gated.followed.refuse();
        gated.approve(&second, &APPROVERS).await?;
        gated.followed.wait_for("it fails", |status| status.rollout.failure.is_some()).await?;
        gated.followed.agree();
        let third = gated.write(2, Reason::AwaitingApproval).await?;
        gated.approve(&third, &APPROVERS[..1]).await?;
        let counts_one = |status: &VersionedConfigStatus| {
            let ready = find_condition(&status.conditions, ConditionType::Ready);
            ready.is_some_and(|ready| ready.message.contains("has 1 of 2 approvals"))
        };
        gated.followed.wait_for("one approval is missing", counts_one).await?;
        ensure!(gated.followed.serves("one"), "one approval is not enough");
        gated.approve(&third, &APPROVERS[1..]).await?;
        gated.followed.wait_until_current("three").await?;
        gated.followed.check_text("three").await?;
        gated.end().await
    };
    try_join(Box::pin(windowed), Box::pin(approved)).await?;
    Ok(())
}
