//! An activation every ten seconds for a long time: it shows which numbers of each role grow with time instead of with
//! the cluster.

use std::time::Duration;

use anyhow::{Result, ensure};
use nudge_api::VersionedConfigStatus;
use nudge_tests::{Replica, procfs};
use serde::Serialize;
use serde_json::json;
use tokio::time::{Instant, interval};

use super::Options;
use super::pods::Shape;
use super::scene::Scene;
use crate::progress;
use crate::report::Report;
use crate::row::{Row, Target, Unit, float};
use crate::samples::Samples;

/// How often a version is activated.
const ACTIVATION_INTERVAL: Duration = Duration::from_secs(10);
/// The number of versions that take turns. With fewer versions, the next version would be the previous version, and the
/// move a rollback.
const VERSIONS: u32 = 3;
/// The number of parts of a soak. The first one warms up, and the last one is compared with the second.
const PARTS: usize = 5;
/// What may have grown, as a factor.
const FLAT: f64 = 1.05;

/// What a process has at one time: MiB of its own, open descriptors, and tasks.
#[derive(Serialize)]
struct Sample {
    anonymous: f64,
    descriptors: f64,
    tasks: Option<f64>,
}

impl Sample {
    async fn of(replica: &Replica) -> Result<Self> {
        let pid = replica.process.pid();
        // Nobody reaches the role certs: it has no metrics.
        let tasks = if replica.health.port() == 0 { None } else { Some(replica.metric("nudge_tasks").await?) };
        Ok(Self {
            anonymous: float(procfs::memory(pid)?.rss_anon) / 1024.0 / 1024.0,
            descriptors: float(u64::try_from(procfs::descriptors(pid)?)?),
            tasks,
        })
    }
}

pub(super) async fn measure(options: &Options, minutes: u64, report: &mut Report) -> Result<()> {
    ensure!(minutes >= 1, "a soak takes a minute at least");
    let shape = Shape { namespaces: 1, configs: 1, pods: options.pods, versions: VERSIONS };
    let scene = Scene::start(options, shape, Box::new(|_, _, _| false)).await?;
    let roles = &scene.roles;
    let processes: Vec<(String, &Replica)> =
        [("control", &roles.control), ("hub", &roles.hub), ("certs", &roles.certs)]
            .into_iter()
            .flat_map(|(role, replicas)| (1..).zip(replicas).map(move |(number, it)| (format!("{role} {number}"), it)))
            .collect();
    let mut samples: Vec<Vec<Sample>> = processes.iter().map(|_| Vec::new()).collect();
    let (mut ticks, until) = (interval(ACTIVATION_INTERVAL), Instant::now() + Duration::from_mins(minutes));
    let (mut version, mut activations, mut complete, mut said) = (1, 0_u64, 0_u64, 0);
    ticks.tick().await;
    while Instant::now() < until {
        version = version % VERSIONS + 1;
        scene.push(0, version).await?;
        activations += 1;
        ticks.tick().await;
        let name = version.to_string();
        let current = |status: &VersionedConfigStatus| status.current_version.as_ref() == Some(&name);
        complete += u64::from(scene.journal.last_looks(current) == [Some(true)]);
        for ((_, replica), samples) in processes.iter().zip(&mut samples) {
            samples.push(Sample::of(replica).await?);
        }
        let left = until.saturating_duration_since(Instant::now()).as_secs() / 60;
        if left != said {
            said = left;
            progress(&format!(
                "{activations} activations, {complete} of them current within {ACTIVATION_INTERVAL:?}; {left} min left"
            ));
        }
    }
    let title = format!("{minutes} min, {} pods, an activation every {ACTIVATION_INTERVAL:?}", options.pods);
    report.remark(format!("Kubernetes {}", scene.cluster.version()));
    report.row(Row::new(format!("{title}: activations"), Unit::Count, float(activations)));
    report.row(Row::new(format!("{title}: current within {ACTIVATION_INTERVAL:?}"), Unit::Count, float(complete)));
    report.remark(format!(
        "medians of the last {0} minutes, beside those of the second {0}",
        float(minutes) / float(u64::try_from(PARTS)?)
    ));
    for ((name, _), samples) in processes.iter().zip(&samples) {
        report.detail(name.clone(), json!(samples));
        let part = samples.len() / PARTS;
        let mut row = |what: &str, unit: Unit, of: &dyn Fn(&Sample) -> Option<f64>| {
            let median = |samples: &[Sample]| Samples::new(samples.iter().filter_map(of)).median();
            let (before, after) = (median(&samples[part..2 * part]), median(&samples[samples.len() - part..]));
            let row = Row::new(format!("{title}: {name}, {what}"), unit, after).beside("before", before);
            report.row(row.target(Target::PeerTimes(FLAT, 0.0)));
        };
        row("memory of its own", Unit::Mib, &|sample| Some(sample.anonymous));
        row("descriptors", Unit::Count, &|sample| Some(sample.descriptors));
        if samples.iter().all(|sample| sample.tasks.is_some()) {
            row("tasks", Unit::Count, &|sample| sample.tasks);
        }
    }
    Ok(())
}
