//! What an agent takes while its pod is notified of four versions a minute: the container's working set as the kubelet
//! counts it, the memory that is the process's alone, and processor time. For as many minutes as `NUDGE_E2E_MINUTES`
//! says.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use nudge_tests::procfs;
use nudge_tests::tools;
use time::OffsetDateTime;
use tokio::time::{MissedTickBehavior, interval};

use crate::images;
use crate::report::seconds;
use crate::space::{ScenarioNamespace, WAIT_TIMEOUT, assert_untouched, containers};
use crate::suite::Suite;

const MINUTES: &str = "NUDGE_E2E_MINUTES";
const READ_INTERVAL: Duration = Duration::from_secs(15);
/// Readings on the way.
const READINGS: u32 = 5;

pub(crate) async fn run(suite: &Suite) -> Result<()> {
    let Some(minutes) = env::var_os(MINUTES) else {
        tools::skipped(&format!(
            "the agent's memory over time takes as many minutes as {MINUTES} says, which is not set"
        ));
        return Ok(());
    };
    let minutes: u32 =
        minutes.to_str().and_then(|text| text.parse().ok()).with_context(|| format!("{MINUTES} is no number"))?;
    let place = suite.place().await?;
    if place.inside("reading an agent's memory").is_none() {
        return Ok(());
    }
    let home = ScenarioNamespace::enabled(suite, "memory").await?;
    home.apply_examples(&["shop", "shell"])?;
    home.at_once("shop").await?;
    let pod = home.ready_pod("app.kubernetes.io/name=example-shell").await?;
    let log = home.follow(&pod).await?;
    log.line(OffsetDateTime::UNIX_EPOCH, WAIT_TIMEOUT, "shop=1.0.0").await?;
    let agent = Agent::of(&pod)?;
    let title = format!("The agent's container ({} build), four activations a minute", images::profile());
    suite.report.row(&title, &["", "working set", "RssAnon", "CPU"].map(str::to_owned));
    suite.report.row(&title, &agent.reading("at first")?);

    let rounds = minutes * 4;
    let mut turns = interval(READ_INTERVAL);
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first is at once.
    turns.tick().await;
    for round in 1..=rounds {
        let version = if round % 2 == 1 { "1.0.1" } else { "1.0.0" };
        let before = OffsetDateTime::now_utc();
        home.activate("shop", version).await?;
        log.line(before, WAIT_TIMEOUT, &format!("shop={version}")).await?;
        turns.tick().await;
        if round % rounds.div_ceil(READINGS) == 0 || round == rounds {
            suite.report.row(&title, &agent.reading(&format!("after {round} in {}", seconds(READ_INTERVAL * round)))?);
        }
    }
    assert_untouched(&home, &pod).await
}

/// The agent's process, and the control group of its container.
struct Agent {
    process: i32,
    memory: Group,
}

/// A control group that counts memory.
enum Group {
    V1(PathBuf),
    V2(PathBuf),
}

impl Agent {
    fn of(pod: &Pod) -> Result<Self> {
        let process = process(pod, "nudge-agent", "run")?;
        Ok(Self { process, memory: Group::of(&fs::read_to_string(format!("/proc/{process}/cgroup"))?)? })
    }

    /// Returns a row of the report.
    fn reading(&self, when: &str) -> Result<[String; 4]> {
        let kibibytes = |bytes: u64| format!("{} KiB", bytes / 1024);
        let memory = procfs::memory(self.process)?;
        let cpu = procfs::cpu_time(self.process)?;
        let cpu = format!("{:.2} s", cpu.as_secs_f64());
        Ok([when.to_owned(), kibibytes(self.memory.working_set()?), kibibytes(memory.rss_anon), cpu])
    }
}

/// Returns the process of a container on our node that has this among its arguments: probes are processes of the
/// container, too.
pub(super) fn process(pod: &Pod, container: &str, argument: &str) -> Result<i32> {
    let all = containers(pod);
    let (_, id, _) = all.into_iter().find(|(name, ..)| name == container).with_context(|| format!("no {container}"))?;
    let id = id.as_deref().and_then(|id| id.split_once("://")).map(|(_, id)| id.to_owned()).context("no id")?;
    for entry in fs::read_dir("/proc")? {
        let path = entry?.path();
        let Some(process) = path.file_name().and_then(|name| name.to_str()?.parse().ok()) else { continue };
        let read = |file: &str| fs::read_to_string(path.join(file)).unwrap_or_default();
        if read("cgroup").contains(&id) && read("cmdline").split('\0').any(|one| one == argument) {
            return Ok(process);
        }
    }
    anyhow::bail!("no process in the container {id} has the argument {argument}")
}

impl Group {
    /// Reads the lines of `/proc/<pid>/cgroup`.
    fn of(lines: &str) -> Result<Self> {
        // Number, controllers, path, which may have colons itself.
        let fields = || lines.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
        let below = |root: &str, path: &str| Path::new(root).join(path.trim_start_matches('/'));
        if let Some((_, path)) =
            fields().find(|(controllers, _)| controllers.split(',').any(|controller| controller == "memory"))
        {
            return Ok(Self::V1(below("/sys/fs/cgroup/memory", path)));
        }
        let (_, path) = fields().find(|(controllers, _)| controllers.is_empty()).context("no group counts memory")?;
        Ok(Self::V2(below("/sys/fs/cgroup", path)))
    }

    /// Returns what the kubelet reports, and evicts by: all that is used, without files that nobody has read lately.
    fn working_set(&self) -> Result<u64> {
        let (usage, folder, inactive) = match self {
            Self::V1(folder) => ("memory.usage_in_bytes", folder, "total_inactive_file "),
            Self::V2(folder) => ("memory.current", folder, "inactive_file "),
        };
        let read = |file: &str| {
            fs::read_to_string(folder.join(file)).with_context(|| format!("no {file} in {}", folder.display()))
        };
        let usage: u64 = read(usage)?.trim().parse()?;
        let stat = read("memory.stat")?;
        let inactive =
            stat.lines().find_map(|line| line.strip_prefix(inactive)).context("no inactive files in memory.stat")?;
        Ok(usage.saturating_sub(inactive.parse()?))
    }
}
