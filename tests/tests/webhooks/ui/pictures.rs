//! Pictures of the page, for people to look at: with `NUDGE_PICTURES` they are written into that folder.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use nudge_api::{VersionApproval, VersionedConfig};
use nudge_core::governance::sealed_digest;
use nudge_core::identity::Identity;
use nudge_core::keys::PodUid;
use nudge_core::rollout::pod_number;
use nudge_tests::Installation;
use nudge_tests::cluster::TestNamespace;
use serde_json::{Value, json};

use crate::ui::scene::{open_page, paint, pod, pod_status, repaint, report, show_config, stage};
use crate::ui::tab::Tab;

/// Names the folder.
const FOLDER: &str = "NUDGE_PICTURES";
const WIDE: (u32, u32) = (1200, 800);
const NARROW: (u32, u32) = (360, 740);
const LOOKS: [(&str, (u32, u32), &str); 3] =
    [("light", WIDE, "light"), ("dark", WIDE, "dark"), ("light", NARROW, "narrow")];
/// Why one of them waits.
const DENIED: &str = "joe@example.com denies version 13 (the limit of the second feed is too low for the evening); it may continue when \
    joe@example.com withdraws that (kubectl nudge deny news 13 --undo)";
/// The last one leaves its tab without a session.
const VIEWS: [&str; 12] = [
    "overview",
    "none",
    "config",
    "pods",
    "failed",
    "waiting",
    "window",
    "analysis",
    "absent",
    "diff",
    "confirmation",
    "ended",
];

/// Takes pictures of the tab, if they are requested.
pub(crate) async fn take_pictures(tab: &Tab, view: &str) -> Result<()> {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return Ok(()) };
    std::fs::create_dir_all(&folder).context("the folder for pictures")?;
    for (scheme, size, name) in LOOKS {
        tab.scheme(scheme).await?;
        tab.size(size.0, size.1).await?;
        tab.picture(&folder.join(format!("{view}-{name}.png")), true).await?;
    }
    Ok(())
}

/// Returns the time this many seconds ago.
fn ago(seconds: i64) -> String {
    let at = Timestamp::now().checked_sub(SignedDuration::from_secs(seconds)).unwrap_or_default();
    format!("{}Z", &at.to_string()[..19])
}

fn condition(kind: &str, is: bool, reason: &str, message: &str, since: i64) -> Value {
    let is = if is { "True" } else { "False" };
    json!({"type": kind, "status": is, "reason": reason, "message": message, "lastTransitionTime": ago(since)})
}

/// Returns a version with a ConfigMap, as it stands in the status.
async fn version(space: &TestNamespace, name: &str, state: &str, data: Value, age: i64) -> Result<Value> {
    let labels = json!({"nudge.dev/config": "shop", "nudge.dev/version": name});
    let object = json!({"metadata": {"name": format!("shop-{name}"), "labels": labels}, "data": data});
    let result = space.create_object::<ConfigMap>(object).await?;
    let part = json!({"kind": "ConfigMap", "name": result.name_any(), "uid": result.uid(), "digest": format!("sha256:{}", "0".repeat(64))});
    let keys = data.as_object().map_or(0, serde_json::Map::len);
    Ok(
        json!({"version": name, "state": state, "keys": keys, "bytes": data.to_string().len(), "parts": [part], "sealTime": ago(age)}),
    )
}

fn release(
    version: &str,
    from: &str,
    by: &str,
    (began, took): (i64, i64),
    outcome: Option<&str>,
    more: &Value,
) -> Value {
    let steps: Vec<Value> = [(2, 1), (40, 9), (80, 18), (120, 36)]
        .iter()
        .filter(|(after, _)| *after < took)
        .map(|(after, pods)| json!({"startTime": ago(began - after), "pods": pods}))
        .collect();
    let mut release = json!({"version": version, "fromVersion": from, "requestedBy": by, "requestTime": ago(began + 1), "startTime": ago(began), "steps": steps});
    if let Some(outcome) = outcome {
        release["outcome"] = outcome.into();
        release["endTime"] = ago(began - took).into();
    }
    if let (Some(release), Some(more)) = (release.as_object_mut(), more.as_object()) {
        release.extend(more.clone());
    }
    release
}

/// Returns a rollout of which a bit of everything can be seen.
async fn scene(installation: &Installation<'_>) -> Result<TestNamespace> {
    let space = installation.cluster.space("shop").await?;
    space.service_account("app").await?;
    let old = json!({"shop.properties": "currency=EUR\nlimit=100\nretries=3\n", "features.json": "{\n  \"search\": true\n}\n", "banner": "Hello\n"});
    let young = json!({"shop.properties": "currency=EUR\nlimit=250\nretries=3\ntimeout=2s\n", "features.json": "{\n  \"search\": true,\n  \"basket\": \"new\"\n}\n"});
    let versions = [
        version(&space, "1.4.0", "Available", old.clone(), 900_000).await?,
        version(&space, "1.4.1", "Failed", old.clone(), 500_000).await?,
        version(&space, "1.4.2", "Current", old, 90_000).await?,
        version(&space, "1.5.0", "Target", young, 600).await?,
    ];
    let harmed = json!({"assigned": 9, "harmed": 1, "unassigned": 27, "reason": "PodNotReady", "first": {"name": "web-04", "reason": "PodNotReady", "afterSeconds": 12}});
    let releases = [
        release(
            "1.4.0",
            "1.3.9",
            "system:serviceaccount:flux-system:flux",
            (800_000, 200),
            Some("Current"),
            &json!({"evidence": {"assigned": 36, "unassigned": 0}}),
        ),
        release(
            "1.4.1",
            "1.4.0",
            "jane@example.com",
            (400_000, 60),
            Some("RolledBack"),
            &json!({"reason": "PodNotReady",
            "message": "pod web-11 became unready", "evidence": {"assigned": 9, "harmed": 4, "unassigned": 27, "reason": "PodNotReady",
            "first": {"name": "web-11", "reason": "PodNotReady", "afterSeconds": 9}}}),
        ),
        release(
            "1.4.2",
            "1.4.0",
            "jane@example.com",
            (80_000, 190),
            Some("Current"),
            &json!({"evidence": {"assigned": 36, "unassigned": 0}}),
        ),
        release("1.5.0", "1.4.2", "joe@example.com", (70, 65), None, &json!({"evidence": harmed})),
    ];
    let watch =
        json!({"seconds": 96, "reason": "the readiness probe of container app needs 96 s to notice that it got worse"});
    let status = json!({
        "currentVersion": "1.4.2", "targetVersion": "1.5.0", "previousVersion": "1.4.0", "publishedVersion": "1.4.2",
        "internal": {"identity": "0123456789abcdef0123456789abcdef"},
        "pods": {"total": 36, "onTarget": 35, "ready": 35, "summary": "35/36"}, "versions": versions, "releases": releases,
        "rollout": {"stage": "Moving", "step": 2, "stepTime": ago(30), "startTime": ago(70), "watch": watch, "evidence": harmed},
        "conditions": [
            condition("Ready", false, "Progressing", "version 1.5.0 is assigned to 9 of 36 pods; 1 of them became unready, which alone is no proof", 70),
            condition("Reconciling", true, "Progressing", "step 2 of 4 is watched", 30),
            condition("Stalled", false, "Progressing", "the rollout continues", 70),
            condition("Published", true, "Published", "ConfigMap shop holds version 1.4.2", 80_000),
            condition("WeakEvidence", true, "WeakEvidence", "pod batch-02 has no readiness or liveness probe", 70),
        ],
    });
    let spec = json!({"version": "1.5.0"});
    paint(&space, "shop", spec, status).await?;
    for at in 0..36 {
        let (name, workload) =
            if at < 24 { (format!("web-{at:02}"), "web") } else { (format!("batch-{:02}", at - 24), "batch") };
        space.create_object::<Pod>(pod(&name, "shop", workload)).await?;
        report(&space, &name, pod_status(true, "True", "Applied", "shop=1.4.2")).await?;
    }
    others(&space).await?;
    Ok(space)
}

/// Further configs in the overview.
async fn others(space: &TestNamespace) -> Result<()> {
    let counts = |on_target: u32, total: u32| json!({"total": total, "onTarget": on_target, "ready": on_target, "summary": format!("{on_target}/{total}")});
    let ready = |age| json!([condition("Ready", true, "Current", "the version is current", age)]);
    paint(
        space,
        "search",
        json!({"version": "2.0.1"}),
        json!({"currentVersion": "2.0.1", "pods": counts(12, 12), "conditions": ready(7200)}),
    )
    .await?;
    paint(
        space,
        "mail-templates",
        json!({"version": "88"}),
        json!({"currentVersion": "88", "pods": counts(3, 3), "conditions": ready(900_000)}),
    )
    .await?;
    let suspect = [
        condition("Ready", true, "Current", "the version is current", 700),
        condition("Suspect", true, "Suspect", "2 of 40 pods restarted soon after version 7 became current", 600),
    ];
    paint(
        space,
        "payment",
        json!({"version": "7"}),
        json!({"currentVersion": "7", "pods": counts(40, 40), "conditions": suspect}),
    )
    .await?;
    let why = "3 of 5 pods became unready (first: api-7d, 12 s after its notification)";
    let failed = [condition("Ready", false, "Failed", &format!("version 3.1.0 failed: {why}"), 300)];
    let failure = json!({"version": "3.1.0", "reason": "PodNotReady", "message": why});
    paint(
        space,
        "api",
        json!({"version": "3.1.0"}),
        json!({"currentVersion": "3.0.9", "pods": counts(20, 20), "conditions": failed, "rollout": {"failure": failure}}),
    )
    .await?;
    let waits = [
        condition("Ready", false, "AwaitingApproval", DENIED, 1800),
        condition("Reconciling", true, "AwaitingApproval", DENIED, 1800),
        condition("Published", true, "Published", "ConfigMap news holds version 12", 80_000),
    ];
    let versions = [version_status("12", "Current"), version_status("13", "Available")];
    paint(
        space,
        "news",
        json!({"version": "13", "rollout": {"approval": {"required": 2}}}),
        json!({"currentVersion": "12", "pods": counts(8, 8), "conditions": waits, "versions": versions}),
    )
    .await?;
    create_gated_configs(space).await?;
    let why = "the config is on hold until spec.rollout.hold is removed (kubectl nudge unhold): the tournament runs";
    let held = [condition("Ready", false, "OnHold", why, 4000)];
    let hold = json!({"reason": "the tournament runs"});
    paint(
        space,
        "edge",
        json!({"version": "12", "rollout": {"hold": hold}}),
        json!({"currentVersion": "11", "targetVersion": "12", "pods": counts(100, 400), "conditions": held, "rollout": {"stage": "Moving"}}),
    )
    .await
}

/// Returns a version as it stands in the status, without its objects.
fn version_status(name: &str, state: &str) -> Value {
    let part = json!({"kind": "ConfigMap", "name": name, "uid": name, "digest": format!("sha256:{}", "0".repeat(64))});
    json!({"version": name, "state": state, "keys": 4, "bytes": 900, "parts": [part], "sealTime": ago(4000)})
}

/// Creates a config that is outside of its windows, and one that is judged by metrics.
async fn create_gated_configs(space: &TestNamespace) -> Result<()> {
    let counts = |on_target: u32, total: u32| json!({"total": total, "onTarget": on_target, "ready": on_target, "summary": format!("{on_target}/{total}")});
    let opens = ago(-50_000);
    let message = format!(
        "version 2.3.0 of config orders waits: no version continues outside of the windows of spec.rollout; the next window opens at {} {} UTC",
        &opens[..10],
        &opens[11..16]
    );
    let window = json!({"name": "week", "days": ["Mon", "Tue", "Wed", "Thu"], "from": "09:00", "to": "16:00", "timeZone": "UTC"});
    paint(
        space,
        "orders",
        json!({"version": "2.3.0", "rollout": {"windows": [window]}}),
        json!({"currentVersion": "2.2.9", "targetVersion": "2.3.0", "pods": counts(10, 10),
            "versions": [version_status("2.2.9", "Current"), version_status("2.3.0", "Target")],
            "rollout": {"stage": "Moving", "gate": {"reason": "OutsideWindow", "untilTime": opens}},
            "conditions": [condition("Ready", false, "OutsideWindow", &message, 600), condition("Reconciling", true, "OutsideWindow", &message, 600)]}),
    )
    .await?;
    let numbers = json!([
        {"name": "errors", "verdict": "Bad", "target": "0.25", "control": "0.002", "measureTime": ago(12)},
        {"name": "latency-p99", "verdict": "Clear", "target": "0.31", "control": "0.3", "measureTime": ago(9)},
        {"name": "queue", "verdict": "Inconclusive", "target": "18", "control": "17.5", "measureTime": ago(4)},
        {"name": "refunds", "verdict": "Pending"},
    ]);
    let query = |name: &str, more: Value| {
        let mut query =
            json!({"name": name, "prometheus": {"address": "https://prometheus.monitoring.svc:9090", "query": "x"}});
        if let (Some(query), Some(more)) = (query.as_object_mut(), more.as_object()) {
            query.extend(more.clone());
        }
        query
    };
    let analysis = [
        query("errors", json!({"max": "0.01", "maxRatio": "1.5"})),
        query("latency-p99", json!({"maxRatio": "1.2"})),
        query("queue", json!({"max": "12"})),
        query("refunds", json!({"max": "3"})),
    ];
    let evidence = json!({"assigned": 5, "unassigned": 15, "analysis": numbers});
    let past = json!({"evidence": {"assigned": 20, "analysis": [{"name": "errors", "verdict": "Clear", "target": "0.002", "control": "0.003", "measureTime": ago(90_000)}]},
        "approvals": [{"user": "anna@example.com", "approvalTime": ago(91_000)}, {"user": "system:serviceaccount:ci:release", "approvalTime": ago(90_500)}]});
    let now = json!({"override": {"reason": "the key has leaked", "requestedBy": "jane@example.com"}});
    let releases = [
        release("5.0.0", "4.9.9", "jane@example.com", (190_000, 5), Some("Current"), &now),
        release("5.0.1", "5.0.0", "joe@example.com", (90_000, 190), Some("Current"), &past),
        release("5.1.0", "5.0.1", "joe@example.com", (70, 65), None, &json!({"evidence": evidence})),
    ];
    let text = "version 5.1.0 is assigned to 5 of 20 pods";
    paint(
        space,
        "checkout",
        json!({"version": "5.1.0", "rollout": {"analysis": analysis}}),
        json!({"currentVersion": "5.0.1", "targetVersion": "5.1.0", "previousVersion": "5.0.0", "pods": counts(20, 20), "releases": releases,
            "versions": [version_status("5.0.0", "Available"), version_status("5.0.1", "Current"), version_status("5.1.0", "Target")],
            "rollout": {"stage": "Moving", "step": 1, "stepTime": ago(40), "startTime": ago(70), "watch": {"seconds": 96, "reason": "spec.rollout.minReadySeconds says so"}, "evidence": evidence},
            "conditions": [condition("Ready", false, "Progressing", text, 70), condition("Reconciling", true, "Progressing", text, 70)]}),
    )
    .await
}

/// Assigns the target to the pods of the first two steps, as the plan of the page has them, and makes most of them run
/// it.
async fn move_pods(space: &TestNamespace, tab: &Tab) -> Result<()> {
    tab.run("document.querySelector('details').open = true").await?;
    tab.wait_for_text("details tbody", "web-00").await?;
    let planned: Vec<(String, String)> =
        tab.value("[...document.querySelectorAll('details tbody tr')].map((row) => [row.cells[0].innerText, row.cells[5].innerText])").await?;
    let early: Vec<&String> =
        planned.iter().filter(|(_, step)| ["1", "2"].contains(&&**step)).map(|(pod, _)| pod).collect();
    ensure!(early.len() == 9, "{planned:?}");
    let identity = Identity::of(&space.api::<VersionedConfig>().get("shop").await?);
    // Workloads with 20 pods or more have a threshold of their own.
    let (mut web, mut others) = (0, 0);
    for pod in &early {
        let uid = space.api::<Pod>().get(pod).await?.uid();
        let uid = uid.and_then(|uid| PodUid::new(&uid)).context("no uid")?;
        let below = if pod.starts_with("web") { &mut web } else { &mut others };
        *below = u64::max(*below, u64::from(pod_number(identity, &uid)) + 1);
    }
    let thresholds = json!([{"workload": "StatefulSet/web", "threshold": web}]);
    let first = json!({"name": early[2], "reason": "PodNotReady", "afterSeconds": 12});
    let internal = json!({"threshold": others, "workloads": thresholds});
    repaint(space, "shop", json!({"internal": internal, "rollout": {"evidence": {"first": first}}})).await?;
    for (at, name) in early.iter().enumerate().filter(|(at, _)| *at != 5) {
        report(space, name, pod_status(at != 2, "True", "Applied", "shop=1.5.0")).await?;
    }
    tab.wait_for_text(
        "#pod-summary",
        "1 harmed, 1 assigned but not running it yet, 7 running it, 27 not in a step yet",
    )
    .await?;
    tab.run("document.querySelector('details').open = false").await
}

/// A user approves what another denies.
async fn create_decisions(space: &TestNamespace) -> Result<()> {
    let status = space.api::<VersionedConfig>().get("news").await?.status.context("it was painted")?;
    let digest = sealed_digest(status.version("13").context("it was painted")?);
    for (name, decision, reason) in [
        ("anna@example.com", "Approve", "read it, and it runs on staging"),
        ("joe@example.com", "Deny", "the limit of the second feed is too low for the evening"),
    ] {
        let spec = json!({"configName": "news", "version": "13", "digest": digest, "decision": decision, "reason": reason, "approver": name});
        space.create_object::<VersionApproval>(json!({"metadata": {"generateName": "news-13-"}, "spec": spec})).await?;
    }
    Ok(())
}

#[tokio::test]
async fn no_view_is_wider_than_the_window_and_pictures_are_made() -> Result<()> {
    let Some((installation, _, browser)) = stage().await? else { return Ok(()) };
    let folder = std::env::var_os(FOLDER).map(PathBuf::from);
    let space = scene(installation).await?;
    create_decisions(&space).await?;
    let (_page, tab) = open_page(installation, browser).await?;
    show_config(&tab, &space, "shop").await?;
    tab.wait_for_text("#pod-summary", "36 pods").await?;
    move_pods(&space, &tab).await?;
    if let Some(folder) = &folder {
        std::fs::create_dir_all(folder).context("the folder for pictures")?;
        tab.scheme("light").await?;
        tab.size(900, 820).await?;
        tab.picture(&folder.join("readme.png"), false).await?;
    }
    for (scheme, size, name) in LOOKS {
        tab.scheme(scheme).await?;
        tab.size(size.0, size.1).await?;
        for view in VIEWS {
            match view {
                "overview" => {
                    tab.run("location.hash = '#/'").await?;
                    tab.wait_for_text("#summary", "configs").await?;
                    tab.run(&format!("const filter = document.querySelector('#filter'); filter.value = {}; filter.dispatchEvent(new Event('input'))", json!(space.name))).await?;
                    tab.wait_for_text("#summary", "9 of").await?;
                }
                "none" => {
                    tab.run("location.hash = '#/'").await?;
                    tab.wait_for_text("#summary", "configs").await?;
                    tab.run("const filter = document.querySelector('#filter'); filter.value = 'nothing'; filter.dispatchEvent(new Event('input'))").await?;
                    tab.wait_for_text("#summary", "0 of").await?;
                }
                "failed" => {
                    show_config(&tab, &space, "api").await?;
                    tab.wait_for_text("#why", "3 of 5 pods became unready").await?;
                }
                "waiting" => {
                    show_config(&tab, &space, "news").await?;
                    tab.wait_for_text("#why", "AwaitingApproval: joe@example.com denies version 13").await?;
                    ensure!(tab.count("#why li").await? == 1, "a text is said once");
                    tab.wait_for_text("#approvals", "approved by anna@example.com").await?;
                    tab.until("document.querySelector('#approvals [data-act=deny]')").await?;
                }
                "window" => {
                    show_config(&tab, &space, "orders").await?;
                    tab.wait_for_text("#opens", "May continue in 13 h at ").await?;
                    tab.until("document.querySelector('[data-act=use-now]')").await?;
                }
                "analysis" => {
                    show_config(&tab, &space, "checkout").await?;
                    tab.wait_for_text("#analyses", "■ Bad").await?;
                    tab.wait_for_text("#releases", "errors 0.002 on 5.0.1, 0.003 on 5.0.0: Clear, measured").await?;
                    tab.wait_for_text("#releases", "at once for jane@example.com: the key has leaked").await?;
                    tab.until("document.querySelector('[data-act=use-now]')").await?;
                }
                "pods" => {
                    show_config(&tab, &space, "shop").await?;
                    tab.wait_for_text("#pod-summary", "36 pods").await?;
                    tab.run("document.querySelector('details').open = true").await?;
                    tab.wait_for_text("details tbody", "web-00").await?;
                }
                "absent" => {
                    show_config(&tab, &space, "nothing").await?;
                    tab.wait_for_text(".head", "There is no such config").await?;
                }
                "ended" => {
                    tab.run("window.name = sessionStorage.getItem('nudge-session'); sessionStorage.clear(); location.reload()").await?;
                    tab.wait_for_text("main", "This tab has no session").await?;
                    tab.run("sessionStorage.setItem('nudge-session', window.name)").await?;
                }
                "diff" => {
                    show_config(&tab, &space, "shop/diff/1.4.2/1.5.0").await?;
                    tab.wait_for_text("#changes", "3 keys differ").await?;
                }
                "config" => {
                    show_config(&tab, &space, "shop").await?;
                    tab.wait_for_text("#pod-summary", "36 pods").await?;
                    tab.until("document.querySelector('[data-act=use]') && document.querySelector('.line')?.innerText.includes('made by')").await?;
                }
                _ => {
                    show_config(&tab, &space, "shop").await?;
                    tab.until("document.querySelector('[data-act=use-now]')").await?;
                    tab.click("[data-act=use-now]").await?;
                    tab.write("the old limit blocks orders").await?;
                    tab.until("document.querySelector('#go')?.disabled === false").await?;
                }
            }
            let wide: u32 = tab.value("document.documentElement.scrollWidth").await?;
            ensure!(wide <= size.0, "{view} is {wide} pixels wide in a window of {}", size.0);
            if let Some(folder) = &folder {
                tab.picture(&folder.join(format!("{view}-{name}.png")), view != "confirmation").await?;
            }
        }
        tab.call("Page.reload", json!({})).await?;
        tab.wait_for_text("#link", "live").await?;
    }
    ensure!(tab.complaints().is_empty(), "{:?}", tab.complaints());
    Ok(())
}
