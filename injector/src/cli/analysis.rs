//! The numbers that versions are judged by, which only the leader of their lease asks for.

use std::sync::Arc;
use std::time::Duration;

use kube::Config;
use nudge_analysis::{Analyses, run};
use nudge_cluster::guarded::GuardedReader;
use nudge_cluster::lease::Lease;

use super::cluster;
use super::controllers::while_leading;
use super::options::Options;
use super::plane::ServeError;
use crate::supervise::{Stage, Tasks};

/// How much longer than a watch lasts a connection may be silent.
const GRACE: Duration = Duration::from_secs(15);

/// Starts the role analysis. It knows nothing of what the others know.
pub(super) fn start(config: &Config, options: &Options, tasks: &mut Tasks) -> Result<(), ServeError> {
    let lease = Lease::new(cluster::client(config)?, options.analysis_lease.clone());
    let leadership = lease.leadership();
    tasks.spawn_until(Stage::HandOver, "lease of the analysis", |stopping| lease.run(stopping));
    let seconds = options.watch.seconds;
    // A watch whose server is gone ends with its silence.
    let mut config = config.clone();
    config.read_timeout = Some(Duration::from_secs(seconds.into()) + GRACE);
    let (server, account) = (config.cluster_url.to_string(), options.analysis_account.clone());
    let guard = GuardedReader::new(cluster::client(&config)?, &server, options.lent.clone());
    let analyses = Arc::new(Analyses::new(cluster::client(&config)?, guard, account, seconds));
    tasks.spawn_restarted("analysis", move || {
        let analyses = Arc::clone(&analyses);
        while_leading(leadership.clone(), move || run(Arc::clone(&analyses)))
    });
    Ok(())
}
