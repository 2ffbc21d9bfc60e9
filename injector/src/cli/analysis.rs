//! Starts the analysis in the leader of its lease. The analysis requests the numbers that judge versions.

use std::sync::Arc;

use kube::Config;
use nudge_analysis::{Analyses, run};
use nudge_cluster::guarded_reader::GuardedReader;
use nudge_cluster::lease::Lease;

use super::cluster;
use super::controllers::while_leading;
use super::options::Options;
use super::serve_error::ServeError;
use crate::task_supervisor::{ShutdownStage, Tasks};

/// Starts the role analysis. It shares nothing with the other roles.
pub(super) fn start(config: &Config, options: &Options, tasks: &mut Tasks) -> Result<(), ServeError> {
    let lease = Lease::new(cluster::client(config)?, options.analysis_lease.clone());
    let leadership = lease.leadership();
    tasks.spawn_until(ShutdownStage::HandOver, "lease of the analysis", |stopping| lease.run(stopping));
    let seconds = options.watch.seconds;
    let config = cluster::with_read_timeout(config, seconds);
    let (server, account) = (config.cluster_url.to_string(), options.analysis_account.clone());
    let guard = GuardedReader::new(cluster::client(&config)?, &server, options.allowed_nodes.clone());
    let analyses = Arc::new(Analyses::new(cluster::client(&config)?, guard, account, seconds));
    tasks.spawn_restarted("analysis", move || {
        let analyses = Arc::clone(&analyses);
        while_leading(leadership.clone(), move || run(Arc::clone(&analyses)))
    });
    Ok(())
}
