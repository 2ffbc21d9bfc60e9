//! `kubectl edit` of a ConfigMap that a config follows, with a typing error in a JSON value. It is stopped by a rule of
//! the config, which no pod sees; by the application that is asked, in one pod; and by an application that becomes
//! unready, in one pod. What the user reads each time, and the correction by another `kubectl edit`.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use kube::api::ListParams;
use nudge_api::{ConfigState, VersionedConfig, VersionedConfigStatus};
use nudge_tests::binary;
use serde_json::{Value, json};
use time::OffsetDateTime;

use super::exposure::{nudge, ready, wait_for_status};
use crate::log::Log;
use crate::objects::{deployment, list, opted_in, plain, python};
use crate::place::succeed;
use crate::report::seconds;
use crate::space::{LONG_WAIT_TIMEOUT, ScenarioNamespace, WAIT_TIMEOUT, assert_untouched};
use crate::suite::Suite;

const TITLE: &str = "kubectl edit with a typing error in a JSON value, four pods each";
const PODS: usize = 4;
/// The version of the first text.
const FIRST: &str = "1.0.0";

/// Ready while it can read its file. It says what it reads, and what it is asked, if it is.
const APP: &str = r#"
import http.server, json, threading

state = {"fault": None}

def read(path):
    try:
        return json.loads(open(path).read()), None
    except json.JSONDecodeError as error:
        return None, f"app.json: {error.msg} at line {error.lineno}"

def take(what):
    value, state["fault"] = read("/config/app.json")
    print(what, state["fault"] or value, flush=True)

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer(503 if state["fault"] else 200, "")

    def do_POST(self):
        event = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        fault = None
        if event["type"] == "config.check":
            fault = read("/config/..next/app.json")[1]
            print("asked", fault, flush=True)
        else:
            take("runs")
        self.answer(422 if fault else 200, fault or "")

    def answer(self, status, text):
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass

server = http.server.ThreadingHTTPServer(("", 8080), Handler)
take("starts with")
server.serve_forever()
"#;

/// What stops the typing error.
struct Case {
    /// The name of the config, and of all that is created for it.
    name: &'static str,
    rules: Value,
    asks: bool,
    /// The reason of the failure, and a part of what the user reads. A rule lets no version be made, so none fails.
    failure: Option<&'static str>,
    says: &'static str,
    /// How many pods had the typing error, and how many were asked about it.
    saw: (usize, usize),
}

fn cases() -> [Case; 3] {
    let base = Case { name: "", rules: json!([]), asks: false, failure: None, says: "", saw: (0, 0) };
    let json = json!([{"name": "app", "key": "app.json", "format": "json"}]);
    [
        Case { name: "rule", rules: json, says: "app.json", ..base },
        Case {
            name: "check",
            rules: json!([]),
            asks: true,
            failure: Some("CheckRefused"),
            says: "container app refuses it: app.json: ",
            saw: (0, 1),
        },
        Case {
            name: "readiness",
            rules: json!([]),
            failure: Some("PodNotReady"),
            says: "became unready",
            saw: (1, 0),
            ..base
        },
    ]
}

pub(crate) async fn run(suite: &Suite) -> Result<()> {
    // Built before anything is timed.
    binary::kubectl_nudge()?;
    let home = ScenarioNamespace::enabled(suite, "edits").await?;
    let cases = cases();
    for case in &cases {
        begin(&home, case)?;
    }
    suite.report.row(TITLE, &["stopped by", "stopped after", "asked", "saw it", "corrected after"].map(str::to_owned));
    let rows = cases.iter().map(async |case| test_edit(&home, case).await.context(case.name));
    for row in try_join_all(rows).await? {
        suite.report.row(TITLE, &row);
    }
    Ok(())
}

fn begin(home: &ScenarioNamespace<'_>, case: &Case) -> Result<()> {
    let name = case.name;
    let rollout = json!({"steps": [{"pods": 1}, {"pods": "100%"}], "minReadySeconds": 0, "bakeSeconds": 0});
    let config = json!({
        "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": name},
        "spec": {"rollout": rollout, "validation": case.rules, "objects": ["ConfigMap"]},
    });
    let map = plain(name, &json!({"app.json": "{\"lives\": 3}\n"}));
    home.apply(&list([config, map]))?;
    let mut container = python(home, APP);
    container["readinessProbe"] =
        json!({"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 2, "timeoutSeconds": 2});
    let mut annotations =
        vec![("configs", name), ("mount-path", "/config"), ("webhook.app", "http://127.0.0.1:8080/changed")];
    if case.asks {
        annotations.push(("check.app", "http://127.0.0.1:8080/config-check"));
    }
    home.apply(&list([deployment(&opted_in(name, &container, &annotations), i32::try_from(PODS)?)]))
}

/// `kubectl edit` by a user whose editor replaces one text by another.
fn edit(home: &ScenarioNamespace<'_>, name: &str, from: &str, to: &str) -> Result<OffsetDateTime> {
    let folder = tempfile::tempdir()?;
    let editor = folder.path().join("editor");
    fs::write(&editor, format!("grep -q '{from}' \"$1\" && sed -i 's/{from}/{to}/' \"$1\"\n"))?;
    let mut command = home.place.command("kubectl");
    command.env("KUBE_EDITOR", format!("sh {}", editor.display()));
    let edited = succeed(command.args(["-n", &home.space.name, "edit", "configmap", name]))?;
    ensure!(edited.contains("edited"), "{edited}");
    Ok(OffsetDateTime::now_utc())
}

/// Returns the typing error and its correction: a row of the report.
async fn test_edit(home: &ScenarioNamespace<'_>, case: &Case) -> Result<[String; 5]> {
    let name = case.name;
    let pods = ready(home, name, PODS).await?;
    let mut logs = Vec::new();
    for pod in &pods {
        let log = home.follow(pod).await?;
        log.line(OffsetDateTime::UNIX_EPOCH, WAIT_TIMEOUT, "starts with {'lives': 3}").await?;
        logs.push(log);
    }
    home.wait_until_current(name, FIRST).await?;

    let edited = edit(home, name, r#""lives": 3"#, r#""lives": 3,"#)?;
    let is_stopped = |status: &VersionedConfigStatus| match case.failure {
        Some(_) => status.rollout.failure.is_some(),
        None => status.conditions.iter().any(|condition| condition.message.contains(case.says)),
    };
    wait_for_status(home, name, "the typing error is stopped", is_stopped).await?;
    let after = OffsetDateTime::now_utc() - edited;
    // All who had it have come back.
    let rests = |status: &VersionedConfigStatus| matches!(status.state(), ConfigState::Current | ConfigState::Failed);
    wait_for_status(home, name, "nothing moves", rests).await?;
    assert_messages(home, case).await?;
    let back = ready(home, name, PODS).await?;
    ensure!(back.iter().map(kube::ResourceExt::uid).eq(pods.iter().map(kube::ResourceExt::uid)), "other pods");
    let count = |text: &str| logs.iter().filter(|log| logged(log, text)).count();
    let saw = (count("runs app.json"), count("asked app.json"));
    ensure!(saw == case.saw, "{} pods had it, {} were asked", saw.0, saw.1);

    let corrected = edit(home, name, r#""lives": 3,"#, r#""lives": 5"#)?;
    let is_better = |status: &VersionedConfigStatus| {
        status.state() == ConfigState::Current && status.current_version.as_deref() != Some(FIRST)
    };
    wait_for_status(home, name, "the correction is current", is_better).await?;
    let again = OffsetDateTime::now_utc() - corrected;
    for log in &logs {
        log.line(corrected, LONG_WAIT_TIMEOUT, "runs {'lives': 5}").await?;
    }
    for pod in &pods {
        assert_untouched(home, pod).await.with_context(|| pod.name_any())?;
    }
    let time = |time: time::Duration| Duration::try_from(time).map(seconds);
    Ok([name.to_owned(), time(after)?, saw.1.to_string(), saw.0.to_string(), time(again)?])
}

fn logged(log: &Log, text: &str) -> bool {
    log.lines().iter().any(|line| line.text.contains(text))
}

/// What the user reads, by kubectl and by kubectl nudge.
async fn assert_messages(home: &ScenarioNamespace<'_>, case: &Case) -> Result<()> {
    let name = case.name;
    let shown = nudge(home, &["status", name])?;
    ensure!(shown.contains(case.says), "{shown}");
    let config = home.space.api::<VersionedConfig>().get(name).await?.status.context("no status")?;
    ensure!(config.current_version.as_deref() == Some(FIRST), "{config:#?}");
    let maps = ListParams::default().labels(&format!("nudge.dev/config={name}"));
    let versions = home.space.api::<ConfigMap>().list(&maps).await?.items.len();
    let Some(reason) = case.failure else {
        ensure!(versions == 1 && config.rollout.failure.is_none(), "{versions} versions, {shown}");
        return Ok(());
    };
    let failure = config.rollout.failure.context("no failure")?;
    ensure!(versions == 2, "{versions} versions");
    ensure!(failure.reason.as_str() == reason && failure.message.contains(case.says), "{failure:?}");
    ensure!(shown.contains(&failure.version), "{shown}");
    Ok(())
}
