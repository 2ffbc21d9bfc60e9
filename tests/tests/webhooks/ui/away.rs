//! When the page can't be up to date, it says so: the API server is away, silent or has enough of the user, or the
//! command itself stands.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use kube::api::{DeleteParams, Patch, PatchParams};
use nix::sys::signal::Signal;
use nudge_api::VersionedConfig;
use nudge_tests::Installation;
use nudge_tests::cluster::servers::ISSUER;
use nudge_tests::cluster::wire::Wire;
use nudge_tests::cluster::{Identity, TestNamespace};
use serde_json::json;

use crate::ui::page::Page;
use crate::ui::pictures::take_pictures;
use crate::ui::scene::{create_pictured, open_page, show_config, stage};
use crate::ui::tab::Tab;

/// Returns a way of its own to the API server, for an identity.
async fn by_wire(
    installation: &Installation<'_>,
    space: &TestNamespace,
    who: &Identity<'_>,
) -> Result<(Wire, PathBuf)> {
    let (cluster, wire) = (installation.cluster, installation.cluster.wire().await?);
    let file = cluster.folder().join(format!("{}.kubeconfig", space.name));
    std::fs::write(&file, cluster.kubeconfig_by(&wire, who))?;
    Ok((wire, file))
}

/// Fails unless the page says that it is not up to date, and still shows what was seen last.
async fn assert_outdated(tab: &Tab, why: &str) -> Result<()> {
    tab.wait_for_text("[role=alert]", &format!("What is shown may be out of date: {why}")).await?;
    tab.wait_for_text("#link", "out of date").await?;
    tab.wait_for_text("tbody", "shop").await
}

async fn assert_fresh(tab: &Tab) -> Result<()> {
    tab.wait_for_text("#link", "live").await?;
    tab.until("document.querySelector('[role=alert]').hidden").await
}

#[tokio::test]
async fn an_api_server_that_is_silent_or_away_is_said() -> Result<()> {
    let Some((installation, _, browser)) = stage().await? else { return Ok(()) };
    let space = create_pictured(installation, "shop", json!({}), json!({})).await?;
    let (wire, file) = by_wire(installation, &space, &installation.cluster.administrator()).await?;
    let page = Page::start(&file, &["-n", &space.name]).await?;
    let tab = browser.tab().await?;
    tab.open(&page.address).await?;
    tab.wait_for_text("#summary", "1 of 1 config").await?;
    assert_fresh(&tab).await?;
    wire.hold();
    assert_outdated(&tab, "requesting configs: the API server does not answer").await?;
    take_pictures(&tab, "outdated").await?;
    wire.release();
    assert_fresh(&tab).await?;
    wire.cut();
    space.create_object::<VersionedConfig>(json!({"metadata": {"name": "young"}, "spec": {}})).await?;
    tab.wait_for_text("tbody", "young").await?;
    assert_fresh(&tab).await?;
    drop(wire);
    assert_outdated(&tab, "watching configs: the API server does not answer").await
}

#[tokio::test]
async fn credentials_that_end_are_said() -> Result<()> {
    let Some((installation, _, browser)) = stage().await? else { return Ok(()) };
    let space = create_pictured(installation, "shop", json!({}), json!({})).await?;
    space.service_account("reader").await?;
    let rules =
        json!([{"apiGroups": ["nudge.dev"], "resources": ["versionedconfigs"], "verbs": ["get", "list", "watch"]}]);
    space.allow("reader", rules).await?;
    let token = space.token("reader", ISSUER, None).await?;
    let file = installation.cluster.folder().join(format!("{}.kubeconfig", space.name));
    std::fs::write(&file, installation.cluster.kubeconfig_of(&Identity::Token(&token)))?;
    let page = Page::start(&file, &["-n", &space.name]).await?;
    let tab = browser.tab().await?;
    tab.open(&page.address).await?;
    tab.wait_for_text("#summary", "1 of 1 config").await?;
    // The watch that is there continues, as far as the API server is concerned.
    let accounts = space.api::<k8s_openapi::api::core::v1::ServiceAccount>();
    accounts.delete("reader", &DeleteParams::default()).await?;
    assert_outdated(&tab, "requesting configs: Unauthorized; log in again").await?;
    // The token of the user stands nowhere in the page.
    let whole_page = "document.documentElement.outerHTML + JSON.stringify(sessionStorage) + document.title + location";
    ensure!(!tab.value::<String>(whole_page).await?.contains(&token));
    Ok(())
}

#[tokio::test]
async fn a_command_that_stands_or_ends_is_said() -> Result<()> {
    let Some((installation, _, browser)) = stage().await? else { return Ok(()) };
    let space = create_pictured(installation, "shop", json!({}), json!({})).await?;
    let (page, tab) = open_page(installation, browser).await?;
    show_config(&tab, &space, "shop").await?;
    tab.wait_for_text("#link", "live").await?;
    // Half a minute of silence is a second for the page, from the next line on.
    tab.run("const real = setTimeout; window.setTimeout = (run, time) => real(run, time === 30000 ? 1000 : time)")
        .await?;
    let held = json!({"spec": {"rollout": {"hold": {"reason": "audit"}}}});
    space.api::<VersionedConfig>().patch("shop", &PatchParams::default(), &Patch::Merge(held)).await?;
    tab.wait_for_text(".head", "on hold").await?;
    page.process.signal(Signal::SIGSTOP)?;
    tab.wait_for_text("#link", "no connection, trying again").await?;
    page.process.signal(Signal::SIGCONT)?;
    tab.wait_for_text("#link", "live").await?;
    let session: String = tab.value("sessionStorage.getItem('nudge-session')").await?;
    ensure!(session.contains("session"), "{session}");
    // A minute after the command has ended.
    drop(page);
    tab.wait_for_text("#link", "no connection").await?;
    tab.run("const real = Date.now; Date.now = () => real() + 61000").await?;
    tab.wait_for_text("main", "kubectl nudge ui has ended").await?;
    take_pictures(&tab, "gone").await?;
    tab.wait_for_text("#link", "ended").await?;
    // Who listens there next is not sent even what is worth nothing.
    let left: usize = tab.value("sessionStorage.length").await?;
    ensure!(left == 0, "{left}");
    Ok(())
}

#[tokio::test]
async fn windows_share_one_watch_of_each_kind() -> Result<()> {
    let Some((installation, _, browser)) = stage().await? else { return Ok(()) };
    let space = create_pictured(installation, "shop", json!({}), json!({})).await?;
    let name = format!("watcher-{}", space.name);
    let who = installation.cluster.user(&name, &["system:masters"]);
    let page = Page::start(&crate::ui::scene::kubeconfig(installation, &who, &name)?, &[]).await?;
    let tab = browser.tab().await?;
    tab.open(&page.address).await?;
    tab.wait_for_text("#link", "live").await?;
    let session: String = tab.value("JSON.parse(sessionStorage.getItem('nudge-session')).session").await?;
    let mut open = Vec::new();
    for _ in 0..5 {
        open.push(crate::ui::bounds::window(&page, &session).await?.0);
    }
    show_config(&tab, &space, "shop").await?;
    tab.wait_for_text("#pod-summary", "No pod with an agent uses the config.").await?;
    let ask = async || {
        let mine = installation.cluster.audit(&name).ok()?;
        let mine = mine.iter().filter(|event| event["impersonatedUser"]["username"] == *name);
        let ask: Vec<String> =
            mine.map(|event| format!("{} {}", event["verb"], event["objectRef"]["resource"])).collect();
        // The last thing that a window asks.
        let reviewed = ask.iter().any(|one| one.contains("selfsubjectaccessreviews"));
        (reviewed && ask.iter().any(|one| one == r#""list" "secrets""#)).then_some(ask)
    };
    let ask = nudge_tests::eventually(crate::ui::bounds::WAIT_TIMEOUT, "the audit log has it", ask).await?;
    // One list says whether they may be listed, and each watch begins with another.
    let lists = ask.iter().filter(|one| *one == r#""list" "pods""#).count();
    ensure!(lists == 2, "{ask:?}");
    // What shows a config requests no content: neither of its ConfigMaps nor of its Secrets.
    ensure!(!ask.iter().any(|one| one.starts_with(r#""get""#)), "{ask:?}");
    drop(open);
    page.process.signal(Signal::SIGINT).context("the command has ended before")
}
