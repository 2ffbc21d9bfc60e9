//! The memory of the roles: at its peak, with all agents at one replica of the hub, and after the watches had to list
//! everything again.

use std::time::Duration;

use anyhow::{Result, ensure};
use nudge_tests::procfs::{self, forget_peak};
use nudge_tests::{ApartTwice, Replica, eventually};
use tokio::time::sleep;

use super::scene::Scene;
use crate::progress;
use crate::report::Report;
use crate::row::{Row, Target, Unit, float};

/// What each role may have, in MiB.
const CONTROL: f64 = 200.0;
const HUB: f64 = 220.0;
const CERTS: f64 = 32.0;
/// The maximum memory after a relist, as a share of the memory before.
const RELIST: f64 = 1.3;
/// How long the agents of a replica may take to find the other one, and a replica to list everything again.
const RECONNECT_TIMEOUT: Duration = Duration::from_mins(10);
/// How long memory is looked at after a relist.
const RELIST_WATCH_DURATION: Duration = Duration::from_secs(10);

/// The peaks of the roles since their start.
pub(super) fn peaks(roles: &ApartTwice, title: &str, report: &mut Report) -> Result<()> {
    for (name, replicas) in [("control", &roles.control), ("hub", &roles.hub), ("certs", &roles.certs)] {
        let peaks = replicas.each_ref().map(|replica| procfs::memory(replica.process.pid()));
        let [one, other] = peaks;
        report.row(Row::new(format!("{title}: peak memory, {name}"), Unit::Mib, mib(one?.peak.max(other?.peak))));
    }
    Ok(())
}

/// Stops a replica of the hub, so that the other one has all agents; then has the watches list everything again.
pub(super) async fn measure(mut scene: Scene, title: &str, report: &mut Report) -> Result<()> {
    peaks(&scene.roles, title, report)?;
    let agents = scene.fleet.pods.len();
    progress("one replica of the hub has all agents");
    let [hub, other] = &mut scene.roles.hub;
    scene.agents.use_hubs(vec![hub.hub]);
    other.process.stop()?;
    let all_done = async || {
        sleep(Duration::from_millis(200)).await;
        let held = hub.metric("nudge_hub_held_polls").await.ok()?;
        (held >= float(u64::try_from(agents).ok()?)).then_some(())
    };
    eventually(RECONNECT_TIMEOUT, "one replica of the hub has all agents", all_done).await?;
    let Scene { ref mut cluster, ref roles, .. } = scene;
    let of = |replica: &Replica| procfs::memory(replica.process.pid());
    let leader = leader(&roles.control).await?;
    let measured = [("control", leader, CONTROL), ("hub", &roles.hub[0], HUB)];
    let mut before = Vec::new();
    for (_, replica, _) in measured {
        before.push((of(replica)?.vm_rss, replica.metric("nudge_watch_lists_total").await?));
        forget_peak(replica.process.pid())?;
    }
    let certs = of(&roles.certs[0])?.peak.max(of(&roles.certs[1])?.peak);

    progress("the watches list everything again");
    // That the API server goes away is no news.
    drop(scene.watches);
    cluster.compact().await?;
    cluster.restart_apiserver().await?;
    for ((_, replica, _), (_, lists)) in measured.iter().zip(&before) {
        let again = async || {
            sleep(Duration::from_millis(200)).await;
            (replica.metric("nudge_watch_lists_total").await.ok()? > *lists).then_some(())
        };
        eventually(RECONNECT_TIMEOUT, "a replica has listed everything again", again).await?;
        replica.wait_until_ready().await?;
    }
    sleep(RELIST_WATCH_DURATION).await;
    for ((name, replica, most), (resident, _)) in measured.into_iter().zip(before) {
        let with = if name == "hub" { format!(" with {agents} agents") } else { String::new() };
        let row = |what: &str, bytes| Row::new(format!("{title}: {name}{with}, {what}"), Unit::Mib, mib(bytes));
        report.row(row("resident", resident).target(Target::AtMost(most)));
        let peak = of(replica)?.peak;
        ensure!(peak > 0, "no memory of {name}");
        let relist = row("peak of a relist", peak).beside("before", mib(resident));
        report.row(relist.target(Target::PeerTimes(RELIST, 0.0)));
    }
    report.row(Row::new(format!("{title}: certs, peak"), Unit::Mib, mib(certs)).target(Target::AtMost(CERTS)));
    Ok(())
}

/// Returns the replica that leads.
async fn leader(replicas: &[Replica; 2]) -> Result<&Replica> {
    Ok(&replicas[nudge_tests::cluster::installation::leader(replicas).await?])
}

fn mib(bytes: u64) -> f64 {
    float(bytes) / 1024.0 / 1024.0
}
