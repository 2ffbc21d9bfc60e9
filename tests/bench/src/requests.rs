//! The cost of `GET /config`: processor time per request on the server's core, compared with nginx and the same bytes.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nudge_tests::affinity::{Cores, Pinned};
use nudge_tests::agent::IDLE;
use nudge_tests::{ExecCommand, procfs};

use crate::bench::Bench;
use crate::contestant::{Contestant, SUITE};
use crate::load::{Load, Server, Until};
use crate::nginx::{self, Nginx};
use crate::row::{Row, Target, Unit, float};
use crate::{payload, progress};

/// Connections that are kept alive.
pub(crate) const CONNECTIONS: usize = 64;

/// The time before each sample, for the caches that the other server has filled.
const WARM_UP_DURATION: Duration = Duration::from_millis(200);

pub(crate) async fn measure(bench: &mut Bench) -> Result<()> {
    let cores = Cores::find()?;
    let nginx_version = nginx::version();
    for kib in [4, 64] {
        let dir = payload::config_dir(kib * 1024)?;
        let (agent, access) = ExecCommand::new(&bench.binary, dir.path()).core(cores.server).start(&IDLE).await?;
        let ours = Contestant::new(agent.pid(), &access).await?;

        let nginx = match nginx_version {
            Some(_) => Some(Nginx::start(&ours.body, cores.server).await?),
            None => None,
        };
        let peer = match &nginx {
            Some(nginx) => Some(Contestant::new(nginx.worker(), &nginx.access(&access.token)).await?),
            None => None,
        };
        ensure!(peer.as_ref().is_none_or(|peer| peer.body == ours.body), "nginx serves other bytes than the agent");

        let name = format!("GET /config, {kib} KiB");
        compete(bench, cores, &name, &ours.whole, peer.as_ref().map(|peer| &peer.whole)).await?;
        let name = format!("GET /config, {kib} KiB, unchanged");
        compete(bench, cores, &name, &ours.unchanged, peer.as_ref().map(|peer| &peer.unchanged)).await?;
    }
    remark(bench, cores, nginx_version);
    Ok(())
}

/// Loads the servers by turns, so that whatever else the machine does meets both.
async fn compete(bench: &mut Bench, cores: Cores, name: &str, ours: &Server, peer: Option<&Server>) -> Result<()> {
    let (rounds, time) = (bench.scale.rounds, bench.scale.round);
    let mut our_samples = Vec::new();
    let mut peer_samples = Vec::new();
    for round in 1..=rounds {
        progress(&format!("{name}: round {round} of {rounds}"));
        our_samples.push(Sample::take(ours, cores, time).await.context("the agent under load")?);
        if let Some(peer) = peer {
            peer_samples.push(Sample::take(peer, cores, time).await.context("nginx under load")?);
        }
    }
    // The best round of each: whatever else the machine does only adds to the cost.
    let row = |what: &str, unit, best: fn(&[Sample]) -> f64| {
        let row = Row::new(format!("{name}: {what}"), unit, best(&our_samples));
        if peer.is_some() { row.beside("nginx", best(&peer_samples)) } else { row }
    };
    let cost = row("CPU per request", Unit::Micros, |samples| {
        samples.iter().map(|sample| sample.micros).fold(f64::INFINITY, f64::min)
    });
    let rate = row("requests per second", Unit::PerSecond, |samples| {
        samples.iter().map(|sample| sample.per_second).fold(0.0, f64::max)
    });
    bench.report.row(cost.target(Target::PeerPlus(0.0)));
    bench.report.row(rate);
    Ok(())
}

/// The requests of one server for a few seconds.
struct Sample {
    /// Processor time of the server per request, in µs.
    micros: f64,
    per_second: f64,
}

impl Sample {
    async fn take(server: &Server, cores: Cores, time: Duration) -> Result<Self> {
        // The runtime has one thread, this one.
        let _pinned = Pinned::to(cores.load)?;
        let mut load = Load::connect(server, CONNECTIONS).await?;
        let negotiated = load.negotiated();
        ensure!(negotiated == Some(SUITE), "the server has chosen {negotiated:?}");
        load.run(Until::Elapsed(WARM_UP_DURATION)).await?;

        let before = procfs::cpu_time(server.pid)?;
        let tally = load.run(Until::Elapsed(time)).await?;
        let spent = procfs::cpu_time(server.pid)?.saturating_sub(before);
        let requests = float(tally.requests);
        Ok(Self { micros: spent.as_secs_f64() * 1e6 / requests, per_second: requests / tally.elapsed.as_secs_f64() })
    }
}

fn remark(bench: &mut Bench, cores: Cores, nginx_version: Option<String>) {
    let scale = &bench.scale;
    let peer = nginx_version.map_or_else(|| "nginx is not installed".to_owned(), |version| format!("nginx {version}"));
    let mut remark = format!(
        "requests: the best of {} rounds of {:?} for each server by turns; {CONNECTIONS} connections, kept alive; TLS 1.3 \
         with {SUITE:?}; {peer}; server on core {}, load on core {}",
        scale.rounds, scale.round, cores.server, cores.load
    );
    if cores.load == cores.server {
        remark.push_str(" (the only one: requests per second hold the load's work too)");
    }
    bench.report.remark(remark);
}
