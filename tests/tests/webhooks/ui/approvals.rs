//! Users approve and deny versions on the page, as the commands do, and see what others have decided.

use anyhow::{Context as _, Result, ensure};
use kube::api::{ListParams, Patch, PatchParams};
use nudge_api::{ApprovalDecision, VersionApproval, VersionedConfig};
use nudge_tests::Installation;
use nudge_tests::cluster::TestNamespace;
use nudge_tests::cluster::space::user;
use serde_json::json;

use crate::ui::acts::press_act;
use crate::ui::page::Page;
use crate::ui::scene::{kubeconfig, nudge, shop, show_config, stage, until};
use crate::ui::tab::Tab;
use crate::ui::views::assert_page_agrees;

/// Returns a config whose version 1.0.1 awaits the approval of one user, and the page as bob sees it: who may approve,
/// and nothing else.
async fn open_awaiting_config(
    installation: &'static Installation<'static>,
    browser: &'static crate::ui::browser::Browser,
) -> Result<(TestNamespace, Page, Tab)> {
    let space = shop(installation).await?;
    let rules = json!([
        {"apiGroups": ["nudge.dev"], "resources": ["versionedconfigs"], "verbs": ["get", "list", "watch", "approve"]},
        {"apiGroups": ["nudge.dev"], "resources": ["versionapprovals"], "verbs": ["get", "list", "watch", "create", "delete"]},
    ]);
    space.grant("reviewers", rules, user("bob")).await?;
    let approval = Patch::Merge(json!({"spec": {"rollout": {"approval": {}}}}));
    space.api::<VersionedConfig>().patch("shop", &PatchParams::default(), &approval).await?;
    nudge(installation, &space, &["use", "shop", "1.0.1"]).await?;
    until(&space, "it awaits approval", |status| {
        status.conditions.iter().any(|condition| condition.reason == "AwaitingApproval")
    })
    .await?;
    let file = kubeconfig(installation, &installation.cluster.user("bob", &[]), &space.name)?;
    let page = Page::start(&file, &["-n", &space.name]).await?;
    let tab = browser.tab().await?;
    tab.size(1200, 900).await?;
    tab.open(&page.address).await?;
    tab.wait_for_text("#link", "live").await?;
    show_config(&tab, &space, "shop").await?;
    Ok((space, page, tab))
}

/// Returns all that users have decided, as the API server says.
async fn stored_decisions(space: &TestNamespace) -> Result<Vec<(String, ApprovalDecision, String)>> {
    let version_approvals = space.api::<VersionApproval>().list(&ListParams::default()).await?.items;
    Ok(version_approvals
        .into_iter()
        .map(|approval| (approval.spec.approver, approval.spec.decision, approval.spec.reason))
        .collect())
}

#[tokio::test]
async fn a_version_is_approved_by_who_may_do_nothing_else() -> Result<()> {
    let Some((installation, _, browser)) = stage().await? else { return Ok(()) };
    let (space, _page, tab) = open_awaiting_config(installation, browser).await?;
    tab.wait_for_text("#why", "AwaitingApproval: version 1.0.1 has 0 of 1 approval that it needs").await?;
    tab.wait_for_text("#approvals", "Version 1.0.1 needs 1 approval. Nobody has approved or denied version 1.0.1.")
        .await?;
    tab.until("document.querySelector('#approvals [data-act=approve]')").await?;
    let named: Vec<String> =
        tab.value("[...new Set([...document.querySelectorAll('[data-act]')].map((one) => one.dataset.act))]").await?;
    ensure!(named == ["approve", "deny"], "{named:?}");
    ensure!(tab.count("[data-version=\"1.0.1\"] [data-act]").await? == 0, "each is there once");
    // The approval names the content that the page shows.
    let config = space.api::<VersionedConfig>().get("shop").await?;
    let sealed = config.status.as_ref().and_then(|status| status.version("1.0.1")).context("not sealed")?;
    tab.wait_for_text("#approvals", &format!("The digest of version 1.0.1 is {}.", sealed.digest)).await?;
    let command = press_act(&tab, "#approvals [data-act=approve]", Some("read it")).await?;
    let wanted = format!("kubectl nudge approve shop 1.0.1 --digest={} '--reason=read it'", sealed.digest);
    ensure!(command.starts_with(&wanted), "{command}");
    ensure!(stored_decisions(&space).await?.is_empty(), "nothing happens until somebody confirms");
    tab.click("#go").await?;
    tab.wait_for_text("#said", "config shop: version 1.0.1 approved by bob").await?;
    until(&space, "1.0.1 is current", |status| status.current_version.as_deref() == Some("1.0.1")).await?;
    let message = stored_decisions(&space).await?;
    ensure!(message == [("bob".to_owned(), ApprovalDecision::Approve, "read it".to_owned())], "{message:?}");
    tab.wait_for_text("#approvals", "✓ approved by bob").await?;
    tab.until("!document.querySelector('#approvals [data-act]')").await?;
    // The release names who approved it, as the command does.
    let history = nudge(installation, &space, &["history", "shop"]).await?;
    ensure!(history.lines().nth(1).is_some_and(|line| line.contains("approved by bob")), "{history}");
    tab.wait_for_text("#releases tbody tr", "approved by bob").await?;
    assert_page_agrees(&tab, &nudge(installation, &space, &["status", "shop"]).await?).await?;
    ensure!(tab.complaints().is_empty(), "{:?}", tab.complaints());
    Ok(())
}

#[tokio::test]
async fn a_version_is_denied_and_the_reason_is_a_text() -> Result<()> {
    let Some((installation, _, browser)) = stage().await? else { return Ok(()) };
    let (space, _page, tab) = open_awaiting_config(installation, browser).await?;
    let reason = "<img src=x onerror=pwned=1> it's too low\u{202e}";
    let shown = "<img src=x onerror=pwned=1> it's too low\\u{202e}";
    tab.until("document.querySelector('#approvals [data-act=deny]')").await?;
    let command = press_act(&tab, "#approvals [data-act=deny]", Some(reason)).await?;
    ensure!(command.contains(r"deny shop 1.0.1 '--reason=<img src=x onerror=pwned=1> it'\''s too low"), "{command}");
    tab.click("#go").await?;
    tab.wait_for_text("#said", "config shop: version 1.0.1 denied by bob").await?;
    let message = stored_decisions(&space).await?;
    ensure!(message == [("bob".to_owned(), ApprovalDecision::Deny, reason.to_owned())], "{message:?}");
    tab.wait_for_text("#approvals", "■ DENIED by bob").await?;
    tab.wait_for_text("#approvals", shown).await?;
    tab.wait_for_text("#why", "bob denies version 1.0.1").await?;
    let status = nudge(installation, &space, &["status", "shop"]).await?;
    ensure!(status.contains(&format!("DENIED by bob: {shown}")), "{status}");
    assert_page_agrees(&tab, &status).await?;
    ensure!(tab.count("img, [onerror]").await? == 0 && !tab.value::<bool>("typeof pwned !== 'undefined'").await?);
    // Only the latest decision of a user counts.
    press_act(&tab, "#approvals [data-act=approve]", Some("it was raised")).await?;
    tab.click("#go").await?;
    tab.wait_for_text("#said", "version 1.0.1 approved by bob").await?;
    until(&space, "1.0.1 is current", |status| status.current_version.as_deref() == Some("1.0.1")).await?;
    tab.until("!document.querySelector('#approvals').innerText.includes('DENIED')").await?;
    ensure!(tab.complaints().is_empty(), "{:?}", tab.complaints());
    Ok(())
}
