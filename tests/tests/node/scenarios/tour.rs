//! The tour of examples/TOUR.md, typed as it stands there: a version that works, and one that breaks the application
//! and goes back.

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

/// Returns the headings of the page with their commands, without those that only another machine can run.
fn steps() -> Result<Vec<(String, Vec<String>)>> {
    let text = fs::read_to_string(repository().join(PAGE))?;
    let steps = text.split("\n## ").skip(1).map(|section| {
        let title = section.lines().next().unwrap_or_default().to_owned();
        let blocks = section.split("```sh\n").skip(1).filter_map(|block| block.split("```").next());
        (title, blocks.flat_map(str::lines).map(str::to_owned).collect::<Vec<_>>())
    });
    let steps: Vec<_> = steps.filter(|(_, lines)| !lines.is_empty()).collect();
    ensure!(steps.len() == 5, "{PAGE} has other steps than before: {steps:?}");
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
        for line in lines {
            let mut command = place.command("sh");
            command.args(["-ec", &line]).env("PATH", &path).env("KUBECONFIG", &kubeconfig).current_dir(repository());
            let mut finished = Finished::within(LONG_WAIT_TIMEOUT, &mut command)?;
            // As the page says: until the program has written something.
            let until = Instant::now() + LONG_WAIT_TIMEOUT;
            while line.starts_with("kubectl logs") && finished.stdout.is_empty() && Instant::now() < until {
                finished = Finished::within(LONG_WAIT_TIMEOUT, &mut command)?;
            }
            ensure!(finished.code == Some(0), "{line}: {finished:?}");
            message.extend(["$ ", &line, "\n", &finished.stdout, &finished.stderr]);
        }
        suite.report.row(TITLE, &[title, seconds(began.elapsed())]);
    }
    // In this order.
    let mut rest = message.as_str();
    for expected in [
        "shop=1.0.0 greeting=hello lives=3",
        "$ kubectl nudge use shop 1.0.1 --wait",
        "shop=1.0.1 greeting=welcome lives=5",
        "$ kubectl nudge use shop 1.0.2 --wait",
        "exit code 3",
        "version 1.0.2 failed and 1.0.1 runs again",
        "KeyError: 'greeting'",
        "shop=1.0.1 greeting=welcome lives=5",
    ] {
        rest = rest.split_once(expected).with_context(|| format!("nobody saw {expected:?}:\n{message}"))?.1;
    }
    ensure!(!message.contains("shop=1.0.2"), "{message}");
    Ok(())
}
