//! The features, kept up to date: they are read at the start and every few minutes. The last ones stay while the API
//! server is unavailable.

use std::time::Duration;

use kube::Client;
use nudge_core::features::{Minor, Overrides, supported_features};
use nudge_core::injection::Features;
use nudge_protocol::backoff::Backoff;
use nudge_protocol::error_chain::chain;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tokio::time::sleep;

use super::node_versions::{VersionsError, read_kubelet_versions, read_server_version};
use crate::jitter::with_jitter;

/// The time between two reads of versions. An upgrade of a cluster takes hours.
const READ_INTERVAL: Duration = Duration::from_mins(5);
/// The waits after failures, before anything is known.
const READ_BACKOFF: Backoff = Backoff { first: Duration::from_millis(250), longest: Duration::from_secs(15) };

/// An info metric: its labels show which features are in use, each `true` or `false`.
#[derive(Clone, Debug, Default)]
pub struct FeatureMetrics(Family<FeatureLabels, Gauge>);

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FeatureLabels {
    native_sidecars: &'static str,
    env_files: &'static str,
    restart_in_place: &'static str,
    ipv6: &'static str,
}

impl FeatureMetrics {
    /// Registers the metric.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("features", "1, with the features that injection uses as labels", self.0.clone());
    }

    fn set(&self, features: Features) {
        let label = |on| if on { "true" } else { "false" };
        self.0.clear();
        let labels = FeatureLabels {
            native_sidecars: label(features.native_sidecars),
            env_files: label(features.env_files),
            restart_in_place: label(features.restart_in_place),
            ipv6: label(features.ipv6),
        };
        self.0.get_or_create(&labels).set(1);
    }
}

/// Keeps the features in `known`, without end. It holds `None` until they are read for the first time.
pub async fn keep_features(
    client: Client,
    overrides: Overrides,
    metrics: FeatureMetrics,
    known: watch::Sender<Option<Features>>,
) {
    let mut failures = 0;
    loop {
        match read_versions(&client, &overrides).await {
            Ok((server, kubelets)) => {
                let features = supported_features(server, kubelets.iter().copied(), &overrides);
                let before = known.send_replace(Some(features));
                if before != Some(features) {
                    let oldest = kubelets.iter().min().map(Minor::to_string);
                    tracing::info!(
                        server = %server,
                        oldest_kubelet = overrides.kubelet.map(|minor| minor.to_string()).or(oldest),
                        native_sidecars = features.native_sidecars,
                        env_files = features.env_files,
                        restart_in_place = features.restart_in_place,
                        ipv6 = features.ipv6,
                        "features for injection changed"
                    );
                    metrics.set(features);
                }
                failures = 0;
            }
            Err(error) => {
                if failures == 0 {
                    let error = chain(&error);
                    tracing::warn!(error, "versions of the cluster not read; keeping the known features");
                }
                failures += 1;
            }
        }
        if known.borrow().is_some() {
            sleep(with_jitter(READ_INTERVAL)).await;
        } else {
            sleep(READ_BACKOFF.jittered_wait(failures, rand::random())).await;
        }
    }
}

async fn read_versions(client: &Client, overrides: &Overrides) -> Result<(Minor, Vec<Minor>), VersionsError> {
    let server = read_server_version(client).await?;
    // With the setting, nodes are not listed, so the right to list them may be removed.
    let kubelets = if overrides.kubelet.is_some() { Vec::new() } else { read_kubelet_versions(client).await? };
    Ok((server, kubelets))
}
