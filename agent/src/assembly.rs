//! The agent's parts, wired to each other: the same for every source and for local mode and pods.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use nudge_protocol::ContainerName;
use time::OffsetDateTime;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::content::EtagKey;
use crate::identity::{AuthorityError, Identity, serving_addresses};
use crate::memory::Trimmer;
use crate::notify::{Scope, Taken, TargetPolicy, WebhookError, WebhookUrl, Webhooks, notify_by_signal};
use crate::pipeline::Outlets;
use crate::publish::Current;
use crate::serve::{App, Connections, Endpoint, Limits, Metrics, OwnAddresses, serve, tls_config};
use crate::status::{Container, StatusPage};
use crate::tasks::Tasks;

/// What differs from one agent to another.
pub struct Settings {
    /// The source's name, for `/status`.
    pub source: &'static str,
    /// The containers that want to be told.
    pub containers: Vec<Container>,
    /// Webhooks that are there from the start, with the container that each is for.
    pub webhooks: Vec<(WebhookUrl, Container)>,
    /// What containers were told before this process began.
    pub taken: Taken,
    /// Targets of webhooks outside of the pod.
    pub webhook_allow: Vec<SocketAddr>,
    /// The folder for files, where they are wanted.
    pub mount_path: Option<PathBuf>,
    /// Addresses that clients may call besides those that this host shows.
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
    /// The socket.
    #[error("the endpoint's own address is not known")]
    Address(#[from] io::Error),
    /// A webhook.
    #[error("the webhook can't be taken: {0}")]
    Hook(#[from] WebhookError),
}

/// The wired parts, not running yet.
pub struct Assembly {
    address: SocketAddr,
    endpoint: Endpoint,
    app: Arc<App>,
    ready: Current,
    settings: Settings,
}

impl Assembly {
    /// Wires the parts around `listener`. The [`Outlets`] are for the pipeline that brings the configuration. Needs a tokio
    /// runtime.
    pub fn new(
        settings: Settings,
        identity: &Identity,
        listener: TcpListener,
        now: OffsetDateTime,
    ) -> Result<(Self, Outlets), AssemblyError> {
        let own = OwnAddresses::of_this_host();
        let address = listener.local_addr()?;
        // The address that clients are told comes first, should there be more than fit into a certificate.
        let called = [address.ip()].into_iter().chain(settings.addresses.iter().copied());
        let addresses: Vec<IpAddr> = called.chain(own.as_slice().iter().copied()).collect();
        let tls = tls_config(identity.authority.serving(&serving_addresses(&addresses), now)?)?;

        let (current, current_shown) = watch::channel(None);
        let (ready, ready_shown) = watch::channel(None);
        let limits = Arc::new(Limits::default());
        let connections = Connections::new(Arc::clone(&limits));
        let metrics = Metrics::default();
        let status = StatusPage::new(settings.source, settings.containers.clone(), Instant::now());
        let secret = identity.token.secret();
        let etags = EtagKey::new(&secret);
        let policy = TargetPolicy::new(own.as_slice().to_vec(), settings.webhook_allow.clone());
        let hooks = Webhooks::new(limits.hooks, secret, policy, ready_shown.clone(), status.clone(), metrics.clone());
        let outlets = Outlets {
            current,
            ready,
            hooks: hooks.clone(),
            connections: connections.clone(),
            status: status.clone(),
            metrics: metrics.clone(),
            etags: etags.clone(),
            mount_path: settings.mount_path.clone(),
        };
        let app = Arc::new(App {
            limits: Arc::clone(&limits),
            token: identity.token.clone(),
            etags,
            current: current_shown,
            status,
            hooks,
            metrics: metrics.clone(),
        });
        let endpoint = Endpoint { listener, tls, own, limits, connections, metrics, trimmer: Trimmer::default() };
        Ok((Self { address, endpoint, app, ready: ready_shown, settings }, outlets))
    }

    /// Where the endpoint listens.
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
