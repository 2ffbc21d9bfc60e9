//! The answers of `/healthz` and `/readyz`, and the metrics that are updated when `/metrics` is read.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use nudge_certs::Certificates;
use nudge_cluster::first_contact::Contact;
use nudge_cluster::index::{Index, WatchAge};
use nudge_core::injection::Features;
use parking_lot::RwLock;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::sync::watch;

use super::config_metrics::{ConfigMetrics, Label};
use super::control_plane::NamedRuntime;
use super::health::{Health, Refresh};
use super::namespace_metrics::NamespaceMetrics;
use super::trust_metrics::TrustMetrics;
use crate::task_supervisor::Stopping;

/// The state that the probes check.
pub(super) struct ProbeInputs {
    /// The state of a process that serves agents or the API server.
    pub(super) serving: Option<ServingState>,
    /// The first contact, in a process that waits for it.
    pub(super) contact: Option<watch::Receiver<Contact>>,
    pub(super) stopping: Stopping,
}

/// The state of a process that serves agents or the API server.
pub(super) struct ServingState {
    pub(super) index: Arc<Index>,
    pub(super) certificates: Certificates,
    /// The features of the cluster. Every pod that opts in waits for them, but only the role control needs them.
    pub(super) features: Option<watch::Receiver<Option<Features>>>,
    pub(super) runtimes: Vec<NamedRuntime>,
    /// The maximum silence of a watch in a Ready replica.
    pub(super) max_watch_silence: Duration,
}

impl ServingState {
    fn check_ready(&self) -> Result<(), String> {
        if self.features.as_ref().is_some_and(|features| features.borrow().is_none()) {
            return Err("the versions of the API server and the nodes are not known yet".to_owned());
        }
        match self.index.silent_watch(self.max_watch_silence) {
            None => Ok(()),
            Some(WatchAge { watch, age: None }) => Err(format!("{watch} are not listed yet")),
            Some(WatchAge { watch, age: Some(age) }) => {
                Err(format!("the watch of {watch} was last confirmed {} s ago", age.as_secs()))
            }
        }
    }

    /// Registers the metrics, and returns their update.
    fn register_metrics(self: &Arc<Self>, registry: &mut Registry) -> Refresh {
        let ages = Family::<Label, Gauge<f64, AtomicU64>>::default();
        registry.register("watch_age_seconds", "Time since the API server last confirmed a watch", ages.clone());
        let tasks = Family::<Label, Gauge>::default();
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
        let state = Arc::clone(self);
        Refresh::new(move || {
            if let Some(configs) = &configs {
                configs.update(&state.index);
            }
            expiry.set(state.certificates.expires().unix_timestamp());
            trust.update(&state.certificates, &state.index);
            namespaces.update(&state.index);
            for &NamedRuntime { name, ref handle } in &state.runtimes {
                let count = i64::try_from(handle.metrics().num_alive_tasks()).unwrap_or(i64::MAX);
                tasks.get_or_create(&[("runtime", name)]).set(count);
            }
            for WatchAge { watch, age } in state.index.watch_ages() {
                ages.get_or_create(&[("watch", watch)]).set(age.map_or(-1.0, |age| age.as_secs_f64()));
            }
        })
    }
}

/// Returns the answers of the health endpoint.
pub(super) fn probes(inputs: ProbeInputs, mut registry: Registry) -> Health {
    let ProbeInputs { serving, contact, stopping } = inputs;
    let serving = serving.map(Arc::new);
    let refresh = match &serving {
        Some(state) => state.register_metrics(&mut registry),
        None => Refresh::new(|| ()),
    };
    Health {
        // When a task ends, the process ends, too. A process that answers is therefore alive.
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
            serving.as_ref().map_or(Ok(()), |state| state.check_ready())
        }),
        refresh,
        registry: RwLock::new(registry),
    }
}
