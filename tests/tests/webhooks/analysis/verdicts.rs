//! Answers of a real Prometheus about versions, and the consequences of missing answers.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use nudge_api::{AnalysisVerdict, ConfigState, Reason, ReleaseOutcome};
use nudge_tests::cluster::analysis::may_send;
use serde_json::{Value, json};

use crate::analysis::prometheus::{PASSWORD, Prometheus, USER};
use crate::analysis::scene::{DEADLINE_SECONDS, Scene, measurable, shared};

fn analysis(prometheus: &Prometheus) -> Value {
    let rate =
        |metric: &str| format!("sum(rate({metric}{{namespace=\"{{{{namespace}}}}\",pod=~\"{{{{pods}}}}\"}}[5s]))");
    let query = format!("{} / {}", rate("errors_total"), rate("requests_total"));
    json!([{
        "name": "errors", "max": "0.05", "periodSeconds": 5,
        "prometheus": {"address": prometheus.url(), "query": query, "secretRef": {"name": "metrics"}},
    }])
}

#[tokio::test]
async fn numbers_decide_about_versions_and_a_server_that_is_away_holds_them() -> Result<()> {
    let Some(both) = shared().await? else { return Ok(()) };
    let scene = Scene::new(both, 8).await?;
    let names: Vec<&str> = scene.names.iter().map(String::as_str).collect();
    let Some(mut prometheus) = Prometheus::start(&scene.space.name, &names, scene.load.address).await? else {
        return Ok(());
    };
    scene.secret("metrics", &prometheus.ip().to_string(), &json!({"username": USER, "password": PASSWORD})).await?;
    may_send(&scene.space, "metrics").await?;
    scene.set(&json!({"rollout": {"analysis": analysis(&prometheus)}})).await?;
    scene
        .wait_for_status("each query has an answer", |status| measurable(status).is_some_and(|it| it.0 == "Measurable"))
        .await?;

    only_the_new_version_fails(&scene).await?;
    nobody_can_say(&scene, &mut prometheus).await
}

/// The error rate rises only on the new version: caught at the first step.
async fn only_the_new_version_fails(scene: &Scene) -> Result<()> {
    scene.load.bad(Some("2"));
    let began = Instant::now();
    scene.request_version("2").await?;
    let status = scene.wait_for_status("version 2 failed", |status| status.state() == ConfigState::Failed).await?;
    let (failed, pods) = scene.load.failed();
    eprintln!(
        "a version that fails half of its requests: back after {} ms, {pods} of 8 pods had it, {failed} requests failed",
        began.elapsed().as_millis()
    );
    let failure = status.rollout.failure.as_ref().context("no failure")?;
    ensure!(failure.reason == Reason::AnalysisFailed, "{failure:?}");
    ensure!(failure.message.starts_with("errors: pods on 2 have 0."), "{failure:?}");
    ensure!(failure.message.ends_with("those on 1 have 0 (max 0.05), 2 times in a row"), "{failure:?}");
    ensure!(pods == 1, "{pods} pods had it");
    let release = status.releases.last().context("no release")?;
    let numbers = &release.evidence.as_ref().context("no numbers")?.analysis;
    ensure!(numbers[0].verdict == AnalysisVerdict::Bad && numbers[0].control.as_deref() == Some("0"), "{numbers:?}");
    // Nothing is asked any more.
    let gone = async || {
        let object = scene.space.api::<nudge_api::RolloutAnalysis>().get_opt("shop").await.ok()?;
        object.is_none().then_some(())
    };
    nudge_tests::eventually(crate::analysis::scene::WAIT_TIMEOUT, "the analysis is gone", gone).await
}

/// The error rate rises everywhere, the credentials are wrong, nobody answers, and nobody is there: each holds for
/// longer than the progress deadline, and it continues by itself.
async fn nobody_can_say(scene: &Scene, prometheus: &mut Prometheus) -> Result<()> {
    scene.load.bad(None);
    scene.load.outage(true);
    scene.request_version("3").await?;
    let message = scene.wait_until_held("an outage holds version 3", "so the version is not the cause").await?;
    ensure!(message.contains("pods on 3 have 1, those on 1 have 1 (max 0.05)"), "{message}");
    let began = Instant::now();
    scene.change_secret("metrics", &json!({"password": "wrong"})).await?;
    scene.wait_until_held("wrong credentials hold", "the server refuses the credentials (status 401)").await?;
    scene.load.outage(false);
    scene.change_secret("metrics", &json!({"password": PASSWORD})).await?;
    prometheus.process()?.signal(Signal::SIGSTOP)?;
    scene.wait_until_held("a server that does not answer holds", "did not answer within 10 s").await?;
    let deadline = Duration::from_secs(DEADLINE_SECONDS + 5);
    let status = scene.wait_for_status("it holds for longer than the deadline", |_| began.elapsed() > deadline).await?;
    ensure!(status.target_version.as_deref() == Some("3") && status.rollout.step == 1, "{status:#?}");
    prometheus.process()?.signal(Signal::SIGCONT)?;
    scene.wait_for_status("another step goes out", |status| status.rollout.step > 1).await?;

    prometheus.process()?.kill()?;
    scene.wait_until_held("a server that is gone holds", "can't be reached").await?;
    prometheus.run().await?;
    let status = scene.wait_until_current("3").await?;
    let outcomes: Vec<_> = status.releases.iter().map(|release| release.outcome).collect();
    let expected = [ReleaseOutcome::Current, ReleaseOutcome::RolledBack, ReleaseOutcome::Current].map(Some);
    ensure!(outcomes == expected, "nobody was blamed but version 2: {outcomes:?}");
    Ok(())
}
