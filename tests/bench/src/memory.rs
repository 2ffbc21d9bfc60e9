//! Memory of the agent: after its start, under load, and when the load has gone.

use std::time::Duration;

use anyhow::Result;
use nudge_tests::agent::IDLE;
use nudge_tests::procfs::{self, Memory};
use nudge_tests::{ExecCommand, eventually};

use crate::bench::Bench;
use crate::contestant::Contestant;
use crate::load::{Load, Until};
use crate::requests::CONNECTIONS;
use crate::row::{Row, Target, Unit, float};
use crate::{payload, progress};

const DICTIONARY_BYTES: usize = 64 * 1024;
const IDLE_CONNECTIONS: usize = 250;

const MIB: u64 = 1024 * 1024;
/// Allowed after the start, and after the requests.
const MAX_FRESH_BYTES: u64 = 2 * MIB;
const MAX_USED_BYTES: u64 = 4 * MIB;
/// What idle connections may leave behind.
const MAX_LEFT_BYTES: u64 = MIB;

/// The time until the agent has seen that connections were closed; memory is not read before.
const CLOSE_NOTICE_DELAY: Duration = Duration::from_secs(1);
/// How long the agent may take to give memory back.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) async fn measure(bench: &mut Bench) -> Result<()> {
    let dir = payload::config_dir(DICTIONARY_BYTES)?;
    let (agent, access) = ExecCommand::new(&bench.binary, dir.path()).start(&IDLE).await?;
    let pid = agent.pid();
    let fresh = wait_until_settled(pid, MAX_FRESH_BYTES).await?;

    let requests = bench.scale.requests;
    progress(&format!("memory: {requests} requests of 64 KiB"));
    let contestant = Contestant::new(pid, &access).await?;
    let mut load = Load::connect(&contestant.whole, CONNECTIONS).await?;
    load.run(Until::Requests(requests)).await.map_err(|error| agent.explain(&error))?;
    let used = procfs::memory(pid)?;
    drop(load);
    let closed = wait_until_settled(pid, MAX_USED_BYTES).await?;

    progress(&format!("memory: {IDLE_CONNECTIONS} idle connections"));
    let idle = Load::connect(&contestant.whole, IDLE_CONNECTIONS).await?;
    let crowded = procfs::memory(pid)?;
    drop(idle);
    let limit = used.rss_anon + MAX_LEFT_BYTES;
    let gone = wait_until_settled(pid, limit).await?;

    let mut rows = |when: &str, memory: Memory, limit: Option<u64>| {
        let anonymous = Row::new(format!("memory {when}: RssAnon"), Unit::Kib, kib(memory.rss_anon));
        bench.report.row(match limit {
            Some(limit) => anonymous.target(Target::AtMost(kib(limit))),
            None => anonymous,
        });
        bench.report.row(Row::new(format!("memory {when}: VmRSS"), Unit::Kib, kib(memory.vm_rss)));
    };
    rows("after start", fresh, Some(MAX_FRESH_BYTES));
    rows(&format!("after {requests} requests, connections open"), used, Some(MAX_USED_BYTES));
    rows("with these closed", closed, Some(MAX_USED_BYTES));
    rows(&format!("with {IDLE_CONNECTIONS} idle connections"), crowded, None);
    rows("with these gone", gone, Some(limit));
    bench.report.remark(format!(
        "memory: a dictionary of 64 KiB over {CONNECTIONS} connections; an idle connection has had one reply of that size"
    ));
    Ok(())
}

/// Memory as soon as no more than `limit` is left, or else when the time to settle is over.
async fn wait_until_settled(pid: i32, limit: u64) -> Result<Memory> {
    tokio::time::sleep(CLOSE_NOTICE_DELAY).await;
    let enough = eventually(SETTLE_TIMEOUT, "the memory settles", async || {
        procfs::memory(pid).ok().filter(|memory| memory.rss_anon <= limit)
    });
    if let Ok(memory) = enough.await { Ok(memory) } else { procfs::memory(pid) }
}

fn kib(bytes: u64) -> f64 {
    float(bytes) / 1024.0
}
