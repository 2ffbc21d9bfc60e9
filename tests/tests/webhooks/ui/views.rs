//! The views say what `kubectl nudge` says.

use anyhow::{Result, ensure};
use nudge_tests::{Pod, subscriber};
use serde_json::{Value, json};

use crate::ui::scene::{nudge, open_page, shop, show_config, stage, until};

#[tokio::test]
async fn what_the_page_shows_is_what_kubectl_says() -> Result<()> {
    let Some((installation, replica, browser)) = stage().await? else { return Ok(()) };
    let space = shop(installation).await?;
    let mut pods: Vec<Pod> = Vec::new();
    for name in ["web-1", "web-2"] {
        pods.push(subscriber(&space, replica.hub, name, &json!({}), env!("CARGO_BIN_EXE_app")).await?.1);
    }
    until(&space, "both run it", |status| status.pods.summary == "2/2").await?;
    let (_page, tab) = open_page(installation, browser).await?;
    tab.wait_for_text("tbody", &space.name).await?;
    tab.run(&format!(
        "const filter = document.querySelector('#filter'); filter.value = {}; filter.dispatchEvent(new Event('input'))",
        json!(space.name)
    ))
    .await?;
    tab.wait_for_text("#summary", "1 of").await?;
    tab.wait_for_text("tbody tr", "2/2").await?;
    let row = tab.text("tbody tr").await?;
    ensure!(row.contains("Current") && row.contains("1.0.0"), "{row}");

    tab.click("tbody a").await?;
    tab.wait_for_text("#pod-summary", "2 pods: 2 running it").await?;
    assert_page_agrees(&tab, &nudge(installation, &space, &["status", "shop"]).await?).await?;

    // A rollout that stands after its first step.
    let rollout = json!({"spec": {"rollout": {"steps": [{"pods": 1}], "minReadySeconds": 3600}}});
    let api = space.api::<nudge_api::VersionedConfig>();
    api.patch("shop", &kube::api::PatchParams::default(), &kube::api::Patch::Merge(rollout)).await?;
    nudge(installation, &space, &["use", "shop", "1.0.1"]).await?;
    until(&space, "one has it", |status| status.rollout.step == 1 && status.pods.summary == "1/2").await?;
    tab.wait_for_text("#pod-summary", "2 pods: 1 running it, 1 not in a step yet").await?;
    tab.wait_for_text("#clock", "for 3600 s").await?;
    tab.wait_for_text("#clock", "because spec.rollout.minReadySeconds").await?;
    tab.wait_for_text("#steps", "now").await?;
    assert_page_agrees(&tab, &nudge(installation, &space, &["status", "shop"]).await?).await?;
    tab.until("document.querySelector('canvas[role=img]').getAttribute('aria-label').includes('step 1: 1 running it; step 2: 1 not in a step yet')").await?;
    tab.run("document.querySelector('details').open = true").await?;
    tab.wait_for_text("details tbody", "web-1").await?;
    let listed = tab.texts("details tbody tr").await?;
    ensure!(listed.len() == 2 && listed.iter().any(|row| row.contains("1.0.1")), "{listed:?}");

    let names = nudge(installation, &space, &["versions", "shop", "-o", "name"]).await?;
    let shown: Vec<String> =
        tab.value("[...document.querySelectorAll('#versions li')].map((one) => one.dataset.version)").await?;
    ensure!(shown.iter().rev().map(String::as_str).eq(names.lines()), "{shown:?} {names}");
    let versions: Value =
        serde_json::from_str(&nudge(installation, &space, &["versions", "shop", "-o", "json"]).await?)?;
    for version in versions.as_array().into_iter().flatten() {
        tab.wait_for_text("#versions", &format!("digest {}", version["digest"].as_str().unwrap_or("absent"))).await?;
    }
    tab.wait_for_text("#versions", "made by kubectl nudge").await?;
    tab.wait_for_text("#versions", "requested by admin").await?;

    let history: Value = serde_json::from_str(&nudge(installation, &space, &["history", "shop", "-o", "json"]).await?)?;
    let releases = history.as_array().map_or(0, Vec::len);
    let rows = tab.texts("#releases tbody tr").await?;
    ensure!(rows.len() == releases && rows[0].contains("Open") && rows[0].contains("1.0.1 from 1.0.0"), "{rows:?}");
    // Each row says what the command says of the release.
    for (row, release) in rows.iter().zip(history.as_array().into_iter().flatten().rev()) {
        for (field, unknown) in [("version", ""), ("outcome", "Open"), ("requestedBy", "<unknown>")] {
            let message = release[field].as_str().unwrap_or(unknown);
            ensure!(row.contains(message), "{message}: {row}");
        }
        let began = release["startTime"].as_str().unwrap_or_default().replace('T', " ").replace('Z', " UTC");
        ensure!(row.contains(&began), "{began}: {row}");
    }

    // The remaining steps follow by themselves.
    let quick = json!({"spec": {"rollout": {"minReadySeconds": 0, "bakeSeconds": 0}}});
    api.patch("shop", &kube::api::PatchParams::default(), &kube::api::Patch::Merge(quick)).await?;
    tab.wait_for_text(".head", "Current").await?;
    until(&space, "it is current", |status| status.current_version.as_deref() == Some("1.0.1")).await?;
    tab.wait_for_text("#now", "1.0.1").await?;
    tab.wait_for_text("#pod-summary", "2 pods: 2 running it").await?;
    tab.wait_for_text("#releases tbody tr", "of 2 pods on 1.0.1").await?;
    assert_page_agrees(&tab, &nudge(installation, &space, &["status", "shop"]).await?).await?;
    ensure!(tab.complaints().is_empty(), "{:?}", tab.complaints());
    Ok(())
}

/// Waits until the page says each line that the command printed about the config as a whole, and each condition.
pub(crate) async fn assert_page_agrees(tab: &crate::ui::tab::Tab, status: &str) -> Result<()> {
    let mut blocks = status.split("\n\n");
    for line in blocks.next().unwrap_or_default().lines() {
        let (name, text) = line.split_once(':').unwrap_or((line, ""));
        // The page shows the agents of each pod.
        if name != "Agents" {
            tab.until(&format!(
                "[...document.querySelectorAll('#now dt')].some((dt) => dt.innerText === {} && dt.nextElementSibling.innerText === {})",
                json!(name), json!(text.trim())
            )).await?;
        }
    }
    for line in blocks.next().unwrap_or_default().lines().skip(1) {
        let words: Vec<&str> = line.split_whitespace().take(3).collect();
        let wanted = json!(words);
        tab.until(&format!(
            "[...document.querySelectorAll('#conditions tbody tr')].some((row) => {wanted}.every((word) => row.innerText.includes(word)))"
        )).await?;
    }
    Ok(())
}

#[tokio::test]
async fn two_versions_are_compared_without_a_value_of_a_secret() -> Result<()> {
    let Some((installation, _, browser)) = stage().await? else { return Ok(()) };
    let space = shop(installation).await?;
    let (page, tab) = open_page(installation, browser).await?;
    show_config(&tab, &space, "shop").await?;
    tab.wait_for_text("#versions", "What changed since 1.0.0").await?;
    tab.click("#versions a").await?;
    tab.wait_for_text("#changes", "3 keys differ").await?;
    let printed = nudge(installation, &space, &["diff", "shop", "1.0.0", "1.0.1"]).await?;
    let shown = tab.text("#changes").await?;
    for line in printed
        .lines()
        .filter(|line| ["+", "-", "@"].contains(&&line[..1]) && !line.starts_with("---") && !line.starts_with("+++"))
    {
        ensure!(shown.contains(line), "{line}\n{shown}");
    }
    // The first two lines name the digests.
    for digest in printed.lines().take(2).filter_map(|line| line.rsplit(' ').next()) {
        ensure!(digest.len() == 32 && shown.contains(digest), "{digest}\n{shown}");
    }
    ensure!(shown.contains("pin added (Secret)"), "{shown}");
    ensure!(!tab.value::<String>("document.documentElement.outerHTML").await?.contains("4711"));
    let body = json!({"namespace": space.name, "config": "shop", "old": "1.0.0", "new": "1.0.1"}).to_string();
    let session: String = tab.value("JSON.parse(sessionStorage.getItem('nudge-session')).session").await?;
    let answer = page.post("/api/diff", &session, &body).await?;
    ensure!(answer.status == 200 && !answer.body.contains("4711") && !answer.body.contains("hidden"), "{answer:?}");
    show_config(&tab, &space, "shop/diff/1.0.0/7").await?;
    tab.wait_for_text("#changes", "has no complete version 7").await?;
    // Back, by the form.
    show_config(&tab, &space, "shop").await?;
    tab.until("document.querySelector('#old')?.value").await?;
    tab.run("document.querySelector('#old').value = '1.0.1'; document.querySelector('#new').value = '1.0.0'; document.querySelector('.compare').requestSubmit()").await?;
    tab.wait_for_text("#changes", "pin removed (Secret)").await?;
    ensure!(tab.complaints().is_empty(), "{:?}", tab.complaints());
    Ok(())
}

#[tokio::test]
async fn who_may_list_nothing_of_other_namespaces_sees_one() -> Result<()> {
    let Some((installation, _, browser)) = stage().await? else { return Ok(()) };
    let space = shop(installation).await?;
    space.service_account("reader").await?;
    let rules =
        json!([{"apiGroups": ["nudge.dev"], "resources": ["versionedconfigs"], "verbs": ["get", "list", "watch"]}]);
    space.allow("reader", rules).await?;
    let name = format!("system:serviceaccount:{}:reader", space.name);
    let who = installation.cluster.user(&name, &[]);
    let file = crate::ui::scene::kubeconfig(installation, &who, &space.name)?;
    let page = crate::ui::page::Page::start(&file, &["-n", &space.name]).await?;
    let tab = browser.tab().await?;
    tab.open(&page.address).await?;
    tab.wait_for_text("#summary", "1 of 1 config").await?;
    tab.wait_for_text("#where", &format!("namespace {} only", space.name)).await?;
    tab.click("tbody a").await?;
    tab.wait_for_text("#pods", "Pods may be missing or out of date").await?;
    tab.wait_for_text("#acts", "You may look at the config, but not change it.").await?;
    ensure!(tab.count("[data-act]").await? == 0);
    tab.wait_for_text("#versions", "Where versions come from, and whether some are not complete, is not known: ")
        .await?;
    // What has no button is refused by the API server all the same.
    let session: String = tab.value("JSON.parse(sessionStorage.getItem('nudge-session')).session").await?;
    let mut doing = json!({"namespace": space.name, "config": "shop", "act": "hold", "reason": "audit"});
    let shown = page.post("/api/preview", &session, &doing.to_string()).await?.json()?;
    doing["command"] = shown["command"].clone();
    let answer = page.post("/api/act", &session, &doing.to_string()).await?;
    ensure!(answer.status == 422 && answer.body.contains("ask the namespace's admin"), "{answer:?}");
    // So is what the page would show.
    tab.click("#versions a").await?;
    tab.wait_for_text("#changes [role=alert]", "ask the namespace's admin for that right").await?;
    Ok(())
}
