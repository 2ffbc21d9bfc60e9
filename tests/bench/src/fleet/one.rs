//! All pods use one config: a good version, and one that half of the pods have when a tenth of them begin to refuse it.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use nudge_api::VersionedConfigStatus;
use nudge_core::identity::Identity;
use nudge_core::keys::PodUid;
use nudge_core::owners::WorkloadId;
use nudge_core::rollout::version_by_number;
use serde_json::json;

use super::analysis::{back, not_waited_for, steps};
use super::curves::curves;
use super::journal::{Journal, Look};
use super::pods::{Shape, workload};
use super::rows::{beside_floor, seconds, spent};
use super::scene::Scene;
use super::{Options, memory};
use crate::progress;
use crate::report::Report;
use crate::row::{Row, Target, Unit, float};

/// The most that a status may have.
const STATUS_KIB: f64 = 64.0;
const GOOD: u32 = 2;
const BAD: u32 = 3;

pub(super) async fn measure(options: &Options, report: &mut Report) -> Result<()> {
    let pods = options.pods;
    let shape = Shape { namespaces: 1, configs: 1, pods, versions: BAD };
    // More than the second step has, and less than the third.
    let refuses = move |journal: &Journal, pod: usize, version: u32| {
        version == BAD && pod.is_multiple_of(10) && journal.taken_count(0, BAD) * 10 > pods * 3
    };
    let scene = Scene::start(options, shape, Box::new(refuses)).await?;
    report.remark(format!("Kubernetes {}", scene.cluster.version()));
    let title = format!("1 config, {pods} pods");
    good(&scene, &title, report).await?;
    bad(&scene, &title, report).await?;
    let bytes = u64::try_from(scene.journal.longest_status())?;
    let row = Row::new(format!("{title}: longest status"), Unit::Kib, float(bytes) / 1024.0);
    report.row(row.target(Target::AtMost(STATUS_KIB)));
    memory::measure(scene, &title, report).await
}

/// Returns whether the pod is to run the target of that status: as each replica of the hub computes it.
fn assigned(scene: &Scene, look: &Look, pod: usize) -> bool {
    let status = &look.status;
    let identity = status.internal.identity.as_deref().and_then(Identity::parse);
    let (uid, labels) = (PodUid::new(&scene.fleet.pods[pod].uid), BTreeMap::new());
    let workload = WorkloadId::from(&*workload(0));
    let version = identity
        .zip(uid)
        .and_then(|(identity, uid)| version_by_number(status, identity, &uid, Some(&workload), &labels));
    version.is_some() && version == status.target_version.as_deref()
}

async fn good(scene: &Scene, title: &str, report: &mut Report) -> Result<()> {
    progress("a good version");
    let (before, began) = (scene.read().await?, scene.journal.now());
    scene.push(0, GOOD).await?;
    let over = |status: &VersionedConfigStatus| {
        status.current_version.as_deref() == Some("2") || status.rollout.failure.is_some()
    };
    scene.until("the version is current", |journal| journal.last_looks(over) == [Some(true)]).await?;
    let failure = scene.journal.last_looks(|status| status.rollout.failure.clone());
    ensure!(failure == [Some(None)], "a good version has failed: {failure:?}");
    let over = scene.journal.now();
    scene.all_proven(GOOD).await?;
    let proven = scene.journal.now();
    scene.rest().await?;
    let after = scene.read().await?;
    let (events, looks) = (scene.journal.events(0), scene.journal.statuses(0));
    let all = steps(&events, &looks, GOOD, |look, pod| assigned(scene, look, pod));

    progress("the floor");
    let mut skipped = 0;
    for (number, step) in all.iter().enumerate() {
        let floor = scene.floor(step.pods).await?;
        let what = |what: &str| format!("{title}, step {} ({} pods): {what}", number + 1, step.pods);
        let row = |name: &str, time| Row::new(what(name), Unit::Seconds, seconds(time));
        report.row(row("until the last agent has it", step.taken));
        report.row(row("until the last application has acknowledged it", step.acknowledged));
        report.row(beside_floor(what("until the last pod is proven"), step.proven, floor));
        skipped += step.skipped;
    }
    let name = |what: &str| format!("{title}, a good version: {what}");
    let count = |count: usize| float(u64::try_from(count).unwrap_or(u64::MAX));
    report.row(Row::new(
        name("from spec.version until it is current"),
        Unit::Seconds,
        over.saturating_sub(began).as_secs_f64(),
    ));
    report
        .row(Row::new(name("pods skipped that acknowledged"), Unit::Count, count(skipped)).target(Target::AtMost(0.0)));
    let left = f64::from(not_waited_for(&looks, began));
    report.row(Row::new(name("pods not waited for"), Unit::Count, left).target(Target::AtMost(0.0)));
    let cost = after.since(&before);
    let pods = scene.fleet.pods.len();
    let each = |what: &str, done: u64, most: f64| {
        Row::new(name(what), Unit::Each, float(done) / count(pods)).target(Target::AtMost(most))
    };
    report.row(each("assignment answers an agent", cost.answers.all, 1.0));
    report.row(each("reports an agent", cost.reports.all, 1.0));
    report.row(each("handshakes an agent", cost.handshakes.all, 0.0));
    report.row(Row::new(name("requests of agents that failed"), Unit::Count, float(cost.failures.all)));
    spent(report, &name("cost"), &cost);
    let steps: Vec<f64> = all.iter().map(|step| step.assigned.saturating_sub(began).as_secs_f64()).collect();
    let curves = curves(&format!("{title}, a good version"), &events, GOOD, began, proven);
    report.detail("good", json!({"curves": curves, "steps": steps, "spent": cost}));
    Ok(())
}

async fn bad(scene: &Scene, title: &str, report: &mut Report) -> Result<()> {
    progress("a bad version");
    let (before, began) = (scene.read().await?, scene.journal.now());
    scene.push(0, BAD).await?;
    let is_back = |status: &VersionedConfigStatus| status.rollout.failure.is_some() && status.rollout.stage.is_none();
    scene.until("the version has failed", |journal| journal.last_looks(is_back) == [Some(true)]).await?;
    scene.all_proven(GOOD).await?;
    let over = scene.journal.now();
    scene.rest().await?;
    let after = scene.read().await?;
    let (events, looks) = (scene.journal.events(0), scene.journal.statuses(0));
    let found = back(&events, &looks, BAD, GOOD).context("no verdict was seen")?;
    let floor = scene.floor(found.rewritten).await?;

    let name = |what: &str| format!("{title}, a bad version at 50% ({} pods): {what}", found.pods);
    let time = |what: &str, time| Row::new(name(what), Unit::Seconds, seconds(time));
    report.row(time("from the first refusal until the verdict", Some(found.verdict)));
    let taken = time("from the verdict until every agent has the old one", found.taken);
    report.row(taken.target(Target::AtMost(2.0)));
    let description = format!("from the verdict until every condition says so ({} written)", found.rewritten);
    report.row(beside_floor(name(&description), found.proven, floor));
    let cost = after.since(&before);
    // Agents that had it; what others do in vain counts too.
    let had = float(u64::try_from(found.pods)?);
    let each = |description: &str, done: u64, most: f64| {
        Row::new(name(description), Unit::Each, float(done) / had).target(Target::AtMost(most))
    };
    report.row(each("assignment answers for each agent that had it", cost.answers.all, 2.0));
    report.row(each("reports for each agent that had it", cost.reports.all, 2.0));
    report.row(each("handshakes for each agent that had it", cost.handshakes.all, 0.0));
    spent(report, &name("cost"), &cost);
    let curves = curves(&format!("{title}, a bad version at 50%"), &events, BAD, began, over);
    report.detail("bad", json!({"curves": curves, "spent": cost}));
    Ok(())
}
