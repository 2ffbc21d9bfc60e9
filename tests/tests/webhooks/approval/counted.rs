//! Whose approvals count.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use nudge_api::ConfigSource;
use nudge_tests::Installation;
use nudge_tests::cluster::installation::bind;
use nudge_tests::cluster::space::{group, user};
use nudge_tests::servers::git_content::git_content;
use serde_json::json;

use crate::approval::scene::{Shop, User, WAIT_TIMEOUT, allow, assert_refused, message};
use crate::config_sources::scene as sources;

#[tokio::test]
async fn it_is_approved_by_somebody_else_who_may() -> Result<()> {
    let Some((installation, replica)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    let shop = Shop::new(installation, json!({})).await?;
    let [alice, bob, dora, eve] = [
        shop.user(installation.cluster, "alice").await?,
        shop.user(installation.cluster, "bob").await?,
        shop.user(installation.cluster, "dora").await?,
        shop.user(installation.cluster, "eve").await?,
    ];
    // Two parts, by two users.
    for (number, user) in [("1", &alice), ("2", &eve)] {
        let labels = json!({"nudge.dev/config": "shop", "nudge.dev/version": "2", "nudge.dev/part": number});
        let annotations = json!({"nudge.dev/parts": "2", "nudge.dev/made-by": "1 x bob"});
        let meta = json!({"name": format!("shop-2-{number}"), "labels": labels, "annotations": annotations});
        let object = json!({"metadata": meta, "immutable": true, "data": {format!("number-{number}"): "2"}});
        user.api::<ConfigMap>().create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    }
    dora.change(json!({"version": "2"})).await?;
    let message = shop.wait_for_approval_message("has 0 of 1 approval that it needs").await?;
    let config = shop.config().await?;
    let sealed = config.status.as_ref().and_then(|status| status.version("2")).context("not sealed")?;
    ensure!(
        message.contains(&format!("kubectl nudge approve shop 2 --digest={} --reason=TEXT", sealed.digest)),
        "{message}"
    );

    // Without the right, in the name of another, of other content, by an author, and by who requested it.
    assert_refused(
        eve.decide(shop.decision("2", "Approve").await?).await,
        "user \"eve\" may not approve or deny versions",
    )?;
    assert_refused(
        eve.decide(shop.decision("2", "Deny").await?).await,
        "user \"eve\" may not approve or deny versions",
    )?;
    let mut as_bob = shop.decision("2", "Approve").await?;
    as_bob["approver"] = json!("bob");
    assert_refused(eve.decide(as_bob.clone()).await, "spec.approver is \"bob\", and you are \"eve\"")?;
    assert_refused(alice.decide(as_bob).await, "spec.approver is \"bob\", and you are \"alice\"")?;
    let mut other = shop.decision("2", "Approve").await?;
    other["digest"] = json!(format!("sha256:{}", "0".repeat(48)));
    let other = bob.decide(other).await?;
    shop.approval_says(&other, "OtherContent").await?;
    let own_approval = shop.decide(&alice, "2", "Approve").await?;
    shop.wait_for_approval_message("; so far: alice has created a part of it").await?;
    shop.approval_says(&own_approval, "IsAuthor").await?;
    shop.decide(&dora, "2", "Approve").await?;
    shop.wait_for_approval_message("dora has requested it").await?;
    allow(&shop.space, "eve", user("eve")).await?;
    let approves = async || shop.decide(&eve, "2", "Approve").await.ok();
    nudge_tests::eventually(WAIT_TIMEOUT, "the role holds", approves).await?;
    shop.wait_for_approval_message("eve has created a part of it").await?;

    let counted = shop.decide(&bob, "2", "Approve").await?;
    let status = shop.wait_until_current("2").await?;
    shop.approval_says(&counted, "Counted").await?;
    let release = status.releases.last().context("no release")?;
    let users: Vec<&str> = release.approvals.iter().map(|approval| approval.user.as_str()).collect();
    ensure!(users == ["bob"] && release.requested_by.as_deref() == Some("dora"), "{release:?}");
    let log = replica.log();
    let lines = |what: &str| {
        let lines =
            log.lines().filter(|line| line.contains(&shop.space.name) && line.contains("audit") && line.contains(what));
        lines.count()
    };
    ensure!(
        (lines("version decided about"), lines("right refused") >= 2) == (5, true),
        "{}",
        lines("version decided about")
    );

    // Back, for which nobody is asked; and forth again, for which the approvals of this content still count.
    dora.change(json!({"version": "1"})).await?;
    shop.wait_until_current("1").await?;
    dora.change(json!({"version": "2"})).await?;
    shop.wait_until_current("2").await?;
    Ok(())
}

#[tokio::test]
async fn two_approvals_are_by_two_users_one_of_which_is_a_service_account() -> Result<()> {
    let Some((installation, _)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    let shop = Shop::new(installation, json!({"required": 2})).await?;
    let [alice, bob] = [shop.user(installation.cluster, "alice").await?, shop.user(installation.cluster, "bob").await?];
    shop.create_version(&alice, "2", "two").await?;
    alice.change(json!({"version": "2"})).await?;
    shop.decide(&bob, "2", "Approve").await?;
    shop.decide(&bob, "2", "Approve").await?;
    shop.wait_for_approval_message("; so far: bob approves it").await?;
    // Its right is that of a group which no object names: it follows from its name.
    shop.space.service_account("ci").await?;
    let accounts = format!("system:serviceaccounts:{}", shop.space.name);
    allow(&shop.space, "accounts", group(&accounts)).await?;
    let token = shop.space.token("ci", "https://kubernetes.default.svc", None).await?;
    let client = installation.cluster.client(&nudge_tests::cluster::Identity::Token(&token)).await?;
    let ci = User { client, namespace: shop.space.name.clone() };
    let approves = async || shop.decide(&ci, "2", "Approve").await.ok();
    nudge_tests::eventually(WAIT_TIMEOUT, "the role holds", approves).await?;
    let release = shop.wait_until_current("2").await?.releases.pop().context("no release")?;
    let users: Vec<&str> = release.approvals.iter().map(|approval| approval.user.as_str()).collect();
    ensure!(users == ["bob", &format!("system:serviceaccount:{}:ci", shop.space.name)], "{users:?}");
    Ok(())
}

#[tokio::test]
async fn a_right_that_is_gone_counts_for_nothing_nor_does_a_denial_by_it() -> Result<()> {
    let Some((installation, _)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    let shop = Shop::new(installation, json!({})).await?;
    let [alice, bob, carol] = [
        shop.user(installation.cluster, "alice").await?,
        shop.user(installation.cluster, "bob").await?,
        shop.user(installation.cluster, "carol").await?,
    ];
    shop.create_version(&alice, "2", "two").await?;
    shop.decide(&bob, "2", "Approve").await?;
    let denial = shop.decide(&carol, "2", "Deny").await?;
    // Other users who may delete approvals, and approve, take no denial away.
    assert_refused(bob.withdraw(&denial).await, "may not withdraw what user \"carol\" has decided")?;
    let changed = json!({"spec": {"decision": "Approve"}});
    let patched = bob.api::<nudge_api::VersionApproval>();
    let patched = patched.patch(&denial, &PatchParams::default(), &Patch::Merge(changed)).await;
    assert_refused(patched, "its spec can't be changed")?;
    alice.change(json!({"version": "2"})).await?;
    shop.wait_for_approval_message("carol denies version 2 (read it)").await?;
    let bindings = shop.space.api::<RoleBinding>();
    bindings.delete("approve-reviewers", &DeleteParams::default()).await?;
    // Asked again now and then, although nothing is observed to change. Until then her denial holds.
    let message = shop.wait_for_approval_message("bob may not approve it any more").await?;
    ensure!(!message.contains("carol"), "{message}");
    ensure!(shop.config().await?.status.and_then(|status| status.current_version).as_deref() == Some("1"));
    allow(&shop.space, "bob", user("bob")).await?;
    shop.wait_until_current("2").await?;
    // She withdraws it all the same.
    carol.withdraw(&denial).await?;
    Ok(())
}

#[tokio::test]
async fn the_first_version_waits_and_one_that_is_made_anew_is_approved_anew() -> Result<()> {
    let Some((installation, _)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    let shop = Shop::new(installation, json!({})).await?;
    let [alice, bob] = [shop.user(installation.cluster, "alice").await?, shop.user(installation.cluster, "bob").await?];
    shop.create_version(&alice, "2", "two").await?;
    let before = shop.decision("2", "Approve").await?;
    shop.decide(&bob, "2", "Approve").await?;
    // The name comes back with other content once its config has forgotten it: a config of the same name is made again.
    let delete_params = DeleteParams::default();
    let force = json!({"metadata": {"annotations": {"nudge.dev/force-delete": "true"}}});
    let configs = shop.space.api::<nudge_api::VersionedConfig>();
    configs.patch("shop", &PatchParams::default(), &Patch::Merge(force)).await?;
    configs.delete("shop", &delete_params).await?;
    let gone = async || shop.space.api::<ConfigMap>().get_opt("shop-2").await.ok()?.is_none().then_some(());
    nudge_tests::eventually(WAIT_TIMEOUT, "its versions are gone", gone).await?;
    let spec = json!({"rollout": {"approval": {}}});
    shop.space.create_object::<nudge_api::VersionedConfig>(json!({"metadata": {"name": "shop"}, "spec": spec})).await?;
    shop.create_version(&alice, "2", "other").await?;
    ensure!(before["digest"] != shop.decision("2", "Approve").await?["digest"]);
    shop.wait_for_approval_message("has 0 of 1 approval that it needs; kubectl").await?;
    let config = shop.config().await?;
    ensure!(config.status.is_some_and(|status| status.current_version.is_none()), "it is the first one");
    shop.decide(&bob, "2", "Approve").await?;
    let release = shop.wait_until_current("2").await?.releases.pop().context("no release")?;
    ensure!(release.approvals.len() == 1 && release.requested_by.is_none(), "{release:?}");
    ensure!(message(&shop.config().await?).is_none());
    Ok(())
}

#[tokio::test]
async fn who_set_a_source_approves_no_version_that_it_makes() -> Result<()> {
    let Some(installation) = sources::shared().await? else { return Ok(()) };
    let shop = Shop::new(installation, json!({})).await?;
    let [alice, bob, dora] = [
        shop.user(installation.cluster, "alice").await?,
        shop.user(installation.cluster, "bob").await?,
        shop.user(installation.cluster, "dora").await?,
    ];
    let rules = json!([{"apiGroups": ["nudge.dev"], "resources": ["configsources"], "verbs": ["create", "patch"]}]);
    for name in ["alice", "bob"] {
        shop.space.grant(&format!("sources-{name}"), rules.clone(), user(name)).await?;
    }
    bind(&shop.space, "nudge-sources").await?;
    let Some(content) = git_content(&shop.space, "live", "two").await? else { return Ok(()) };
    let source = json!({
        "apiVersion": "nudge.dev/v1alpha1", "kind": "ConfigSource", "metadata": {"name": "shop"},
        "spec": {"from": content.from, "activate": "Manual", "debounceSeconds": 0, "minPeriodSeconds": 0}
    });
    let source: ConfigSource = serde_json::from_value(source)?;
    let try_to_create = async || alice.api::<ConfigSource>().create(&PostParams::default(), &source).await.ok();
    nudge_tests::eventually(WAIT_TIMEOUT, "the role holds", try_to_create).await?;
    let status = sources::until(&shop.space, "shop", "a version is made", sources::is("Made")).await?;
    let version = status.version.context("no version")?;
    // What changes nothing of its content makes nobody an author.
    let suspend = Patch::Merge(json!({"spec": {"suspend": true}}));
    bob.api::<ConfigSource>().patch("shop", &PatchParams::default(), &suspend).await?;
    dora.change(json!({"version": version})).await?;
    shop.wait_for_approval_message("has 0 of 1 approval that it needs").await?;
    let own_approval = shop.decide(&alice, &version, "Approve").await?;
    shop.approval_says(&own_approval, "IsAuthor").await?;
    let counted = shop.decide(&bob, &version, "Approve").await?;
    shop.wait_until_current(&version).await?;
    shop.approval_says(&counted, "Counted").await
}
