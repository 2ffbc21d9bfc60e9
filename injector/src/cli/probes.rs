//! What `/healthz` and `/readyz` answer, and the metrics that are brought up to date when `/metrics` is read.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use nudge_certs::Certificates;
use nudge_cluster::index::Index;
use nudge_core::injection::Features;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::sync::watch;

use super::config_metrics::ConfigMetrics;
use super::health::Health;
use super::namespace_metrics::NamespaceMetrics;
use super::trust_metrics::TrustMetrics;
use crate::supervise::Stopping;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WatchLabel {
    watch: &'static str,
}

/// What the probes look at.
pub(super) struct Probed {
    pub(super) index: Arc<Index>,
    pub(super) certificates: Certificates,
    /// What the cluster can do, for which every pod that opts in waits.
    pub(super) features: watch::Receiver<Option<Features>>,
    /// The longest silence of a watch in a replica that is ready.
    pub(super) stale: Duration,
    pub(super) stopping: Stopping,
}

/// The answers of the health endpoint.
pub(super) fn probes(probed: Probed, mut registry: Registry) -> Health {
    let Probed { index, certificates, features, stale, stopping } = probed;
    let ages = Family::<WatchLabel, Gauge<f64, AtomicU64>>::default();
    registry.register("watch_age_seconds", "Time since the API server last confirmed a watch", ages.clone());
    let namespaces = NamespaceMetrics::default();
    namespaces.register(&mut registry);
    let expiry = Gauge::<i64>::default();
    let help = "Expiry of the serving certificate, in seconds since 1970";
    registry.register("certificate_expiry_timestamp_seconds", help, expiry.clone());
    let (configs, trust) = (ConfigMetrics::default(), TrustMetrics::default());
    configs.register(&mut registry);
    trust.register(&mut registry);
    let counted = Arc::clone(&index);
    Health {
        // A task that ends takes the process with it, so one that answers is alive.
        live: Box::new(|| Ok(())),
        ready: Box::new(move || {
            if *stopping.borrow() {
                return Err("the replica is shutting down".to_owned());
            }
            if features.borrow().is_none() {
                return Err("the versions of the API server and the nodes are not known yet".to_owned());
            }
            match index.silent(stale) {
                None => Ok(()),
                Some((what, None)) => Err(format!("{what} are not listed yet")),
                Some((what, Some(age))) => {
                    Err(format!("the watch of {what} was last confirmed {} s ago", age.as_secs()))
                }
            }
        }),
        refresh: Box::new(move || {
            configs.update(&counted);
            namespaces.update(&counted);
            expiry.set(certificates.expires().unix_timestamp());
            trust.update(&certificates, &counted);
            for (watch, age) in counted.ages() {
                ages.get_or_create(&WatchLabel { watch }).set(age.map_or(-1.0, |age| age.as_secs_f64()));
            }
        }),
        registry: RwLock::new(registry),
    }
}
