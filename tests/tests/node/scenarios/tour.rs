//! The tour of examples/TOUR.md, typed as it stands there: an edit of a ConfigMap that goes out in steps, one that
//! breaks the application and goes back, its correction, and versions with names.

use std::collections::BTreeSet;
use std::fs;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use nudge_tests::{Finished, tools};

use crate::install::minor;
use crate::place::repository;
use crate::report::seconds;
use crate::scenarios::demo::with_plugin;
use crate::space::LONG_WAIT_TIMEOUT;
use crate::suite::Suite;

const PAGE: &str = "examples/TOUR.md";
const TITLE: &str = "The tour, typed without a pause";
/// The pods of `game.yaml`.
const PODS: usize = 4;

/// Returns the headings of the page with their commands, without those that only another machine can run.
fn steps() -> Result<Vec<(String, Vec<String>)>> {
    let text = fs::read_to_string(repository().join(PAGE))?;
    let steps = text.split("\n## ").skip(1).map(|section| {
        let title = section.lines().next().unwrap_or_default().to_owned();
        let blocks = section.split("```sh\n").skip(1).filter_map(|block| block.split("```").next());
        (title, blocks.flat_map(str::lines).map(str::to_owned).collect::<Vec<_>>())
    });
    let steps: Vec<_> = steps.filter(|(_, lines)| !lines.is_empty()).collect();
    ensure!(steps.len() == 6, "{PAGE} has other steps than before: {steps:?}");
    Ok(steps)
}

pub(crate) async fn run(suite: &Suite) -> Result<()> {
    let place = suite.place().await?;
    if !place.images().is_empty() || minor(&place.client().await?).await? < 30 {
        tools::skipped("the tour needs a node of ours with Kubernetes 1.30 or newer");
        return Ok(());
    }
    suite.installed().await?;
    let folder = tempfile::tempdir()?;
    let kubeconfig = folder.path().join("kubeconfig");
    fs::copy(place.kubeconfig(), &kubeconfig)?;
    let path = with_plugin(place, folder.path())?;
    let mut message = String::new();
    for (title, lines) in steps()? {
        let began = Instant::now();
        let mut has_paused = false;
        for line in lines {
            let mut command = place.command("sh");
            command.args(["-ec", &line]).env("PATH", &path).env("KUBECONFIG", &kubeconfig).current_dir(repository());
            let mut finished = Finished::within(LONG_WAIT_TIMEOUT, &mut command)?;
            // As the page says: until the program has written something, and the first pod another line than the rest.
            let until = Instant::now() + LONG_WAIT_TIMEOUT;
            let is_early = |log: &str| log.is_empty() || has_paused && texts(log).len() == 1;
            while line.starts_with("kubectl logs") && is_early(&finished.stdout) && Instant::now() < until {
                finished = Finished::within(LONG_WAIT_TIMEOUT, &mut command)?;
            }
            has_paused = line.starts_with("sleep");
            ensure!(finished.code == Some(0), "{line}: {finished:?}");
            message.extend(["$ ", &line, "\n", &finished.stdout, &finished.stderr]);
        }
        suite.report.row(TITLE, &[title, seconds(began.elapsed())]);
    }
    // In this order.
    let mut rest = message.as_str();
    for expected in [
        "move to the agent",
        "deployment.apps/game injected",
        "1.0.0",
        "$ kubectl patch configmap game",
        "lives: 5",
        "$ kubectl wait vcfg/game",
        "condition met",
        "$ kubectl nudge set game lives=many",
        "exit code 3",
        r#"{"lives":"many"}"#,
        "Failed",
        "$ kubectl nudge set game lives=7",
        "shop=1.0.0 greeting=hello lives=3",
        "$ kubectl nudge use shop 1.0.1 --wait",
        "shop=1.0.1 greeting=welcome lives=5",
        "$ kubectl nudge rollback shop",
        "shop=1.0.0 greeting=hello lives=3",
        "Returned",
    ] {
        rest = rest.split_once(expected).with_context(|| format!("nobody saw {expected:?}:\n{message}"))?.1;
    }
    for (after, text) in [("condition met", "lives: 5"), ("$ kubectl nudge set game lives=7", "lives: 7")] {
        let shown = message.split_once(after).and_then(|(_, rest)| rest.split_once("$ kubectl logs"));
        let shown = shown.and_then(|(_, rest)| rest.split("\n$ ").next()).unwrap_or_default();
        ensure!(shown.matches(text).count() == PODS, "not every pod says {text:?}:\n{message}");
    }
    Ok(())
}

/// Returns what the pods have said, without their names.
fn texts(log: &str) -> BTreeSet<&str> {
    log.lines().map(|line| line.split_once("] ").map_or(line, |(_, text)| text)).collect()
}
