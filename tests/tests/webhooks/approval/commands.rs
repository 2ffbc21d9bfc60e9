//! `kubectl nudge approve` and `deny`, as users type them.

use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::{DeleteParams, ListParams};
use nudge_api::VersionApproval;
use nudge_tests::cluster::space::group;
use nudge_tests::{Installation, Terminal, binary, eventually};
use serde_json::json;

use crate::approval::scene::{Shop, WAIT_TIMEOUT, allow, digest, message};

#[tokio::test]
async fn users_decide_and_withdraw_by_commands() -> Result<()> {
    let Some((installation, _)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    let shop = Shop::new(installation, json!({})).await?;
    let alice = shop.user(installation.cluster, "alice").await?;
    shop.create_version(&alice, "2", "two").await?;
    let folder = tempfile::tempdir()?;
    let command = |user: &str, words: &[&str]| -> Result<Command> {
        let groups: &[&str] = if user == "eve" { &["devs"] } else { &["devs", "reviewers"] };
        let file = folder.path().join(user);
        std::fs::write(&file, installation.cluster.kubeconfig_of(&installation.cluster.user(user, groups)))?;
        let mut command = Command::new(binary::kubectl_nudge()?);
        command.args(words).args(["-n", &shop.space.name]).env("KUBECONFIG", &file).stdin(Stdio::null());
        Ok(command)
    };
    let run = async |user: &str, words: &[&str]| -> Result<(bool, String)> {
        let mut command = command(user, words)?;
        let output = tokio::task::spawn_blocking(move || command.output()).await??;
        let text = [output.stdout, output.stderr].concat();
        Ok((output.status.success(), String::from_utf8(text)?))
    };
    let says = async |user: &str, words: &[&str], is: (bool, &str)| -> Result<()> {
        let (success, said) = run(user, words).await?;
        ensure!(success == is.0 && said.contains(is.1), "{user} {words:?}: {said}");
        Ok(())
    };
    let config = shop.config().await?;
    let sealed = |version: &str| config.status.as_ref().and_then(|it| it.version(version)).context("not sealed");
    let (one, two) = (sealed("1")?.digest.as_str(), sealed("2")?.digest.as_str());
    let read = format!("--digest={two}");
    let approve = |how: &'static str| ["approve", "shop", "2", how, read.as_str()];
    let undo = ["approve", "shop", "2", "--undo"];
    says("eve", &approve("--reason=mine"), (false, "user \"eve\" may not approve or deny versions of config shop"))
        .await?;
    says("bob", &["approve", "shop", "9", "--reason=x", &read], (false, "has no complete version 9")).await?;
    says("bob", &undo, (false, "user bob has not approved version 2")).await?;
    // Users approve the content that they read: diff prints its digest, and no other digest is accepted.
    let heads = format!("--- version 1, digest {one}\n+++ version 2, digest {two}\n");
    says("bob", &["diff", "shop", "current", "2"], (true, heads.as_str())).await?;
    says("bob", &["versions", "shop"], (true, two)).await?;
    let needed = "without a terminal, give --digest, which says which content you have read; kubectl nudge diff shop current 2 prints it";
    says("bob", &["approve", "shop", "2", "--reason=x"], (false, needed)).await?;
    let other = format!(
        "version 2 of config shop has the digest {two}, not {one}: its content is not what you have read; read it again with kubectl nudge \
         diff shop current 2"
    );
    says("bob", &["approve", "shop", "2", "--reason=x", &format!("--digest={one}")], (false, other.as_str())).await?;
    let version_approvals = shop.space.api::<VersionApproval>().list(&ListParams::default()).await?.items;
    ensure!(version_approvals.is_empty(), "{version_approvals:?}");
    says("bob", &["deny", "shop", "2", "--reason=the limit is too low"], (true, "version 2 denied by bob")).await?;
    says("alice", &["use", "shop", "2"], (true, "spec.version is 2")).await?;
    shop.wait_for_approval_message("bob denies version 2 (the limit is too low)").await?;
    let shown = format!("Digest:    {two}, of version 2\nApproval:  DENIED by bob: the limit is too low\n");
    says("alice", &["status", "shop"], (true, shown.as_str())).await?;
    says(
        "bob",
        &["approve", "shop", "2", "--reason=x", &read, "--dry-run=server"],
        (true, "approved by bob (server dry run)"),
    )
    .await?;
    says("bob", &["deny", "shop", "2", "--undo"], (true, "version 2 is not denied by bob any more")).await?;
    shop.wait_for_approval_message("has 0 of 1 approval").await?;
    says("bob", &["deny", "shop", "2", "--reason=no"], (true, "denied by bob")).await?;
    // Only the latest decision of a user counts.
    says("bob", &approve("--reason=it is raised"), (true, "config shop: version 2 approved by bob")).await?;
    shop.wait_until_current("2").await?;
    let again = ["approve", "shop", "2", "--reason=again"];
    let whole = format!("--digest={}", digest(sealed("2")?)?);
    says("bob", &[&again[..], &[whole.as_str()]].concat(), (true, "version 2 is already approved by bob")).await?;
    // On a terminal, who names no digest sees which one it is.
    let (status, screens, _) =
        Terminal::spawn("kubectl-nudge", &mut command("bob", &again)?, (24, 200))?.wait_for_end().await?;
    let screen = screens.last().map(|screen| screen.join("\n")).unwrap_or_default();
    let shown = format!("config shop: version 2 with the digest {two} is already approved by bob");
    ensure!(status.success() && screen == shown, "{status}: {screen}");
    says("alice", &["history", "shop"], (true, "approved by bob")).await?;
    ensure!(message(&shop.config().await?).is_none());
    Ok(())
}

#[tokio::test]
async fn who_has_other_groups_than_when_they_approved_approves_anew() -> Result<()> {
    let Some((installation, _)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    let shop = Shop::new(installation, json!({})).await?;
    let alice = shop.user(installation.cluster, "alice").await?;
    shop.create_version(&alice, "2", "two").await?;
    let config = shop.config().await?;
    let sealed = config.status.as_ref().and_then(|status| status.version("2")).context("not sealed")?;
    let read = format!("--digest={}", sealed.digest);
    let folder = tempfile::tempdir()?;
    let approves = async |groups: &[&str]| -> Result<String> {
        let file = folder.path().join(groups.concat());
        std::fs::write(&file, installation.cluster.kubeconfig_of(&installation.cluster.user("bob", groups)))?;
        let mut command = Command::new(binary::kubectl_nudge()?);
        command.args(["approve", "shop", "2", "--reason=read it", &read, "-n", &shop.space.name]);
        command.env("KUBECONFIG", &file).stdin(Stdio::null());
        let output = tokio::task::spawn_blocking(move || command.output()).await??;
        Ok(String::from_utf8([output.stdout, output.stderr].concat())?)
    };
    let (before, after) = (["devs", "reviewers"], ["devs", "leads"]);
    let message = approves(&before).await?;
    ensure!(message.contains("version 2 approved by bob\n"), "{message}");
    let message = approves(&before).await?;
    ensure!(message.contains("version 2 is already approved by bob"), "{message}");
    shop.space.api::<RoleBinding>().delete("approve-reviewers", &DeleteParams::default()).await?;
    allow(&shop.space, "leads", group("leads")).await?;
    alice.change(json!({"version": "2"})).await?;
    shop.wait_for_approval_message("bob may not approve it any more").await?;
    let anew = async || approves(&after).await.ok().filter(|message| !message.contains("may not approve or deny"));
    let message = eventually(WAIT_TIMEOUT, "the role holds", anew).await?;
    ensure!(
        message.contains("version 2 approved by bob, with the groups that you have now in place of the earlier ones"),
        "{message}"
    );
    shop.wait_until_current("2").await?;
    let message = approves(&after).await?;
    ensure!(message.contains("already approved by bob"), "{message}");
    let version_approvals = shop.space.api::<VersionApproval>().list(&ListParams::default()).await?.items;
    ensure!(version_approvals.len() == 1, "the one of before is withdrawn: {version_approvals:?}");
    Ok(())
}
