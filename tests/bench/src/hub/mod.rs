//! `bench hub`: one replica of the hub and very many agents.

mod agents;
mod reviews;
mod server;

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use nudge_tests::procfs;

use self::agents::{Crowd, connector};
use self::reviews::Reviews;
use self::server::Server;
use crate::report::Report;
use crate::row::{Row, Target, Unit, float};
use crate::samples::Samples;
use crate::{open_files, progress};

/// What an agent may cost, and how soon nearly all must have new content.
const RESIDENT: u64 = 20 * 1024;
const MAX_DELIVERY_TIME: Duration = Duration::from_secs(1);
/// How long a hub may take to give memory back, or a storm to settle.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(8);
/// How long reviews are counted at rest.
const REST_DURATION: Duration = Duration::from_secs(5);
const STORM_TIMEOUT: Duration = Duration::from_mins(3);

#[derive(Args)]
pub(crate) struct Options {
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
    /// How many agents; 1000 and then 10000 when absent
    #[arg(long)]
    agents: Option<usize>,
    /// 1000 agents only: to see that it works, not to compare
    #[arg(long)]
    quick: bool,
}

pub(crate) async fn run(options: Options) -> Result<()> {
    open_files::raise()?;
    let sizes = match (options.agents, options.quick) {
        (Some(agents), _) => vec![agents],
        (None, true) => vec![1000],
        (None, false) => vec![1000, 10_000],
    };
    let mut report = Report::default();
    for agents in sizes {
        measure(agents, &mut report).await?;
    }
    report.remark(
        "agents are connections of this process over real TLS; a stand-in that takes 3 ms reviews their tokens",
    );
    report.remark("hub and agents share the processors of this machine, and its other load");
    report.print(options.json)
}

async fn measure(agents: usize, report: &mut Report) -> Result<()> {
    let mut row = |row: Row| report.row(row);
    let name = |what: &str| format!("hub, {agents} agents: {what}");
    progress(&format!("hub: {agents} agents connect"));
    let mut server = Server::start(agents, None)?;
    server.activate(1, 4096)?;
    let empty = procfs::memory(server.pid())?.rss_anon;
    let mut crowd = Crowd::start(agents, server.address, &server.authority);
    let all = crowd.wait_for_revision(1, STORM_TIMEOUT).await?;
    row(Row::new(name("all connected at once, until the last has its content"), Unit::Millis, millis(all.max())));
    tokio::time::sleep(SETTLE_TIMEOUT).await;
    let parked = procfs::memory(server.pid())?.rss_anon;
    let per_agent = parked.saturating_sub(empty) / u64::try_from(agents)?;
    let row_per_agent = Row::new(name("resident memory per agent"), Unit::Kib, float(per_agent) / 1024.0);
    row(row_per_agent.target(Target::AtMost(float(RESIDENT) / 1024.0)));

    let mut rounds = Vec::new();
    let mut cpu = Duration::ZERO;
    for revision in 2..=6 {
        progress(&format!("hub: activation {revision}"));
        let before = procfs::cpu_time(server.pid())?;
        crowd.mark();
        server.activate(revision, 4096)?;
        rounds.push(crowd.wait_for_revision(revision, STORM_TIMEOUT).await?);
        tokio::time::sleep(Duration::from_secs(2)).await;
        cpu += procfs::cpu_time(server.pid())?.saturating_sub(before);
    }
    // The median of five activations.
    let of = |percent: usize| Samples::new(rounds.iter().map(|samples| samples.percentile(percent))).median();
    row(Row::new(name("4 KiB, activation → 50 %"), Unit::Millis, millis(of(50))));
    let soon = Row::new(name("4 KiB, activation → 99 %"), Unit::Millis, millis(of(99)));
    row(soon.target(Target::AtMost(MAX_DELIVERY_TIME.as_secs_f64() * 1000.0)));
    row(Row::new(name("4 KiB, activation → 100 %"), Unit::Millis, millis(of(100))));
    row(Row::new(name("processor time of an activation"), Unit::Millis, cpu.as_secs_f64() * 1000.0 / 5.0));
    let after = procfs::memory(server.pid())?.rss_anon.saturating_sub(empty) / u64::try_from(agents)?;
    row(Row::new(name("resident memory per agent after five activations"), Unit::Kib, float(after) / 1024.0));

    progress("hub: admission reviews at rest");
    let reviews = Reviews::start(server.admission, connector(&server.authority))?;
    tokio::time::sleep(REST_DURATION).await;
    let rest = reviews.take();
    drop(reviews);

    progress("hub: the replica is killed and another takes its place");
    let address = server.address;
    let authority = server.take_authority();
    drop(server);
    crowd.mark();
    let mut server = Server::start_with(agents, Some(address), authority)?;
    let reviews = Reviews::start(server.admission, connector(&server.authority))?;
    server.activate(7, 4096)?;
    let back = crowd.wait_for_revision(7, STORM_TIMEOUT).await?;
    let storm = reviews.take();
    drop(reviews);
    let review = |what: &str, value: fn(&Samples) -> f64| {
        Row::new(name(&format!("admission review in the storm: {what}")), Unit::Millis, value(&storm))
            .beside("at rest", value(&rest))
    };
    row(review("p50", Samples::median));
    row(review("p99", |samples| samples.percentile(99)));
    row(Row::new(name("storm after a restart, until 50 % are back"), Unit::Millis, millis(back.median())));
    row(Row::new(name("storm after a restart, until all are back"), Unit::Millis, millis(back.max())));
    let spent = procfs::cpu_time(server.pid())?;
    row(Row::new(name("processor time of the storm"), Unit::Millis, spent.as_secs_f64() * 1000.0));
    let (reviews, at_once) = server.reviews()?;
    row(Row::new(name("token reviews in the storm"), Unit::Count, float(reviews)));
    let most = Row::new(name("token reviews at the same time"), Unit::Count, float(at_once));
    row(most.target(Target::AtMost(50.0)));
    row(Row::new(name("attempts to connect that failed in the storm"), Unit::Count, float(crowd.failures())));
    Ok(())
}

fn millis(seconds: f64) -> f64 {
    seconds * 1000.0
}
