//! Starts the sources of configs, which only the leader of their lease fetches.

use std::sync::Arc;

use nudge_cluster::guarded_reader::GuardedReader;
use nudge_git::Mirrors;
use nudge_outbound::system_authorities;
use nudge_sources::{Budget, FetchMetrics, Sources, run};

use super::cluster;
use super::control_plane::ControlPlane;
use super::controllers::while_leading;
use super::serve_error::ServeError;

/// Starts the sources.
pub(super) fn start(plane: &mut ControlPlane) -> Result<(), ServeError> {
    let leadership = plane.lead("lease of the sources", plane.lease(&plane.options.sources_lease));
    let ControlPlane { options, config, index, content_key, registry, tasks, .. } = plane;
    let metrics = FetchMetrics::default();
    metrics.register(registry);
    let seconds = options.watch.seconds;
    let config = cluster::with_read_timeout(config, seconds);
    let sources = Arc::new(Sources {
        client: cluster::client(&config)?,
        content_key: Arc::clone(content_key),
        account: options.sources_account.clone(),
        watch_seconds: seconds,
        guarded: GuardedReader::new(
            cluster::client(&config)?,
            &config.cluster_url.to_string(),
            options.allowed_nodes.clone(),
        ),
        roots: system_authorities(),
        mirrors: Mirrors::new(options.mirrors_folder.clone(), options.max_mirror_bytes),
        metrics,
        budget: Budget::default(),
        rates: Arc::default(),
    });
    let index = Arc::clone(index);
    tasks.spawn_restarted("sources", move || {
        let (sources, index) = (Arc::clone(&sources), Arc::clone(&index));
        while_leading(leadership.clone(), move || run(Arc::clone(&sources), index.enabled_namespaces()))
    });
    Ok(())
}
