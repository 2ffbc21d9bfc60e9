//! What `/healthz` and `/readyz` answer, and the metrics that are brought up to date when `/metrics` is read.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use nudge_certs::Certificates;
use nudge_cluster::first_contact::Contact;
use nudge_cluster::index::{Index, WatchAge};
use nudge_core::injection::Features;
use parking_lot::RwLock;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::config_metrics::ConfigMetrics;
use super::health::{Health, Refresh};
use super::namespace_metrics::NamespaceMetrics;
use super::trust_metrics::TrustMetrics;
use crate::supervise::Stopping;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WatchLabel {
    watch: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RuntimeLabel {
    runtime: &'static str,
}

/// What the probes look at.
pub(super) struct Probed {
    /// What is known of the cluster, in a process that serves others.
    pub(super) known: Option<ProbeInputs>,
    /// The first contact, in a process that waits for it.
    pub(super) contact: Option<watch::Receiver<Contact>>,
    pub(super) stopping: Stopping,
}

/// What those that serve others know.
pub(super) struct ProbeInputs {
    pub(super) index: Arc<Index>,
    pub(super) certificates: Certificates,
    /// What the cluster can do, for which every pod that opts in waits. Only the role control needs it.
    pub(super) features: Option<watch::Receiver<Option<Features>>>,
    /// Where tasks run, by name.
    pub(super) runtimes: Vec<(&'static str, Handle)>,
    /// The longest silence of a watch in a replica that is ready.
    pub(super) stale: Duration,
}

impl ProbeInputs {
    fn ready(&self) -> Result<(), String> {
        if self.features.as_ref().is_some_and(|features| features.borrow().is_none()) {
            return Err("the versions of the API server and the nodes are not known yet".to_owned());
        }
        match self.index.silent_watch(self.stale) {
            None => Ok(()),
            Some(WatchAge { watch, age: None }) => Err(format!("{watch} are not listed yet")),
            Some(WatchAge { watch, age: Some(age) }) => {
                Err(format!("the watch of {watch} was last confirmed {} s ago", age.as_secs()))
            }
        }
    }

    /// Registers the metrics, and gives what brings them up to date.
    fn metrics(self: &Arc<Self>, registry: &mut Registry) -> Refresh {
        let ages = Family::<WatchLabel, Gauge<f64, AtomicU64>>::default();
        registry.register("watch_age_seconds", "Time since the API server last confirmed a watch", ages.clone());
        let tasks = Family::<RuntimeLabel, Gauge>::default();
        registry.register("tasks", "Tasks of a runtime of the process that have not ended", tasks.clone());
        let expiry = Gauge::<i64>::default();
        let help = "Expiry of the serving certificate, in seconds since 1970";
        registry.register("certificate_expiry_timestamp_seconds", help, expiry.clone());
        let configs = self.features.is_some().then(ConfigMetrics::default);
        if let Some(configs) = &configs {
            configs.register(registry);
        }
        let (trust, namespaces) = (TrustMetrics::default(), NamespaceMetrics::default());
        trust.register(registry);
        namespaces.register(registry);
        let known = Arc::clone(self);
        Refresh::new(move || {
            if let Some(configs) = &configs {
                configs.update(&known.index);
            }
            expiry.set(known.certificates.expires().unix_timestamp());
            trust.update(&known.certificates, &known.index);
            namespaces.update(&known.index);
            for &(runtime, ref handle) in &known.runtimes {
                let count = i64::try_from(handle.metrics().num_alive_tasks()).unwrap_or(i64::MAX);
                tasks.get_or_create(&RuntimeLabel { runtime }).set(count);
            }
            for WatchAge { watch, age } in known.index.watch_ages() {
                ages.get_or_create(&WatchLabel { watch }).set(age.map_or(-1.0, |age| age.as_secs_f64()));
            }
        })
    }
}

/// The answers of the health endpoint.
pub(super) fn probes(probed: Probed, mut registry: Registry) -> Health {
    let Probed { known, contact, stopping } = probed;
    let known = known.map(Arc::new);
    let refresh = match &known {
        Some(known) => known.metrics(&mut registry),
        None => Refresh::new(|| ()),
    };
    Health {
        // A task that ends takes the process with it, so one that answers is alive.
        live: Box::new(|| Ok(())),
        ready: Box::new(move || {
            if *stopping.borrow() {
                return Err("the replica is shutting down".to_owned());
            }
            if let Some(cause) =
                contact.as_ref().and_then(|contact| contact.borrow().missing_cause().map(str::to_owned))
            {
                return Err(format!("the API server does not ask and trust the webhooks yet: {cause}"));
            }
            known.as_ref().map_or(Ok(()), |known| known.ready())
        }),
        refresh,
        registry: RwLock::new(registry),
    }
}
