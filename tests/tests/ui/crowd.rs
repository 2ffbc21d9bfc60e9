//! 5,000 pods in one config: the page stays small, and says what is with all of them.

use std::time::Instant;

use anyhow::{Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use crate::scene::{opened, painted, pod, pod_status, report, shows, stage};

const PODS: usize = 5000;
/// Requests at the same time.
const AT_ONCE: usize = 32;
/// How many pods change at the same time.
const CHANGED: usize = 200;
/// The most elements of the page, whatever the number of pods.
const MOST_ELEMENTS: usize = 1500;

fn name(at: usize) -> String {
    format!("web-{at:04}")
}

#[tokio::test]
#[allow(clippy::print_stderr)] // what was measured is for people
async fn thousands_of_pods_stay_usable() -> Result<()> {
    let Some((installation, _, browser)) = stage().await? else { return Ok(()) };
    let status = json!({"phase": "Progressing", "current": "1", "target": "2", "identity": "0123456789abcdef0123456789abcdef",
        "rollout": {"stage": "Moving", "step": 2, "threshold": 1_u64 << 30, "steppedAt": "2026-01-01T00:00:00Z"}});
    let space = painted(installation, "shop", json!({}), status).await?;
    space.service_account("app").await?;
    let make = |at: usize| {
        let space = &space;
        async move { space.create_object::<Pod>(pod(&name(at), "shop", &format!("w{}", at % 7))).await }
    };
    stream::iter(0..PODS).map(make).buffer_unordered(AT_ONCE).try_collect::<Vec<_>>().await?;
    let (_page, tab) = opened(installation, browser).await?;

    shows(&tab, &space, "shop").await?;
    tab.says("#pod-summary", "5000 pods: 5000 not Ready").await?;
    // Once more, from an empty window.
    let (began, session) = (Instant::now(), tab.value::<String>("sessionStorage.getItem('nudge-session')").await?);
    tab.call("Page.reload", json!({})).await?;
    tab.says("#pod-summary", "5000 pods").await?;
    let shown = began.elapsed();
    ensure!(session == tab.value::<String>("sessionStorage.getItem('nudge-session')").await?);
    let paint: f64 = tab.value("performance.getEntriesByName('first-contentful-paint')[0].startTime").await?;
    let elements = tab.count("*").await?;
    ensure!(elements < MOST_ELEMENTS, "{elements} elements");
    tab.run("document.querySelector('details').open = true").await?;
    tab.says("details", "50 of 5000 are shown").await?;
    ensure!(tab.count("details tbody tr").await? == 50 && tab.count("*").await? < MOST_ELEMENTS);

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
    stream::iter(0..CHANGED).map(change).buffer_unordered(AT_ONCE).try_collect::<Vec<_>>().await?;
    tab.until("!document.querySelector('#pod-summary').innerText.includes('5000 not Ready') && document.querySelector('#pod-summary').innerText.includes('4800 not Ready')").await?;
    let frames: Vec<f64> = tab.value("frames").await?;
    let longest = frames.iter().copied().fold(0.0, f64::max);
    eprintln!(
        "5000 pods: first paint {paint:.0} ms, all shown {} ms after a reload, {elements} elements; {CHANGED} changes: {} updates, the \
         longest {longest:.0} ms of script",
        shown.as_millis(),
        frames.len()
    );
    ensure!(!frames.is_empty() && frames.len() < CHANGED, "each change is an update of its own: {frames:?}");
    let rows = tab.texts("details tbody tr").await?;
    ensure!(rows.len() == 50, "{rows:?}");
    ensure!(tab.complaints().is_empty(), "{:?}", tab.complaints());
    Ok(())
}
