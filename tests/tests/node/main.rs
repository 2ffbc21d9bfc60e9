//! Nudge on a real node: kubelet, containers, volumes, services. Scenarios share one cluster and one installation.
//! Those of the first list below run four at a time, each in namespaces of its own; then those of the second, one after
//! another. Each is a file of `scenarios`; adding one is adding it here.
//!
//! Without anything set, the cluster is a node that `tests/node/up` makes for this run and that is gone afterwards,
//! however this run ends. See [`place`] for running the same against a cluster that is there.

mod clients;
mod component;
mod costs;
mod images;
mod install;
mod leftovers;
mod log;
mod node;
mod objects;
mod person;
mod place;
mod readme;
mod report;
mod scenarios;
mod sourced;
mod space;
mod suite;
mod turns;

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use clap::Parser;
use libtest_mimic::{Arguments, Failed, Trial};

use crate::scenarios::{
    attackers, away, certificates, checks, deleted, demo, edited, edits, exposure, failures, fetched, forged, guarded,
    handlers, in_place, jobs, long_restarts, memory, mounted, published_secrets, quick_start, removal, resized,
    restarts, rollback, rollout, room, secrets, software, starving, taken, takeover, tour, users, volumes, weather,
    webhooks, workload_restarts,
};
use crate::suite::{Run, Shared, Suite};

/// A name, and what runs.
type Scenario = (&'static str, Run);

/// How many run at the same time.
const LANES: usize = 4;

/// Scenarios that run at the same time as others: they change nothing outside of their namespaces that others see. The
/// longest come first, so that all lanes end together.
const BESIDE: &[Scenario] = &[
    ("software", |suite| Box::pin(software::run(suite))),
    ("memory", |suite| Box::pin(memory::run(suite))),
    ("weather", |suite| Box::pin(weather::run(suite))),
    ("tour", |suite| Box::pin(tour::run(suite))),
    ("long_restarts", |suite| Box::pin(long_restarts::run(suite))),
    ("guarded", |suite| Box::pin(guarded::run(suite))),
    // For minutes, if it is asked to.
    ("certificates", |suite| Box::pin(certificates::run(suite))),
    ("edited", |suite| Box::pin(edited::run(suite))),
    ("rollback", |suite| Box::pin(rollback::run(suite))),
    ("exposure", |suite| Box::pin(exposure::run(suite))),
    ("mounted", |suite| Box::pin(mounted::run(suite))),
    ("taken", |suite| Box::pin(taken::run(suite))),
    ("edits", |suite| Box::pin(edits::run(suite))),
    ("in_place", |suite| Box::pin(in_place::run(suite))),
    ("rollout", |suite| Box::pin(rollout::run(suite))),
    ("resized", |suite| Box::pin(resized::run(suite))),
    ("workload_restarts", |suite| Box::pin(workload_restarts::run(suite))),
    ("restarts", |suite| Box::pin(restarts::run(suite))),
    ("handlers", |suite| Box::pin(handlers::run(suite))),
    ("fetched", |suite| Box::pin(fetched::run(suite))),
    ("takeover", |suite| Box::pin(takeover::run(suite))),
    ("failures", |suite| Box::pin(failures::run(suite))),
    ("room", |suite| Box::pin(room::run(suite))),
    ("published_secrets", |suite| Box::pin(published_secrets::run(suite))),
    ("users", |suite| Box::pin(users::run(suite))),
    ("volumes", |suite| Box::pin(volumes::run(suite))),
    ("checks", |suite| Box::pin(checks::run(suite))),
    ("deleted", |suite| Box::pin(deleted::run(suite))),
    ("quick_start", |suite| Box::pin(quick_start::run(suite))),
    ("webhooks", |suite| Box::pin(webhooks::run(suite))),
    ("secrets", |suite| Box::pin(secrets::run(suite))),
    ("forged", |suite| Box::pin(forged::run(suite))),
    ("jobs", |suite| Box::pin(jobs::run(suite))),
];

/// The same of what others would notice, or what would notice others, in this order. Removal takes away what all need.
const ALONE: &[Scenario] = &[
    ("demo", |suite| Box::pin(demo::run(suite))),
    ("away", |suite| Box::pin(away::run(suite))),
    ("starving", |suite| Box::pin(starving::run(suite))),
    ("attackers", |suite| Box::pin(attackers::run(suite))),
    ("removal", |suite| Box::pin(removal::run(suite))),
];

/// The arguments of the built-in harness, which takes several names, as tests/run gives them.
#[derive(Parser)]
struct Named {
    #[command(flatten)]
    arguments: Arguments,
    more: Vec<String>,
}

impl Named {
    /// Returns whether the names, if there are any, name this scenario, and none says to skip it.
    fn takes(&self, scenario: &str) -> bool {
        let exact = self.arguments.exact;
        let names = |name: &String| if exact { scenario == name } else { scenario.contains(name.as_str()) };
        let mut named = self.arguments.filter.iter().chain(&self.more).peekable();
        (named.peek().is_none() || named.any(names)) && !self.arguments.skip.iter().any(names)
    }

    fn of(&self, list: &[Scenario]) -> Vec<Scenario> {
        list.iter().copied().filter(|(name, _)| self.takes(name)).collect()
    }
}

#[allow(clippy::print_stderr)]
fn main() -> ExitCode {
    let named = Named::parse();
    let (beside, alone) = (named.of(BESIDE), named.of(ALONE));
    let shared = match Shared::new(beside.len() + alone.len()) {
        Ok(shared) => Arc::new(shared),
        Err(error) => {
            eprintln!("{error:?}");
            return ExitCode::from(101);
        }
    };
    let mut arguments = named.arguments;
    (arguments.filter, arguments.skip) = (None, Vec::new());
    arguments.test_threads.get_or_insert(LANES);
    let skip = place::skip();
    // Each with how many must have ended before it.
    let alone = (beside.len()..).zip(alone);
    let scenarios = beside.into_iter().map(|one| (0, one)).chain(alone);
    let trial = |(after, (name, run)): (usize, Scenario)| {
        let shared = Arc::clone(&shared);
        let scenario =
            move || Suite::scenario(&shared, after, name, run).map_err(|error| Failed::from(format!("{error:?}")));
        Trial::test(name, scenario).with_ignored_flag(skip.is_some())
    };
    let conclusion = libtest_mimic::run(&arguments, scenarios.map(trial).collect());
    if let Some(reason) = skip {
        nudge_tests::tools::skipped(&reason);
    }
    let down = Arc::into_inner(shared).context("a scenario has not ended").and_then(Shared::end);
    let failed = conclusion.has_failed();
    match down {
        Ok(()) if !failed => ExitCode::SUCCESS,
        Ok(()) => ExitCode::from(101),
        Err(error) => {
            eprintln!("\nclearing up has failed: {error:?}");
            ExitCode::from(101)
        }
    }
}
