//! Applications that are notified by webhooks: one that subscribes itself (`POST /hooks`), and one that its pod's
//! annotation names. The latter finds the values as files by then. Also shows the origin of each application's token.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use nudge_tests::tools;
use serde_json::Value;
use time::OffsetDateTime;

use crate::install;
use crate::objects::{opted_in, pod, python};
use crate::report::seconds;
use crate::space::{ScenarioNamespace, WAIT_TIMEOUT, assert_untouched};
use crate::suite::Suite;

const TITLE: &str = "From spec.version to the webhook";
/// Activations, there and back.
const ROUNDS: usize = 4;
/// Kubernetes from which on `MY_CONFIG_TOKEN` comes by an env file.
const ENV_FILES: u32 = 35;

/// Prints the event, whether the agent has signed it, and what the files hold at that moment.
const APP: &str = r#"
import base64, hmac, http.server, json, os

SECRET = base64.b64decode(open(os.environ["MY_CONFIG_TOKEN_FILE"]).read())

def files():
    return {name: open(f"/config/{name}").read() for name in os.listdir("/config") if not name.startswith(".")}

class Hook(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        event, timestamp, signature = (self.headers[f"webhook-{name}"] for name in ("id", "timestamp", "signature"))
        signed = b".".join([event.encode(), timestamp.encode(), body])
        expected = b"v1," + base64.b64encode(hmac.digest(SECRET, signed, "sha256"))
        genuine = hmac.compare_digest(expected, signature.encode())
        print(json.dumps({"event": json.loads(body), "genuine": genuine, "files": files()}), flush=True)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *arguments):
        pass

server = http.server.HTTPServer(("127.0.0.1", 8081), Hook)
print(json.dumps({"files": files()}), flush=True)
server.serve_forever()
"#;

pub(crate) async fn run(suite: &Suite) -> Result<()> {
    let home = ScenarioNamespace::enabled(suite, "webhooks").await?;
    home.apply_examples(&["shop", "webhook"])?;
    home.at_once("shop").await?;
    let container = python(&home, APP);
    let annotations = [
        ("configs", "shop"),
        ("notify", "webhook"),
        ("webhook.app", "http://127.0.0.1:8081/changed"),
        ("mount-path", "/config"),
    ];
    home.apply(&pod(opted_in("named", &container, &annotations)).to_string())?;
    let subscriber = home.ready_pod("app.kubernetes.io/name=example-webhook").await?;
    let named = home.ready_pod("app=named").await?;
    let logs = [home.follow(&subscriber).await?, home.follow(&named).await?];
    logs[0].line(OffsetDateTime::UNIX_EPOCH, WAIT_TIMEOUT, "shop=1.0.0 greeting=hello").await?;
    let first = logs[1].line(OffsetDateTime::UNIX_EPOCH, WAIT_TIMEOUT, "files").await?;
    let first: Value = serde_json::from_str(&first.text)?;
    ensure!(first["files"]["greeting"] == "hello", "{first}");

    let mut times = [const { Vec::new() }; 2];
    for round in 0..ROUNDS {
        let (version, greeting) = [("1.0.1", "welcome"), ("1.0.0", "hello")][round % 2];
        let before = OffsetDateTime::now_utc();
        home.activate("shop", version).await?;
        let activated = OffsetDateTime::now_utc();
        let texts = [format!("shop={version} greeting={greeting}"), "\"event\"".to_owned()];
        for ((log, text), times) in logs.iter().zip(texts).zip(&mut times) {
            let line = log.line(before, WAIT_TIMEOUT, &text).await.context(version)?;
            times.push(Duration::try_from(line.at - activated).unwrap_or_default());
            if text.contains("event") {
                assert_notified(&serde_json::from_str(&line.text)?, version, greeting)?;
            }
        }
        home.wait_until_current("shop", version).await?;
    }
    suite.report.row(TITLE, &["", "median", "worst", "of"].map(str::to_owned));
    let names = ["subscribed by POST /hooks", "named by annotation, with files"];
    for ((name, pod), mut times) in names.into_iter().zip([&subscriber, &named]).zip(times) {
        assert_untouched(&home, pod).await?;
        times.sort();
        let (median, worst) = (times[times.len() / 2], times[times.len() - 1]);
        suite.report.row(TITLE, &[name.to_owned(), seconds(median), seconds(worst), times.len().to_string()]);
    }
    let events = logs[1].lines().iter().filter(|line| line.text.contains("\"event\"")).count();
    ensure!(events == ROUNDS, "{events} events for {ROUNDS} activations: {:#?}", logs[1].lines());
    token(&home, &subscriber).await
}

/// Fails unless the webhook got what belongs to the version, and found its files.
fn assert_notified(notified: &Value, version: &str, greeting: &str) -> Result<()> {
    ensure!(notified["genuine"] == true, "not signed with the token: {notified}");
    ensure!(notified["files"]["greeting"] == greeting, "notified before the files were there: {notified}");
    let changed: Vec<_> =
        notified["event"]["data"]["changed"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for key in ["game.properties", "greeting", "lives"] {
        ensure!(changed.contains(&key), "{key} is not among what has changed: {notified}");
    }
    let event = notified["event"].to_string();
    ensure!(event.contains(version), "the event does not name {version}: {event}");
    ensure!(!event.contains(greeting), "a value is in the event: {event}");
    Ok(())
}

/// The token comes by a variable where the cluster can do that, and by a file everywhere; the pod's specification never
/// holds it.
async fn token(home: &ScenarioNamespace<'_>, pod: &Pod) -> Result<()> {
    let script = r#"import os; print(open(os.environ["MY_CONFIG_TOKEN_FILE"]).read(), os.environ.get("MY_CONFIG_TOKEN", ""), sep="\n")"#;
    let output = home.kubectl(&["exec", &pod.name_any(), "-c", "app", "--", "python3", "-c", script])?;
    let (file, variable) = output.trim_end_matches('\n').split_once('\n').unwrap_or((output.trim_end(), ""));
    ensure!(file.len() > 40, "the file holds no token");
    let now = home.space.api::<Pod>().get(&pod.name_any()).await?;
    ensure!(!serde_json::to_string(&now)?.contains(file), "the token stands in the pod's specification");
    let minor = install::minor(&home.space.client).await?;
    if minor >= ENV_FILES {
        ensure!(variable == file, "MY_CONFIG_TOKEN is not the token of the file");
    } else {
        ensure!(variable.is_empty(), "MY_CONFIG_TOKEN is there on Kubernetes 1.{minor}");
        tools::skipped(&format!(
            "MY_CONFIG_TOKEN by an env file needs Kubernetes 1.{ENV_FILES}, and this is 1.{minor}"
        ));
    }
    Ok(())
}
