//! Texts of the cluster are texts: names, keys, values and messages that look like markup, or hide something.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use nudge_api::{VersionApproval, VersionedConfig};
use nudge_core::governance::sealed_digest;
use nudge_tests::cluster::installation::create_part;
use serde_json::{Value, json};

use crate::ui::scene::{create_pictured, open_page, pod, pod_status, report, show_config, stage};
use crate::ui::tab::Tab;

const EVIL: &str = "<img src=x onerror=pwned=1><script>pwned=1</script>\u{202e}gnp";
/// The same, as the page shows it.
const SHOWN: &str = "<img src=x onerror=pwned=1><script>pwned=1</script>\\u{202e}gnp";

async fn harmless(tab: &Tab) -> Result<()> {
    let injected_elements: usize =
        tab.count("img, script:not([src]), iframe, object, embed, svg, [onerror], style").await?;
    let ran: bool = tab.value("typeof pwned !== 'undefined'").await?;
    let hidden: bool = tab.value("/\\u202e/.test(document.body.innerText)").await?;
    ensure!(injected_elements == 0 && !ran && !hidden, "{injected_elements} {ran} {hidden}");
    ensure!(tab.complaints().is_empty(), "{:?}", tab.complaints());
    Ok(())
}

#[tokio::test]
async fn no_text_of_the_cluster_is_read_as_html() -> Result<()> {
    let Some((installation, _, browser)) = stage().await? else { return Ok(()) };
    let at = "2026-01-01T00:00:00Z";
    let conditions: Vec<Value> = [("Ready", "False", "OnHold"), ("Suspect", "True", "Suspect")]
        .map(|(kind, is, reason)| json!({"type": kind, "status": is, "reason": reason, "message": EVIL, "lastTransitionTime": at}))
        .into();
    let numbers = json!({"name": EVIL, "verdict": "Bad", "target": EVIL, "control": EVIL});
    let release = json!({"version": "2", "fromVersion": "1", "requestedBy": EVIL, "requestTime": at, "startTime": at, "reason": "PodNotReady", "message": EVIL,
        "override": {"reason": EVIL, "requestedBy": EVIL}, "approvals": [{"user": EVIL, "approvalTime": at}], "outcome": "RolledBack", "endTime": at,
        "evidence": {"assigned": 2, "harmed": 1, "first": {"name": EVIL, "reason": "PodNotReady"}, "analysis": [numbers]}});
    let part =
        json!({"kind": "ConfigMap", "name": "shop-2", "uid": "u", "digest": format!("sha256:{}", "0".repeat(64))});
    let version = json!({"version": "2", "state": "Target", "keys": 1, "bytes": 1, "parts": [part]});
    let status = json!({"currentVersion": "1", "targetVersion": "2", "conditions": conditions, "releases": [release], "versions": [version],
        "pods": {"total": 1, "summary": EVIL}, "invalid": [{"version": "3", "reason": "Invalid", "message": EVIL, "rules": "a".repeat(24), "content": "b".repeat(24)}],
        "internal": {"threshold": 1},
        "rollout": {"stage": "Moving", "step": 1, "stepTime": at, "watch": {"seconds": 9, "reason": EVIL, "weak": EVIL}, "evidence": {"analysis": [numbers]}}});
    let space =
        create_pictured(installation, "shop", json!({"version": "2", "rollout": {"approval": {}}}), status).await?;
    let painted = space.api::<VersionedConfig>().get("shop").await?.status.context("it has one")?;
    let digest = sealed_digest(painted.version("2").context("it is there")?);
    let approval = json!({"configName": "shop", "version": "2", "digest": digest, "decision": "Deny", "reason": EVIL, "approver": EVIL});
    space.create_object::<VersionApproval>(json!({"metadata": {"name": "denial"}, "spec": approval})).await?;
    space.service_account("app").await?;
    space.create_object::<Pod>(pod("web-0", "shop", EVIL)).await?;
    report(&space, "web-0", pod_status(true, "False", "NoHandler", &format!("shop=1; {EVIL}"))).await?;
    let (_page, tab) = open_page(installation, browser).await?;
    tab.wait_for_text("tbody", SHOWN).await?;
    harmless(&tab).await?;
    show_config(&tab, &space, "shop").await?;
    tab.wait_for_text("#pod-summary", "1 pod: 1 harmed").await?;
    tab.run("document.querySelector('details').open = true").await?;
    for place in [
        "#now",
        "#approvals",
        "#analyses",
        "#clock",
        "#pods h3",
        "details tbody",
        "#versions",
        "#releases",
        "#conditions",
    ] {
        tab.wait_for_text(place, SHOWN).await?;
    }
    harmless(&tab).await?;
    // Times are written again and again, with what stands before them.
    tab.run("for (const time of document.querySelectorAll('[data-since]')) time.textContent = ''").await?;
    tab.wait_for_text("#versions time[data-before*=img]", SHOWN).await?;
    harmless(&tab).await?;
    // What the address says is no markup either.
    show_config(&tab, &space, "%3Cimg%20src=x%20onerror=pwned=1%3E/diff/%3Cb%3E/%3Ci%3E").await?;
    tab.wait_for_text("h1", "<img src=x onerror=pwned=1>: <b> → <i>").await?;
    tab.wait_for_text("#changes", "the page shows no such config").await?;
    harmless(&tab).await
}

#[tokio::test]
async fn keys_and_values_are_texts() -> Result<()> {
    let Some((installation, _, browser)) = stage().await? else { return Ok(()) };
    let space = crate::ui::scene::shop(installation).await?;
    let labels = json!({"nudge.dev/config": "shop", "nudge.dev/version": "1.0.2"});
    let object = json!({"metadata": {"name": "shop-1.0.2", "labels": labels}, "immutable": true,
        "data": {"text": format!("{EVIL}\nx"), "a.b_c-d": "</pre><script>pwned=1</script>"}});
    create_part::<ConfigMap>(&space, object).await?;
    crate::ui::scene::until(&space, "1.0.2 is complete", |status| status.version("1.0.2").is_some()).await?;
    let (_page, tab) = open_page(installation, browser).await?;
    show_config(&tab, &space, "shop/diff/1.0.0/1.0.2").await?;
    tab.wait_for_text("#changes", SHOWN).await?;
    tab.wait_for_text("#changes", "+</pre><script>pwned=1</script>").await?;
    harmless(&tab).await
}
