//! Wires the agent's parts: the same for every source, in local mode and in pods.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use nudge_protocol::ContainerName;
use nudge_server::tls::server_config;
use rustls::sign::SingleCertAndKey;
use time::OffsetDateTime;
use tokio::sync::watch;

use crate::check::{Check, Checks};
use crate::content::EtagKey;
use crate::identity::{AuthorityError, Identity, serving_addresses};
use crate::metrics::Metrics;
use crate::notify::{
    Scope, Taken, TargetPolicy, WebhookError, WebhookUrl, WebhookUrlError, Webhooks, notify_by_signal,
};
use crate::pipeline::Outlets;
use crate::publish::Current;
use crate::serve::{App, Bindings, Connections, Endpoint, Limits, OwnAddresses, serve};
use crate::status::{Container, StatusPage};
use crate::tasks::Tasks;

/// What differs from one agent to another.
pub struct Settings {
    /// The source's name, for `/status`.
    pub source: &'static str,
    /// The containers that subscribe.
    pub containers: Vec<Container>,
    /// Webhooks from the start, each with its container.
    pub webhooks: Vec<(WebhookUrl, Container)>,
    /// Where containers are asked whether they take a version.
    pub checks: Vec<(ContainerName, WebhookUrl)>,
    /// What containers were notified of before this process started.
    pub taken: Taken,
    /// Targets of webhooks outside of the pod.
    pub webhook_allow: Vec<SocketAddr>,
    /// The folder for files, if there is one.
    pub mount_path: Option<PathBuf>,
    /// Addresses that clients may call besides those of this host.
    pub addresses: Vec<IpAddr>,
}

/// Why the parts can't be wired.
#[derive(Debug, thiserror::Error)]
pub enum AssemblyError {
    /// The serving certificate.
    #[error("the serving certificate can't be made")]
    Certificate(#[from] AuthorityError),
    /// TLS.
    #[error("TLS can't be set up")]
    Tls(#[from] rustls::Error),
    /// A webhook.
    #[error("the webhook can't be used: {0}")]
    Hook(#[from] WebhookError),
    /// A check.
    #[error("the check of container {container} can't be used: {source}")]
    Check {
        /// Its container.
        container: ContainerName,
        /// What is wrong with its URL.
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
}

impl Assembly {
    /// Wires the parts around where the endpoint listens. The [`Outlets`] are for the pipeline that brings the configuration. Needs a tokio
    /// runtime.
    pub fn new(
        settings: Settings,
        identity: &Identity,
        bindings: Bindings,
        now: OffsetDateTime,
    ) -> Result<(Self, Outlets), AssemblyError> {
        let own = OwnAddresses::of_this_host();
        let address = bindings.first();
        // The address in the endpoint's URL comes first: a certificate holds only so many.
        let called = [address.ip()].into_iter().chain(settings.addresses.iter().copied());
        let addresses: Vec<IpAddr> = called.chain(own.as_slice().iter().copied()).collect();
        let certificate = identity.authority.serving(&serving_addresses(&addresses), now)?;
        let tls = Arc::new(server_config(Arc::new(SingleCertAndKey::from(certificate)))?);

        let (current, current_shown) = watch::channel(None);
        let (ready, ready_shown) = watch::channel(None);
        let limits = Arc::new(Limits::default());
        let metrics = Metrics::default();
        let connections = Connections::new(&limits, metrics.connections());
        let status = StatusPage::new(settings.source, settings.containers.clone(), Instant::now());
        bindings.show(&status);
        let secret = identity.token.secret();
        let etags = EtagKey::new(&secret);
        let policy = TargetPolicy::new(own.as_slice().to_vec(), settings.webhook_allow.clone());
        let check = |(container, url): &(ContainerName, WebhookUrl)| match policy.check(url.clone()) {
            Ok(target) => Ok(Check { container: container.clone(), target }),
            Err(source) => Err(AssemblyError::Check { container: container.clone(), source }),
        };
        let checks = settings.checks.iter().map(check).collect::<Result<_, _>>()?;
        let checks = Checks::new(checks, secret.clone(), settings.mount_path.clone());
        let hooks = Webhooks::new(limits.hooks, secret, policy, ready_shown.clone(), status.clone(), metrics.clone());
        let outlets = Outlets {
            current,
            ready,
            hooks: hooks.clone(),
            connections: connections.clone(),
            status: status.clone(),
            metrics: metrics.clone(),
            etags: etags.clone(),
            checks: checks.clone(),
            mount_path: settings.mount_path.clone(),
        };
        let app = Arc::new(App {
            limits: Arc::clone(&limits),
            token: identity.token.clone(),
            etags,
            current: current_shown,
            ready: ready_shown.clone(),
            candidate: checks.candidate(),
            status,
            hooks,
            metrics: metrics.clone(),
        });
        let endpoint = Endpoint { bindings, status: app.status.clone(), tls, own, limits, connections, metrics };
        Ok((Self { address, endpoint, app, ready: ready_shown, settings }, outlets))
    }

    /// Where clients reach the endpoint.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Begins to serve, and to notify of what changes from now on; each container's processes are found by its scope.
    pub fn run(self, tasks: &mut Tasks, scope: impl Fn(&ContainerName) -> Scope) -> Result<(), AssemblyError> {
        let Self { endpoint, app, mut ready, settings, .. } = self;
        ready.mark_unchanged();
        let etag = ready.borrow().as_ref().map(|ready| ready.dictionary.etag().to_owned()).unwrap_or_default();
        let known = |name: &ContainerName| settings.taken.etags.get(name).cloned();
        for (url, container) in settings.webhooks {
            let known = known(&container.name);
            app.hooks.add_known(url.as_str(), Some(container.name), &etag, known)?;
        }
        let (status, metrics) = (app.status.clone(), app.metrics.clone());
        tasks.spawn(
            "endpoint",
            serve(endpoint, move |connection, request| Arc::clone(&app).answer(connection, request)),
        );
        for Container { name, notify, .. } in settings.containers {
            if let Some(signal) = notify.signal() {
                let (scope, known) = (scope(&name), known(&name));
                let notified =
                    notify_by_signal(name, signal, scope, ready.clone(), known, status.clone(), metrics.clone());
                tasks.spawn("notification by signal", notified);
            }
        }
        Ok(())
    }
}
