//! README's way from nothing to a pod that takes a new version, with the very lines that stand there: an edit of a
//! ConfigMap that a Deployment mounts, and a version with a name.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::sync::mpsc;
use std::thread;

use anyhow::{Context, Result, ensure};
use nudge_tests::tools;
use serde_json::{Value, json};
use time::OffsetDateTime;

use super::demo::with_plugin;
use crate::install::{self, type_in};
use crate::objects::{self, list, plain, shell};
use crate::place::{repository, succeed};
use crate::readme;
use crate::space::{ScenarioNamespace, WAIT_TIMEOUT, assert_untouched};
use crate::suite::Suite;

const EXAMPLE: &str = "app.kubernetes.io/name=example-python";
/// The first server with native sidecars (KEP-753), without which no mounts move.
const SIDECARS: u32 = 29;

/// Says what it reads, at its start and when it is notified.
const APP: &str = r#"
    says() { echo "has $(cat /etc/web/mode)"; }
    trap says HUP; trap 'exit 0' TERM; says
    while :; do sleep 0.1; done"#;

pub(crate) async fn run(suite: &Suite) -> Result<()> {
    // Installed and enabled by README's lines as well.
    let home = ScenarioNamespace::enabled(suite, "quick-start").await?;
    let server = install::minor(&home.place.client().await?).await?;
    if server < SIDECARS {
        tools::skipped(&format!("no edit of README: the server is 1.{server}, and mounts move from 1.{SIDECARS} on"));
    } else {
        edit(&home).await?;
    }
    take_version(&home).await
}

/// Types README's quick start, about a Deployment and a ConfigMap that are there before.
async fn edit(home: &ScenarioNamespace<'_>) -> Result<()> {
    let lines = readme::commands("Quick start")?;
    let [enable, edit, status] = &lines[..] else { anyhow::bail!("README has other commands than before: {lines:?}") };
    let folder = tempfile::tempdir()?;
    // What is typed names no namespace.
    let kubeconfig = folder.path().join("kubeconfig");
    fs::copy(home.place.kubeconfig(), &kubeconfig)?;
    let context = ["config", "set-context", "--current", "--namespace", &home.space.name];
    succeed(home.place.command("kubectl").env("KUBECONFIG", &kubeconfig).args(context))?;
    let path = with_plugin(home.place, folder.path())?;
    let type_in = |line: &str| {
        let mut command = home.place.command("sh");
        command.args(["-ec", line]).env("PATH", &path).env("KUBECONFIG", &kubeconfig);
        succeed(command.env("KUBE_EDITOR", "sed -i s/one/two/")).with_context(|| format!("README: {line}"))
    };
    let mut app = shell(home, APP);
    app["volumeMounts"] = json!([{"name": "conf", "mountPath": "/etc/web"}]);
    let mut template = objects::template("web", &app);
    template["spec"]["volumes"] = json!([{"name": "conf", "configMap": {"name": "web"}}]);
    home.apply(&list([plain("web", &json!({"mode": "one"})), objects::deployment(&template, 1)]))?;

    type_in(&enable.replace(" shop", &format!(" {}", home.space.name)))?;
    let patch = json!({"spec": {"template": two_lines()?}}).to_string();
    home.kubectl(&["patch", "deployment", "web", "--type=merge", "-p", &patch])?;
    home.kubectl(&["rollout", "status", "deployment/web", "--timeout=120s"])?;
    let pod = home.ready_pod("app=web").await?;
    home.wait_until_current("web", "1.0.0").await?;
    let log = home.follow(&pod).await?;
    log.line(OffsetDateTime::UNIX_EPOCH, WAIT_TIMEOUT, "has one").await?;
    type_in(edit)?;
    log.line(OffsetDateTime::UNIX_EPOCH, WAIT_TIMEOUT, "has two").await?;
    let shown = type_in(status)?;
    for line in ["Current:   1.0.0\n", "Desired:   txt-", "State:     Progressing, Moving\n", "Step:      "] {
        ensure!(shown.contains(line), "README shows {line:?}, and status says: {shown}");
    }
    assert_untouched(home, &pod).await
}

/// Returns the first manifest of README: what the template of the pods gets.
fn two_lines() -> Result<Value> {
    let text = fs::read_to_string(repository().join("README.md"))?;
    let block = text.split_once("```yaml\n").and_then(|(_, rest)| rest.split_once("```")).context("no manifest")?.0;
    ensure!(block.lines().count() == 3, "metadata and two lines: {block}");
    Ok(serde_saphyr::from_str(block)?)
}

/// Types README's lines about a version with a name.
async fn take_version(home: &ScenarioNamespace<'_>) -> Result<()> {
    let lines = readme::commands("First pod")?;
    let [apply, patch, logs] = &lines[..] else { anyhow::bail!("README has other commands than before: {lines:?}") };
    if home.place.images().is_empty() {
        type_in(home.place, apply, &home.space.name)?;
    } else {
        ensure!(apply.contains("-f examples/deploy/shop.yaml -f examples/deploy/python.yaml"), "{apply}");
        home.apply_examples(&["shop", "python"])?;
    }
    let pod = home.ready_pod(EXAMPLE).await?;
    // Nobody types as fast as an application starts.
    home.follow(&pod).await?.line(OffsetDateTime::UNIX_EPOCH, WAIT_TIMEOUT, "shop=1.0.0").await?;
    type_in(home.place, patch, &home.space.name)?;

    // The last of them continues until somebody stops it.
    let line = logs.replace("-n NAME", &format!("-n {}", home.space.name));
    let mut shell = home.place.command("sh");
    let mut shell = shell.args(["-c", &format!("exec {line}")]).stdout(Stdio::piped()).spawn()?;
    let output = BufReader::new(shell.stdout.take().context("no output")?);
    let (sender, lines) = mpsc::channel();
    let reader = thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
    let mut seen_values = Vec::new();
    let result = loop {
        match lines.recv_timeout(WAIT_TIMEOUT) {
            Ok(line) => seen_values.push(line),
            Err(error) => break Err(anyhow::anyhow!("{logs}: {error}, after {seen_values:?}")),
        }
        if seen_values.iter().any(|line| line.ends_with("shop=1.0.1 greeting=welcome lives=5")) {
            break Ok(());
        }
    };
    shell.kill()?;
    shell.wait()?;
    drop(lines);
    let _ = reader.join();
    result?;
    ensure!(seen_values[0].ends_with("shop=1.0.0 greeting=hello lives=3"), "{seen_values:?}");
    assert_untouched(home, &pod).await
}
