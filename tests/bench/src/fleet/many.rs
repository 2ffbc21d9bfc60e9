//! Many configs, all pushed at once. Some of the versions are bad: they are refused from the second step on.

use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use nudge_api::VersionedConfigStatus;
use serde_json::json;

use super::analysis::{back, current};
use super::curves::curves;
use super::journal::Journal;
use super::pods::Shape;
use super::rows::{TIMES, seconds, spent};
use super::scene::Scene;
use super::{Options, PODS_EACH, memory};
use crate::progress;
use crate::report::Report;
use crate::row::{Row, Target, Unit, float};
use crate::samples::Samples;

/// The number of configs of which one has a bad version.
const BAD: usize = 50;
const NEW: u32 = 2;
/// Pushes at the same time.
const CLIENTS: usize = 64;
/// What the last config may take beyond its steps, its bake and the floor.
const MORE: f64 = 10.0;

pub(super) async fn measure(options: &Options, report: &mut Report) -> Result<()> {
    let shape = Shape { namespaces: options.namespaces, configs: options.configs, pods: PODS_EACH, versions: NEW };
    // Few configs have a bad one among them, too.
    let every = BAD.min(options.configs / 2).max(1);
    let is_bad = move |config: usize| config % every == every / 2;
    let refuses = move |journal: &Journal, pod: usize, version: u32| {
        let config = pod / PODS_EACH;
        version == NEW && is_bad(config) && journal.taken_count(config, NEW) > 1
    };
    let scene = Scene::start(options, shape, Box::new(refuses)).await?;
    let title = format!("{} configs of {PODS_EACH} pods in {} namespaces", options.configs, options.namespaces);
    progress("all are pushed at once");
    let (before, began) = (scene.read().await?, scene.journal.now());
    let pushes = stream::iter(0..options.configs).map(|config| scene.push(config, NEW));
    pushes.buffer_unordered(CLIENTS).try_collect::<()>().await?;
    let name = NEW.to_string();
    let is_over = |status: &VersionedConfigStatus| {
        let failed = status.rollout.failure.as_ref().is_some_and(|failure| failure.version == name);
        status.current_version.as_ref() == Some(&name) || (failed && status.rollout.stage.is_none())
    };
    scene
        .until("all have the version, or have failed", |journal| {
            journal.last_looks(is_over).into_iter().all(|over| over == Some(true))
        })
        .await?;
    let over = scene.journal.now();
    scene.rest().await?;
    let cost = scene.read().await?.since(&before);
    progress("the floor");
    let floor = scene.floor(scene.fleet.pods.len()).await?.as_secs_f64();

    let (mut times, mut verdicts, mut ways_back) = (Vec::new(), Vec::new(), Vec::new());
    for config in 0..options.configs {
        let looks = scene.journal.statuses(config);
        if is_bad(config) {
            let found = back(&scene.journal.events(config), &looks, NEW, 1);
            let found = found.with_context(|| format!("config {config} has no verdict"))?;
            verdicts.push(found.verdict.as_secs_f64());
            ways_back.push(seconds(found.taken_after_harm));
        } else {
            times.push(seconds(current(&looks, NEW).map(|at| at.saturating_sub(began))));
        }
    }
    let (times, verdicts, ways_back) = (Samples::new(times), Samples::new(verdicts), Samples::new(ways_back));
    // Rounding changes the number of steps.
    let steps = float(u64::try_from(options.spec().steps.len())?);
    let allowed = steps * f64::from(options.dwell) + f64::from(options.bake) + TIMES * floor + MORE;
    let row = |what: &str, seconds: f64| Row::new(format!("{title}: {what}"), Unit::Seconds, seconds);
    report.row(row("pushed at once, until half are current", times.median()));
    let last = row("pushed at once, until the last is current", times.max()).beside("floor", floor);
    report.row(last.target(Target::AtMost(allowed)));
    report.row(row("a bad one meanwhile, from harm until the verdict, median", verdicts.median()));
    report.row(row("a bad one meanwhile, from harm until every pod is assigned, median", ways_back.median()));
    let worst = row("a bad one meanwhile, from harm until every pod is assigned, worst", ways_back.max());
    report.row(worst.target(Target::AtMost(1.0)));
    report.remark(format!(
        "{} of the {} configs have a bad version, which is refused from the second step on; what the last config may take: \
         {steps} x {} s + {} s + {TIMES} x the floor + {MORE} s",
        options.configs.div_ceil(every),
        options.configs,
        options.dwell,
        options.bake,
    ));
    let bytes = u64::try_from(scene.journal.longest_status())?;
    report.row(Row::new(format!("{title}: longest status"), Unit::Kib, float(bytes) / 1024.0));
    spent(report, &format!("{title}: cost"), &cost);
    memory::peaks(&scene.roles, &title, report)?;
    let events: Vec<_> = (0..options.configs).flat_map(|config| scene.journal.events(config)).collect();
    let until = over.max(began + Duration::from_secs(1));
    report.detail("many", json!({"curves": curves(&title, &events, NEW, began, until), "spent": cost}));
    Ok(())
}
