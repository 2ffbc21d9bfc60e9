//! README's way from nothing to a pod that takes a new version, with the very lines that stand there.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::sync::mpsc;
use std::thread;

use anyhow::{Context, Result, ensure};
use time::OffsetDateTime;

use crate::install::type_in;
use crate::readme;
use crate::space::{ScenarioNamespace, WAIT_TIMEOUT, assert_untouched};
use crate::suite::Suite;

const EXAMPLE: &str = "app.kubernetes.io/name=example-python";

pub(crate) async fn run(suite: &Suite) -> Result<()> {
    // Installed and enabled by README's lines as well.
    let home = ScenarioNamespace::enabled(suite, "quick-start").await?;
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
    assert_untouched(&home, &pod).await
}
