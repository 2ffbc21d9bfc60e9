//! 5,000 pods in one config: the page stays small, and says what is with all of them.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use crate::ui::scene::{create_pictured, open_page, paint, pod, pod_status, report, show_config, stage};
use crate::ui::tab::Tab;

const PODS: usize = 5000;
/// Requests at the same time.
const MAX_CONCURRENT_REQUESTS: usize = 32;
/// How many pods change at the same time.
const CHANGED: usize = 200;
/// The most elements of the page, whatever the number of pods.
const MAX_ELEMENTS: usize = 1500;

fn name(at: usize) -> String {
    format!("web-{at:04}")
}

/// Draws as many squares as there are pods, and nothing else: the floor of an update, in milliseconds.
const BARE: &str = "(() => { const canvas = document.createElement('canvas'); canvas.width = canvas.height = 1200; const on = canvas.getContext('2d'); \
    const began = performance.now(); for (let at = 0; at < 5000; at++) on.fillRect(17 * (at % 70), 17 * Math.floor(at / 70), 14, 14); \
    return performance.now() - began; })()";

/// Loads the page again: how long until it says this, and its first paint, in milliseconds.
async fn reload(tab: &Tab, text: &str) -> Result<(u128, f64)> {
    let began = Instant::now();
    tab.call("Page.reload", json!({})).await?;
    tab.wait_for_text("#pod-summary", text).await?;
    let shown = began.elapsed().as_millis();
    let paint = "performance.getEntriesByName('first-contentful-paint')[0].startTime";
    tab.until("performance.getEntriesByName('first-contentful-paint').length").await?;
    Ok((shown, tab.value(paint).await?))
}

/// Returns how long scripts have run in this tab so far, in milliseconds.
async fn script(tab: &Tab) -> Result<f64> {
    let metrics = tab.call("Performance.getMetrics", json!({})).await?;
    let entries = metrics["metrics"].as_array().into_iter().flatten();
    let entry = entries.into_iter().find(|one| one["name"] == "ScriptDuration");
    Ok(entry.and_then(|one| one["value"].as_f64()).context("not measured")? * 1000.0)
}

#[tokio::test]
#[allow(clippy::print_stderr)] // what was measured is for people
async fn thousands_of_pods_stay_usable() -> Result<()> {
    let Some((installation, _, browser)) = stage().await? else { return Ok(()) };
    let status = json!({"currentVersion": "1", "targetVersion": "2",
        "internal": {"identity": "0123456789abcdef0123456789abcdef", "threshold": 1_u64 << 30},
        "rollout": {"stage": "Moving", "step": 2, "stepTime": "2026-01-01T00:00:00Z"}});
    let space = create_pictured(installation, "shop", json!({}), status).await?;
    paint(&space, "none", json!({}), json!({"currentVersion": "1"})).await?;
    space.service_account("app").await?;
    let make = |at: usize| {
        let space = &space;
        async move { space.create_object::<Pod>(pod(&name(at), "shop", &format!("w{}", at % 7))).await }
    };
    stream::iter(0..PODS).map(make).buffer_unordered(MAX_CONCURRENT_REQUESTS).try_collect::<Vec<_>>().await?;
    let (_page, tab) = open_page(installation, browser).await?;

    show_config(&tab, &space, "shop").await?;
    tab.wait_for_text("#pod-summary", "5000 pods: 5000 not Ready").await?;
    // Once more, from an empty window.
    let session: String = tab.value("sessionStorage.getItem('nudge-session')").await?;
    let (shown, painted_at) = reload(&tab, "5000 pods").await?;
    ensure!(session == tab.value::<String>("sessionStorage.getItem('nudge-session')").await?);
    let elements = tab.count("*").await?;
    ensure!(elements < MAX_ELEMENTS, "{elements} elements");
    tab.run("document.querySelector('details').open = true").await?;
    tab.wait_for_text("details", "50 of 5000 are shown").await?;
    ensure!(tab.count("details tbody tr").await? == 50 && tab.count("*").await? < MAX_ELEMENTS);

    // How long the page's own work takes, frame by frame.
    tab.run(
        "frames = []; const next = requestAnimationFrame.bind(window); window.requestAnimationFrame = (work) => next((time) => \
         { const began = performance.now(); work(time); frames.push(performance.now() - began); })",
    )
    .await?;
    let change = |at: usize| {
        let space = &space;
        async move { report(space, &name(at), pod_status(true, "True", "Applied", "shop=1")).await }
    };
    tab.call("Performance.enable", json!({})).await?;
    let before = script(&tab).await?;
    stream::iter(0..CHANGED).map(change).buffer_unordered(MAX_CONCURRENT_REQUESTS).try_collect::<Vec<_>>().await?;
    tab.until("!document.querySelector('#pod-summary').innerText.includes('5000 not Ready') && document.querySelector('#pod-summary').innerText.includes('4800 not Ready')").await?;
    ensure!(tab.count("details tbody tr").await? == 50);
    let frames: Vec<f64> = tab.value("frames").await?;
    let (longest, all) = (frames.iter().copied().fold(0.0, f64::max), script(&tab).await? - before);
    let bare: f64 = tab.value(BARE).await?;
    show_config(&tab, &space, "none").await?;
    tab.wait_for_text("#pod-summary", "No pod").await?;
    let (floor, floor_paint) = reload(&tab, "No pod").await?;
    eprintln!(
        "{PODS} pods: first paint {painted_at:.0} ms (floor {floor_paint:.0}: a config without pods), all shown {shown} ms after a reload (floor \
         {floor}), {elements} elements; {CHANGED} changes: {} updates, the longest frame {longest:.0} ms (floor {bare:.1}: bare squares), \
         {all:.0} ms of script in all",
        frames.len()
    );
    ensure!(!frames.is_empty() && frames.len() < CHANGED, "each change is an update of its own: {frames:?}");
    ensure!(tab.complaints().is_empty(), "{:?}", tab.complaints());
    Ok(())
}
