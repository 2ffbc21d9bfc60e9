//! Nudge on a real node: kubelet, containers, volumes, services. Scenarios share one cluster and one installation, and run one after
//! another in the order of the list below. Each is a file of `scenarios`; adding one is adding it here.
//!
//! Without anything set, the cluster is a node that `tests/node/up` makes for this run and that is gone afterwards, however this run ends.
//! See [`place`] for running the same against a cluster that is there.

mod component;
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

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use clap::Parser;
use libtest_mimic::{Arguments, Failed, Trial};

use crate::scenarios::{
    attackers, certificates, checks, deleted, demo, edits, exposure, failures, fetched, forged, guarded, handlers,
    in_place, jobs, long_restarts, memory, published_secrets, quick_start, refresh, removal, restarts, rollback,
    rollout, secrets, starving, takeover, tour, users, weather, webhooks, workload_restarts,
};
use crate::suite::{Run, Suite};

/// Names, and what runs. Removal takes away what all others need.
const SCENARIOS: &[(&str, Run)] = &[
    ("quick_start", |suite| Box::pin(quick_start::run(suite))),
    ("tour", |suite| Box::pin(tour::run(suite))),
    ("handlers", |suite| Box::pin(handlers::run(suite))),
    ("users", |suite| Box::pin(users::run(suite))),
    ("webhooks", |suite| Box::pin(webhooks::run(suite))),
    ("checks", |suite| Box::pin(checks::run(suite))),
    ("rollout", |suite| Box::pin(rollout::run(suite))),
    ("exposure", |suite| Box::pin(exposure::run(suite))),
    ("weather", |suite| Box::pin(weather::run(suite))),
    ("rollback", |suite| Box::pin(rollback::run(suite))),
    ("restarts", |suite| Box::pin(restarts::run(suite))),
    ("long_restarts", |suite| Box::pin(long_restarts::run(suite))),
    ("workload_restarts", |suite| Box::pin(workload_restarts::run(suite))),
    ("in_place", |suite| Box::pin(in_place::run(suite))),
    ("refresh", |suite| Box::pin(refresh::run(suite))),
    ("published_secrets", |suite| Box::pin(published_secrets::run(suite))),
    ("secrets", |suite| Box::pin(secrets::run(suite))),
    ("certificates", |suite| Box::pin(certificates::run(suite))),
    ("edits", |suite| Box::pin(edits::run(suite))),
    ("fetched", |suite| Box::pin(fetched::run(suite))),
    ("jobs", |suite| Box::pin(jobs::run(suite))),
    ("deleted", |suite| Box::pin(deleted::run(suite))),
    ("forged", |suite| Box::pin(forged::run(suite))),
    ("guarded", |suite| Box::pin(guarded::run(suite))),
    ("takeover", |suite| Box::pin(takeover::run(suite))),
    ("starving", |suite| Box::pin(starving::run(suite))),
    ("attackers", |suite| Box::pin(attackers::run(suite))),
    ("failures", |suite| Box::pin(failures::run(suite))),
    ("memory", |suite| Box::pin(memory::run(suite))),
    ("demo", |suite| Box::pin(demo::run(suite))),
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
    /// Whether the names, if there are any, name this scenario.
    fn takes(&self, scenario: &str) -> bool {
        let mut names = self.arguments.filter.iter().chain(&self.more).peekable();
        let exact = self.arguments.exact;
        names.peek().is_none()
            || names.any(|name| if exact { scenario == name } else { scenario.contains(name.as_str()) })
    }
}

#[allow(clippy::print_stderr)]
fn main() -> ExitCode {
    let named = Named::parse();
    // tests/run has its own turn for them.
    if std::env::var_os("NUDGE_SCENARIOS").is_some_and(|value| value == "none") {
        return ExitCode::SUCCESS;
    }
    let trials: Vec<_> = SCENARIOS.iter().filter(|(name, _)| named.takes(name)).collect();
    let mut arguments = named.arguments;
    arguments.filter = None;
    // Times are taken, and all share one cluster.
    arguments.test_threads = Some(1);
    let skip = place::skip();
    let suite = Arc::new(Suite::default());
    let trial = |&(name, run): &(&'static str, Run)| {
        let suite = Arc::clone(&suite);
        let scenario = move || suite.scenario(name, run).map_err(|error| Failed::from(format!("{error:?}")));
        Trial::test(name, scenario).with_ignored_flag(skip.is_some())
    };
    let conclusion = libtest_mimic::run(&arguments, trials.into_iter().map(trial).collect());
    if let Some(reason) = skip {
        nudge_tests::tools::skipped(&reason);
    }
    let down = Arc::into_inner(suite).context("a scenario has not ended").and_then(Suite::end);
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
