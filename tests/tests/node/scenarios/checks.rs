//! A typing error in a JSON value, in a config whose pods are asked before they switch: one pod is asked, none gets it,
//! and its text is what the user reads. The application looks at the candidate's files and at the endpoint.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::ResourceExt as _;
use nudge_api::ConfigState;
use serde_json::json;
use time::OffsetDateTime;

use super::exposure::{nudge, ready, wait_for_status};
use crate::objects::{config, deployment, list, opted_in, python};
use crate::report::seconds;
use crate::space::{ScenarioNamespace, WAIT_TIMEOUT, assert_untouched};
use crate::suite::Suite;

const TITLE: &str = "A typing error in a JSON value, four pods with a check";
const PODS: usize = 4;

/// Answers what it makes of the candidate, by its files and by the endpoint, and says what it was asked and notified
/// of.
const APP: &str = r#"
import http.server, json, os, ssl, urllib.request

TOKEN = open(os.environ["MY_CONFIG_TOKEN_FILE"]).read()
CONTEXT = ssl.create_default_context(cafile=os.environ["MY_CONFIG_CERT"])

def candidate(version):
    url = f"{os.environ['MY_CONFIG_ENDPOINT']}?candidate={version}"
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {TOKEN}"})
    return json.loads(urllib.request.urlopen(request, timeout=10, context=CONTEXT).read())["app.json"]

def fault(version):
    file = open("/config/..next/app.json").read()
    if file != candidate(version):
        return "the files and the endpoint differ"
    try:
        json.loads(file)
    except json.JSONDecodeError as error:
        return f"app.json: {error.msg} at line {error.lineno}"

class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        event = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = None
        if event["type"] == "config.check":
            version = event["data"]["candidate"]
            text = fault(version)
            print(f"asked {version}: {text}", flush=True)
        else:
            print("notified", json.loads(open("/config/app.json").read()), flush=True)
        self.send_response(422 if text else 200)
        self.end_headers()
        self.wfile.write((text or "").encode())

    def log_message(self, *arguments):
        pass

server = http.server.HTTPServer(("127.0.0.1", 8080), Handler)
print("ready", flush=True)
server.serve_forever()
"#;

pub(crate) async fn run(suite: &Suite) -> Result<()> {
    let home = ScenarioNamespace::enabled(suite, "checks").await?;
    let versions = [r#"{"lives": 3}"#, "{\"lives\": 3,\n}", r#"{"lives": 5}"#].map(|text| json!({"app.json": text}));
    let [good, typo, better] = versions;
    let rollout = json!({"minReadySeconds": 0, "bakeSeconds": 0});
    home.apply(&config("asked", &[("1", good), ("2", typo), ("3", better)], &rollout))?;
    let annotations = [
        ("configs", "asked"),
        ("mount-path", "/config"),
        ("webhook.app", "http://127.0.0.1:8080/changed"),
        ("check.app", "http://127.0.0.1:8080/config-check"),
    ];
    let template = opted_in("asked", &python(&home, APP), &annotations);
    home.apply(&list([deployment(&template, i32::try_from(PODS)?)]))?;
    let pods = ready(&home, "asked", PODS).await?;
    let mut logs = Vec::new();
    for pod in &pods {
        let log = home.follow(pod).await?;
        log.line(OffsetDateTime::UNIX_EPOCH, WAIT_TIMEOUT, "ready").await?;
        logs.push(log);
    }

    home.activate("asked", "2").await?;
    let activated = OffsetDateTime::now_utc();
    let status =
        wait_for_status(&home, "asked", "the typing error has failed", |status| status.state() == ConfigState::Failed)
            .await?;
    let failed = OffsetDateTime::now_utc();
    let failure = status.rollout.failure.context("no failure")?;
    ensure!(failure.reason.as_str() == "CheckRefused", "{failure:?}");
    let message = nudge(&home, &["status", "asked"])?;
    ensure!(message.contains("container app refuses it: app.json: "), "{message}");
    let count = |text: &str| -> usize {
        logs.iter().map(|log| log.lines().iter().filter(|line| line.text.contains(text)).count()).sum()
    };
    ensure!((count("asked 2: app.json"), count("notified")) == (1, 0), "asked {}", count("asked 2"));

    home.activate("asked", "3").await?;
    home.wait_until_current("asked", "3").await?;
    for log in &logs {
        log.line(activated, WAIT_TIMEOUT, "notified {'lives': 5}").await?;
    }
    ensure!(count("asked 3: None") == PODS, "{} were asked", count("asked 3"));
    // The way back is not asked about.
    home.activate("asked", "1").await?;
    home.wait_until_current("asked", "1").await?;
    ensure!(count("asked") == 1 + PODS, "{} questions", count("asked"));
    for pod in &pods {
        assert_untouched(&home, pod).await.with_context(|| pod.name_any())?;
    }
    let elapsed = Duration::try_from(failed - activated)?;
    suite.report.row(TITLE, &[String::new(), "time".to_owned(), "pods".to_owned()]);
    suite.report.row(TITLE, &["asked, and the version has failed".to_owned(), seconds(elapsed), "1".to_owned()]);
    suite.report.row(TITLE, &["served it".to_owned(), String::new(), "0".to_owned()]);
    Ok(())
}
