//! What `/healthz` and `/readyz` say, and the figures that are brought up to date when `/metrics` is read.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, RwLock, Weak};
use std::time::Duration;

use nudge_admission::AdmissionServer;
use nudge_certs::Certificates;
use nudge_cluster::index::Index;
use nudge_core::injection::Features;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::gauges::Gauges;
use super::health::Health;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Watched {
    watch: &'static str,
}

/// What the probes look at.
pub(super) struct Probed {
    pub(super) index: Arc<Index>,
    /// Stopped by somebody else at the end.
    pub(super) admission: Weak<AdmissionServer>,
    pub(super) certificates: Arc<Certificates>,
    /// What the cluster can do, which every pod that opts in waits for.
    pub(super) features: watch::Receiver<Option<Features>>,
    /// Tasks without which a replica is of no use.
    pub(super) vital: Vec<(&'static str, AbortHandle)>,
    /// The longest silence of a watch.
    pub(super) silence: Duration,
    pub(super) stopping: watch::Receiver<bool>,
}

/// The answers of the health endpoint.
pub(super) fn probes(probed: Probed, mut registry: Registry) -> Health {
    let Probed { index, admission, certificates, features, vital, silence, stopping } = probed;
    let ages = Family::<Watched, Gauge<f64, AtomicU64>>::default();
    registry.register("watch_age_seconds", "Time since the API server last confirmed a watch", ages.clone());
    let expiry = Gauge::<i64>::default();
    let help = "When the serving certificate expires, in seconds since 1970";
    registry.register("certificate_expiry_timestamp_seconds", help, expiry.clone());
    let gauges = Gauges::default();
    gauges.register(&mut registry);
    let shown = Arc::clone(&index);
    Health {
        live: Box::new(move || {
            let ended = vital.iter().find(|(_, task)| task.is_finished()).map(|(what, _)| *what);
            let ended =
                ended.or_else(|| admission.upgrade().is_some_and(|server| !server.is_running()).then_some("admission"));
            ended.map_or(Ok(()), |what| Err(format!("{what} ended, which is a bug")))
        }),
        ready: Box::new(move || {
            if *stopping.borrow() {
                return Err("ending".to_owned());
            }
            if features.borrow().is_none() {
                return Err("the versions of the API server and the nodes are not known yet".to_owned());
            }
            match index.silent(silence) {
                None => Ok(()),
                Some((what, None)) => Err(format!("{what} are not listed yet")),
                Some((what, Some(age))) => {
                    Err(format!("the watch of {what} was last confirmed {} s ago", age.as_secs()))
                }
            }
        }),
        refresh: Box::new(move || {
            gauges.show(&shown);
            expiry.set(certificates.expires().unix_timestamp());
            for (watch, age) in shown.ages() {
                ages.get_or_create(&Watched { watch }).set(age.map_or(-1.0, |age| age.as_secs_f64()));
            }
        }),
        registry: RwLock::new(registry),
    }
}
