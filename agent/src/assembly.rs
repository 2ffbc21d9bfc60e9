//! Wires the agent's parts: the same for every source, in local mode and in pods.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use nudge_protocol::ContainerName;
use nudge_protocol::volumes::KeptVolume;
use nudge_server::tls::server_config;
use rustls::sign::SingleCertAndKey;
use time::OffsetDateTime;
use tokio::sync::watch;

use crate::check::{Check, Checks};
use crate::content::EtagKey;
use crate::files::volume_files::FileFolders;
use crate::identity::{AuthorityError, Identity, serving_addresses};
use crate::metrics::Metrics;
use crate::notify::{
    NotifiedEtags, NotifyScope, SignalledContainer, TargetPolicy, Verifier, WebhookError, WebhookUrl, WebhookUrlError,
    Webhooks, notify_by_signal,
};
use crate::pipeline::Outlets;
use crate::publish::Current;
use crate::serve::{App, Bindings, Connections, Endpoint, Limits, OwnAddresses, serve};
use crate::status::{Container, StatusPage};
use crate::tasks::Tasks;

/// The settings of an agent.
pub struct Settings {
    /// The source's name, for `/status`.
    pub source: &'static str,
    /// The containers that subscribe.
    pub containers: Vec<Container>,
    /// The webhooks that exist from the start, each with its container.
    pub webhooks: Vec<(WebhookUrl, Container)>,
    /// The URLs that ask containers whether they take a version.
    pub checks: Vec<(ContainerName, WebhookUrl)>,
    /// The dictionaries that containers were notified of before this process started.
    pub notified: NotifiedEtags,
    /// The allowed targets of webhooks outside of the pod.
    pub webhook_allow: Vec<SocketAddr>,
    /// The folder for files.
    pub mount_path: Option<PathBuf>,
    /// The volumes that are kept in place of the pod's own.
    pub volumes: Vec<KeptVolume>,
    /// The addresses that clients may call besides those of this host.
    pub addresses: Vec<IpAddr>,
}

/// The reason why the parts can't be wired.
#[derive(Debug, thiserror::Error)]
pub enum AssemblyError {
    /// The serving certificate can't be made.
    #[error("the serving certificate can't be made")]
    Certificate(#[from] AuthorityError),
    /// TLS can't be set up.
    #[error("TLS can't be set up")]
    Tls(#[from] rustls::Error),
    /// A webhook can't be used.
    #[error("the webhook can't be used: {0}")]
    Hook(#[from] WebhookError),
    /// A check can't be used.
    #[error("the check of container {container} can't be used: {source}")]
    Check {
        /// The container of the check.
        container: ContainerName,
        /// The fault of the URL.
        source: WebhookUrlError,
    },
    /// What a container must show can't be read.
    #[error("what container {container} must show after a notification can't be read: {source}")]
    Verify {
        /// The container whose annotation can't be read.
        container: ContainerName,
        /// The fault of the URL.
        source: WebhookUrlError,
    },
}

/// The wired parts before they run.
pub struct Assembly {
    address: SocketAddr,
    endpoint: Endpoint,
    app: Arc<App>,
    ready: Current,
    settings: Settings,
    verifiers: BTreeMap<ContainerName, Verifier>,
}

impl Assembly {
    /// Wires the parts of an endpoint that listens at `bindings`. The [`Outlets`] are for the pipeline that brings the
    /// configuration. Needs a tokio runtime.
    pub fn new(
        settings: Settings,
        identity: &Identity,
        bindings: Bindings,
        now: OffsetDateTime,
    ) -> Result<(Self, Outlets), AssemblyError> {
        let own_addresses = OwnAddresses::read();
        let address = bindings.first();
        // The address in the endpoint's URL comes first, since the number of addresses in a certificate is limited.
        let endpoints = [address.ip()].into_iter().chain(settings.addresses.iter().copied());
        let addresses: Vec<IpAddr> = endpoints.chain(own_addresses.as_slice().iter().copied()).collect();
        let certificate = identity.authority.make_serving_certificate(&serving_addresses(&addresses), now)?;
        let tls = Arc::new(server_config(Arc::new(SingleCertAndKey::from(certificate)))?);

        let (current, current_receiver) = watch::channel(None);
        let (ready, ready_receiver) = watch::channel(None);
        let limits = Arc::new(Limits::default());
        let metrics = Metrics::default();
        let connections = Connections::new(&limits, metrics.connections());
        let status = StatusPage::new(settings.source, settings.containers.clone(), Instant::now());
        bindings.show_faults(&status);
        let secret = identity.token.secret();
        let etags = EtagKey::new(&secret);
        let policy = TargetPolicy::new(own_addresses.as_slice().to_vec(), settings.webhook_allow.clone());
        let check = |(container, url): &(ContainerName, WebhookUrl)| match policy.check(url.clone()) {
            Ok(target) => Ok(Check { container: container.clone(), target }),
            Err(source) => Err(AssemblyError::Check { container: container.clone(), source }),
        };
        let checks = settings.checks.iter().map(check).collect::<Result<_, _>>()?;
        let mut verifiers = BTreeMap::new();
        for Container { name, verify, .. } in &settings.containers {
            let Some(expectation) = verify else { continue };
            let fault = |source| AssemblyError::Verify { container: name.clone(), source };
            verifiers.insert(name.clone(), Verifier::new(name.clone(), expectation, &policy).map_err(fault)?);
        }
        let checks = Checks::new(checks, secret.clone(), settings.mount_path.clone());
        let hooks =
            Webhooks::new(limits.hooks, secret, policy, ready_receiver.clone(), status.clone(), metrics.clone());
        let outlets = Outlets {
            current,
            ready,
            hooks: hooks.clone(),
            connections: connections.clone(),
            status: status.clone(),
            metrics: metrics.clone(),
            etags: etags.clone(),
            checks: checks.clone(),
            folders: FileFolders::new(settings.mount_path.clone(), settings.volumes.clone()),
        };
        let app = Arc::new(App {
            limits: Arc::clone(&limits),
            token: identity.token.clone(),
            etags,
            current: current_receiver,
            ready: ready_receiver.clone(),
            candidate: checks.candidate(),
            status,
            hooks,
            metrics: metrics.clone(),
        });
        let endpoint =
            Endpoint { bindings, status: app.status.clone(), tls, own_addresses, limits, connections, metrics };
        Ok((Self { address, endpoint, app, ready: ready_receiver, settings, verifiers }, outlets))
    }

    /// Returns the endpoint's address for clients.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Starts to serve, and to notify of later changes; each container's processes are found by its scope.
    pub fn run(self, tasks: &mut Tasks, scope: impl Fn(&ContainerName) -> NotifyScope) -> Result<(), AssemblyError> {
        let Self { endpoint, app, mut ready, settings, verifiers, .. } = self;
        ready.mark_unchanged();
        let etag = ready.borrow().as_ref().map(|ready| ready.dictionary.etag().to_owned()).unwrap_or_default();
        let find_known_etag = |name: &ContainerName| settings.notified.etags.get(name).cloned();
        for (url, container) in settings.webhooks {
            let known_etag = find_known_etag(&container.name);
            let verifier = verifiers.get(&container.name).cloned();
            app.hooks.add(url.as_str(), Some(container.name), &etag, known_etag, verifier)?;
        }
        let (status, metrics) = (app.status.clone(), app.metrics.clone());
        tasks.spawn(
            "endpoint",
            serve(endpoint, move |connection, request| Arc::clone(&app).answer(connection, request)),
        );
        for Container { name, notify, .. } in settings.containers {
            if let Some(signal) = notify.signal() {
                let (scope, known_etag) = (scope(&name), find_known_etag(&name));
                let verifier = verifiers.get(&name).cloned();
                let container = SignalledContainer { name, signal, scope, known_etag, verifier };
                let task = notify_by_signal(container, ready.clone(), status.clone(), metrics.clone());
                tasks.spawn("notification by signal", task);
            }
        }
        Ok(())
    }
}
