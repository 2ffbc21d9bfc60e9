//! A policy of the cluster that requires approval, above the config's own rule and without one.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use nudge_api::{RolloutPolicy, VersionedConfig};
use nudge_tests::Installation;
use serde_json::{Value, json};

use crate::approval::scene::{Shop, User};

/// The policies that a test has made; the namespaces of others never match.
struct Policies {
    api: Api<RolloutPolicy>,
    team: String,
}

impl Policies {
    async fn new(installation: &Installation<'_>, shop: &Shop) -> Result<Self> {
        let (admin, team) = (installation.cluster.admin().await?, shop.space.name.clone());
        let label = json!({"metadata": {"labels": {"team": team}}});
        Api::<Namespace>::all(admin.clone()).patch(&team, &PatchParams::default(), &Patch::Merge(label)).await?;
        Ok(Self { api: Api::all(admin), team })
    }

    /// Makes one and returns its name.
    async fn make(&self, name: &str, needs: Value) -> Result<String> {
        let name = format!("{}-{name}", self.team);
        let selector = json!({"matchLabels": {"team": self.team}});
        let policy = json!({
            "apiVersion": "nudge.dev/v1alpha1", "kind": "RolloutPolicy", "metadata": {"name": name},
            "spec": {"namespaceSelector": selector, "approval": needs},
        });
        self.api.create(&PostParams::default(), &serde_json::from_value(policy)?).await?;
        Ok(name)
    }

    async fn remove(&self, name: &str) -> Result<()> {
        self.api.delete(name, &DeleteParams::default()).await?;
        Ok(())
    }
}

/// Requests version 2. The policies, the labels of namespaces and configs are observed apart, so the config is on hold
/// for a moment.
async fn asks_on_hold(shop: &Shop, user: &User) -> Result<()> {
    user.change(json!({"version": "2", "rollout": {"hold": {"reason": "policies are seen"}}})).await?;
    let waits = |config: &VersionedConfig| {
        let mut conditions = config.status.iter().flat_map(|status| &status.conditions);
        // What needs approval says that first.
        conditions.any(|condition| ["OnHold", "AwaitingApproval"].contains(&condition.reason.as_str()))
    };
    shop.wait_for_status("it waits", waits).await?;
    user.change(json!({"rollout": {"hold": null}})).await?;
    Ok(())
}

#[tokio::test]
async fn a_policy_requests_approval_and_no_config_weakens_that() -> Result<()> {
    let Some((installation, _)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    let shop = Shop::new(installation, Value::Null).await?;
    let [alice, bob, carol] = [
        shop.user(installation.cluster, "alice").await?,
        shop.user(installation.cluster, "bob").await?,
        shop.user(installation.cluster, "carol").await?,
    ];
    ensure!(shop.config().await?.spec.rollout.approval.is_none());
    for version in ["2", "3"] {
        shop.create_version(&alice, version, version).await?;
    }
    let policies = Policies::new(installation, &shop).await?;
    let policy = policies.make("prod", json!({"required": 2})).await?;
    asks_on_hold(&shop, &alice).await?;
    let asks = format!("has 0 of 2 approvals that RolloutPolicy {policy} requires");
    shop.wait_for_approval_message(&asks).await?;

    // The config's own rule is added to it, also where authors may approve by it.
    alice.change(json!({"rollout": {"approval": {"required": 1, "notAuthor": false}}})).await?;
    shop.decide(&alice, "2", "Approve").await?;
    let message = shop.wait_for_approval_message("alice has created a part of it").await?;
    ensure!(message.contains(&asks), "{message}");
    shop.decide(&bob, "2", "Approve").await?;
    let message = shop.wait_for_approval_message("; so far: bob approves it; ").await?;
    ensure!(message.contains(&format!("has 1 of 2 approvals that RolloutPolicy {policy} requires; ")), "{message}");
    let gate = shop.config().await?.status.and_then(|status| status.rollout.gate);
    ensure!(gate.is_some_and(|it| it.reason.as_str() == "AwaitingApproval" && it.until_time.is_none()));
    shop.decide(&carol, "2", "Approve").await?;
    let status = shop.wait_until_current("2").await?;
    ensure!(
        status.rollout.gate.is_none() && status.releases.last().is_some_and(|release| release.approvals.len() == 2)
    );

    // Without the policy the config's own rule stays.
    alice.change(json!({"version": "3"})).await?;
    shop.wait_for_approval_message(&asks).await?;
    policies.remove(&policy).await?;
    shop.wait_for_approval_message("has 0 of 1 approval that it needs").await?;
    shop.decide(&alice, "3", "Approve").await?;
    shop.wait_until_current("3").await?;
    Ok(())
}

#[tokio::test]
async fn without_the_policy_a_config_without_a_rule_continues() -> Result<()> {
    let Some((installation, _)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    let shop = Shop::new(installation, Value::Null).await?;
    let alice = shop.user(installation.cluster, "alice").await?;
    shop.create_version(&alice, "2", "two").await?;
    let policies = Policies::new(installation, &shop).await?;
    let policy = policies.make("prod", json!({})).await?;
    asks_on_hold(&shop, &alice).await?;
    shop.wait_for_approval_message(&format!("has 0 of 1 approval that RolloutPolicy {policy} requires")).await?;
    policies.remove(&policy).await?;
    shop.wait_until_current("2").await?;
    Ok(())
}
