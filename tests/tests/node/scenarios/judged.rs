//! A version with which an application fails requests and stays Ready, in a config that Prometheus judges at the
//! default period: it reaches one pod of four. Prometheus is Debian's, on this machine, and reads the pods' own
//! metrics.

use std::fs::{self, File};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use nudge_api::{ConfigState, Reason};
use nudge_tests::{Process, tools};
use serde_json::json;
use tempfile::TempDir;
use time::OffsetDateTime;
use tokio::net::TcpStream;

use super::exposure::{ready, wait_for_status};
use crate::component::Component;
use crate::objects::{config, deployment, list, opted_in, python};
use crate::space::{ScenarioNamespace, WAIT_TIMEOUT, assert_untouched};
use crate::suite::Suite;
use nudge_tests::eventually;

const ANALYSIS: Component = Component { folder: "analysis", deployment: "nudge-analysis" };
const PODS: usize = 4;
/// The address of this machine, as pods see it (tests/node).
const HOST: &str = "10.251.0.1";
/// The port of the application.
const PORT: u16 = 8080;

/// Answers requests, half of them by an error where its files say so, makes them itself, and counts them.
const APP: &str = r#"
import http.server, signal, threading, time, urllib.request

counts = {200: 0, 500: 0}

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        text, code = b"", 200
        if self.path == "/metrics":
            text = "".join(f'requests_total{{code="{code}"}} {count}\n' for code, count in counts.items()).encode()
        else:
            fails = open("/config/mode").read() == "fails" and sum(counts.values()) % 2
            code = 500 if fails else 200
            counts[code] += 1
        self.send_response(code)
        self.send_header("Content-Type", "text/plain")
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass

def report(*_):
    print("runs", open("/config/name").read(), flush=True)

def load():
    while True:
        time.sleep(0.2)
        try:
            urllib.request.urlopen("http://127.0.0.1:8080/", timeout=5).read()
        except OSError:
            pass

server = http.server.ThreadingHTTPServer(("", 8080), Handler)
signal.signal(signal.SIGUSR1, report)
report()
threading.Thread(target=load, daemon=True).start()
server.serve_forever()
"#;

/// Returns how long it took until the version had failed and its pod ran the one before. `None` if there is no such
/// Prometheus.
pub(super) async fn run(suite: &Suite) -> Result<Option<Duration>> {
    let place = suite.place().await?;
    if place.inside("a Prometheus that reads pods").is_none() {
        return Ok(None);
    }
    let Some(program) = tools::find("prometheus")? else { return Ok(None) };
    suite.with(&ANALYSIS).await?;
    let home = ScenarioNamespace::enabled(suite, "judged").await?;
    let versions = [("1", json!({"name": "one", "mode": "works"})), ("2", json!({"name": "two", "mode": "fails"}))];
    home.apply(&config("judged", &versions, &json!({})))?;
    let annotations = [("configs", "judged"), ("notify", "SIGUSR1"), ("mount-path", "/config")];
    home.apply(&list([deployment(&opted_in("judged", &python(&home, APP), &annotations), i32::try_from(PODS)?)]))?;
    let pods = ready(&home, "judged", PODS).await?;
    let prometheus = Prometheus::start(&program, &home.space.name, &pods).await?;
    let mut logs = Vec::new();
    for pod in &pods {
        let log = home.follow(pod).await?;
        log.line(OffsetDateTime::UNIX_EPOCH, WAIT_TIMEOUT, "runs one").await?;
        logs.push(log);
    }
    home.wait_until_current("judged", "1").await?;
    let rate = |more: &str| {
        format!(r#"sum(rate(requests_total{{namespace="{{{{namespace}}}}",pod=~"{{{{pods}}}}"{more}}}[30s]))"#)
    };
    let query = format!("{} / {}", rate(r#",code="500""#), rate(""));
    let analysis =
        json!([{"name": "errors", "max": "0.01", "prometheus": {"address": prometheus.url, "query": query}}]);
    let spec = json!({"spec": {"version": "2", "rollout": {"analysis": analysis}}}).to_string();
    let asked_at = OffsetDateTime::now_utc();
    home.kubectl(&["patch", "vcfg", "judged", "--type=merge", "-p", &spec])?;

    let status =
        wait_for_status(&home, "judged", "the version has failed", |status| status.state() == ConfigState::Failed)
            .await?;
    let failed = OffsetDateTime::now_utc();
    let failure = status.rollout.failure.context("no failure")?;
    ensure!(failure.version == "2" && failure.reason == Reason::AnalysisFailed, "{failure:?}");
    ensure!(failure.message.ends_with("those on 1 have 0 (max 0.01), 2 times in a row"), "{failure:?}");
    let mut had = 0;
    for (pod, log) in pods.iter().zip(&logs) {
        if let Some(line) = log.lines().into_iter().find(|line| line.text.contains("runs two")) {
            log.line(line.at, WAIT_TIMEOUT, "runs one").await.context("it does not come back")?;
            had += 1;
        }
        assert_untouched(&home, pod).await?;
    }
    ensure!(had == 1, "{had} pods had the version");
    Ok(Some(Duration::try_from(failed - asked_at)?))
}

/// A server on this machine.
struct Prometheus {
    url: String,
    _folder: TempDir,
    _process: Process,
}

impl Prometheus {
    /// Returns one that reads the metrics of these pods every second.
    async fn start(program: &std::path::Path, namespace: &str, pods: &[Pod]) -> Result<Self> {
        let address = TcpListener::bind((HOST, 0))?.local_addr()?;
        let mut targets = Vec::new();
        for pod in pods {
            let ip = pod.status.as_ref().and_then(|status| status.pod_ip.as_ref()).context("no address")?;
            let labels = json!({"pod": pod.name_any(), "namespace": namespace});
            targets.push(json!({"targets": [format!("{ip}:{PORT}")], "labels": labels}));
        }
        let config = json!({
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
            "scrape_configs": [{"job_name": "pods", "static_configs": targets}],
        });
        let folder = tempfile::tempdir()?;
        let at = |name: &str| folder.path().join(name);
        // JSON is YAML.
        fs::write(at("prometheus.yml"), config.to_string())?;
        let log = File::create(at("log"))?;
        let mut command = Command::new(program);
        command
            .arg(format!("--config.file={}", at("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", at("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let process = Process::spawn("prometheus", &mut command)?;
        let answers = async || TcpStream::connect(address).await.ok().map(drop);
        let waited = eventually(WAIT_TIMEOUT, "Prometheus listens", answers).await;
        waited.with_context(|| fs::read_to_string(at("log")).unwrap_or_default())?;
        Ok(Self { url: format!("http://{address}"), _folder: folder, _process: process })
    }
}
