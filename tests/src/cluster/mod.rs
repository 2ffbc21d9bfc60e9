//! A real Kubernetes API server for tests: etcd, kube-apiserver with RBAC, and some of kube-controller-manager, on free
//! ports of 127.0.0.1, with certificates of their own. No node: pods are objects that nobody runs (see
//! [`TestNamespace`]).
//!
//! Starting one takes seconds, so the tests of one program share [`Cluster::shared`], each in a namespace of its own.
//! Those that stop, freeze or restart a server start their own: the methods for that need `&mut`. With Nudge's objects
//! in it, [`Cluster::installed`] is what starts fastest. Nothing outlives the test process, even if it is killed.
//!
//! Admission webhooks on this machine are reached by `clientConfig.url: https://127.0.0.1:PORT/PATH`, with a
//! certificate of any [`Authority`] in `caBundle`.

pub mod analysis;
pub mod assigned;
mod audit;
pub mod authority;
pub mod binaries;
mod etcd;
mod faults;
pub mod installation;
mod kubeconfig;
pub mod options;
pub mod pair;
mod part;
mod reaper;
pub mod refusing_webhook;
pub mod replica;
pub mod servers;
pub mod sources;
pub mod space;
mod start;
mod template;
pub mod tokens;
mod version;
pub mod wire;

use std::fs;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use rcgen::KeyPair;
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::OnceCell;

use self::etcd::Etcd;
use self::part::Part;
use self::reaper::Reaper;
use self::servers::Files;
use crate::{Finished, eventually, tools};

pub use self::authority::{Authority, Certified};
pub use self::binaries::Binaries;
pub use self::kubeconfig::Identity;
pub use self::options::Options;
pub use self::space::TestNamespace;
pub use self::version::Version;
pub use self::wire::Wire;

/// How long something may take that should be there at once.
const WAIT_TIMEOUT: Duration = Duration::from_secs(30);

/// A running cluster; all of it is gone when it is dropped.
pub struct Cluster {
    // Dropped in this order: who uses a server ends before it, and the guard goes when there is nothing left to guard.
    controller_manager: Option<Part>,
    apiserver: Part,
    etcd: Etcd,
    home: TempDir,
    reaper: Reaper,
    authority: Arc<Authority>,
    admin: Certified,
    tokens: Arc<KeyPair>,
    files: Files,
    kubectl: Option<PathBuf>,
    controllers: Vec<String>,
    port: u16,
    version: Version,
}

impl Cluster {
    /// Returns the cluster that the tests of this process share, started by the first of them. `None` where a program
    /// is missing and so the test is to be skipped.
    pub async fn shared() -> Result<Option<&'static Self>> {
        static SHARED: OnceCell<Option<Cluster>> = OnceCell::const_new();
        Ok(SHARED.get_or_try_init(async || Self::start(&Options::default()).await).await?.as_ref())
    }

    /// Starts one, and returns when it is ready. `None` where a program is missing and so the test is to be skipped.
    pub async fn start(options: &Options) -> Result<Option<Self>> {
        match Binaries::find()? {
            Some(binaries) => start::start(&binaries, options, None).await.map(Some),
            None => Ok(None),
        }
    }

    /// Returns the same as [`Cluster::start`] and [`Installation::apply`](installation::Installation::apply), in less
    /// time: begins with a copy of the data of a cluster that was made once. All such clusters of a process have the
    /// same authority, the same keys of tokens, and the same uids of what they began with.
    pub async fn installed(options: &Options) -> Result<Option<Self>> {
        template::copy(options).await
    }

    /// Returns the server's version.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Returns whether the server is at least 1.`minor`, which `what` needs; if not, the reason for skipping is
    /// printed.
    pub fn has(&self, minor: u32, what: &str) -> bool {
        let enough = self.version >= Version { major: 1, minor };
        if !enough {
            tools::skipped(&format!("{what} needs Kubernetes 1.{minor}, and the server is {}", self.version));
        }
        enough
    }

    /// Returns whether this controller runs; it does not if there is no kube-controller-manager.
    pub fn controls(&self, controller: &str) -> bool {
        self.controllers.iter().any(|name| name == controller)
    }

    /// Returns where the API server is, such as `https://127.0.0.1:20443`.
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// Returns its address.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// Returns where etcd is: it answers its API in JSON, to everyone.
    pub fn etcd(&self) -> SocketAddr {
        self.etcd.address()
    }

    /// Returns the authority of the API server's certificate and of its clients'.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Returns a folder that goes with the cluster.
    pub fn folder(&self) -> &Path {
        self.home.path()
    }

    /// Returns the kubeconfig file of an administrator, who may do everything.
    pub fn kubeconfig(&self) -> PathBuf {
        self.home.path().join("admin.kubeconfig")
    }

    /// Returns the text of a kubeconfig for anyone.
    pub fn kubeconfig_of(&self, identity: &Identity<'_>) -> String {
        kubeconfig::text(&self.url(), &self.authority.certificate(), identity)
    }

    /// Returns a way to the API server that can be cut or held.
    pub async fn wire(&self) -> Result<Wire> {
        Wire::to(self.port).await
    }

    /// Returns the text of a kubeconfig for anyone who takes that way.
    pub fn kubeconfig_by(&self, wire: &Wire, identity: &Identity<'_>) -> String {
        self.kubeconfig_at(&wire.url(), identity)
    }

    /// Returns the text of a kubeconfig for anyone who takes another way to the API server.
    pub fn kubeconfig_at(&self, url: &str, identity: &Identity<'_>) -> String {
        kubeconfig::text(url, &self.authority.certificate(), identity)
    }

    /// Returns a user with groups; `system:authenticated` comes by itself. The API server sees nobody else, only its
    /// audit log does.
    pub fn user<'a>(&'a self, user: &'a str, groups: &'a [&'a str]) -> Identity<'a> {
        Identity::Impersonated { certificate: &self.admin, user, groups }
    }

    /// Returns an administrator, who may do everything.
    pub fn administrator(&self) -> Identity<'_> {
        Identity::Certificate(&self.admin)
    }

    /// Returns a client for an administrator. It belongs to the runtime of the test that asks, so it can't be shared.
    pub async fn admin(&self) -> Result<Client> {
        self.client(&self.administrator()).await
    }

    /// Returns a client for anyone.
    pub async fn client(&self, identity: &Identity<'_>) -> Result<Client> {
        client(&self.kubeconfig_of(identity)).await
    }

    /// Returns a new namespace, with a name that begins with `purpose`.
    pub async fn space(&self, purpose: &str) -> Result<TestNamespace> {
        self.space_with(purpose, &[]).await
    }

    /// Returns a new namespace with labels.
    pub async fn space_with(&self, purpose: &str, labels: &[(&str, &str)]) -> Result<TestNamespace> {
        let space = TestNamespace::create(self.admin().await?, purpose, labels).await?;
        if self.controls("serviceaccount") {
            space.wait_for_default_account().await?;
        }
        Ok(space)
    }

    /// Returns the program kubectl, if there is one.
    pub fn kubectl_program(&self) -> Option<&Path> {
        self.kubectl.as_deref()
    }

    /// Runs kubectl as an administrator. `None` if there is none, and the test is to be skipped.
    pub async fn kubectl(&self, arguments: &[&str]) -> Result<Option<Finished>> {
        let Some(kubectl) = &self.kubectl else {
            tools::missing("kubectl")?;
            return Ok(None);
        };
        let mut command = Command::new(kubectl);
        command.arg("--kubeconfig").arg(self.kubeconfig());
        command.arg("--cache-dir").arg(self.home.path().join("kubectl-cache")).args(arguments);
        // A webhook that it waits for may be served by the very thread that asks.
        Ok(Some(tokio::task::spawn_blocking(move || Finished::of(&mut command)).await??))
    }

    /// Runs kubectl on a manifest, as in `apply`, and takes anything but success for an error.
    pub async fn kubectl_on(&self, arguments: &[&str], manifest: &str) -> Result<Option<String>> {
        let file = tempfile::Builder::new().suffix(".yaml").tempfile_in(self.home.path())?;
        fs::write(file.path(), manifest)?;
        let path = file.path().to_str().context("the path is not UTF-8")?;
        let Some(mut finished) = self.kubectl(&[arguments, &["-f", path]].concat()).await? else { return Ok(None) };
        if finished.code != Some(0) && finished.stderr.contains("unable to handle the request; if you choose to ignore")
        {
            // Some builds of the server can't give their OpenAPI document, without which kubectl checks nothing.
            let unchecked = [arguments, &["--validate=false", "-f", path]].concat();
            let Some(again) = self.kubectl(&unchecked).await? else { return Ok(None) };
            finished = again;
        }
        ensure!(finished.code == Some(0), "kubectl {arguments:?} failed: {}", finished.stderr);
        Ok(Some(finished.stdout))
    }

    /// Returns a token with other claims but a valid signature, such as one that has expired.
    pub fn sign_again(&self, token: &str, edit: impl FnOnce(&mut Value)) -> Result<String> {
        tokens::signed_again(&self.tokens, token, edit)
    }

    /// Returns the audit events so far whose text has `part`, such as the name of a namespace: metadata of every
    /// answered request.
    pub fn audit(&self, part: &str) -> Result<Vec<Value>> {
        audit::read(&self.files.audit, part)
    }

    /// Waits until an audit event whose text has `part` is as expected, and gives it.
    pub async fn audited(&self, what: &str, part: &str, expected: impl Fn(&Value) -> bool) -> Result<Value> {
        let search = async || match self.audit(part) {
            Ok(events) => events.into_iter().find(|event| expected(event)).map(Ok),
            Err(error) => Some(Err(error)),
        };
        eventually(WAIT_TIMEOUT, what, search).await?
    }

    /// Returns the log of `etcd`, `kube-apiserver` or `kube-controller-manager`.
    pub fn log(&self, part: &str) -> String {
        let text = fs::read(self.home.path().join(format!("{part}.log")));
        text.map(|text| String::from_utf8_lossy(&text).into_owned()).unwrap_or_default()
    }

    /// Makes the process of `command` end with the cluster, even if the test process is killed.
    pub fn guard(&self, command: &mut Command) {
        command.process_group(self.group());
    }

    /// Returns the process group that ends with the cluster.
    pub fn group(&self) -> i32 {
        self.reaper.group()
    }

    /// Returns the process ids of all servers.
    pub fn pids(&self) -> Vec<i32> {
        let parts = [Some(&self.etcd.part), Some(&self.apiserver), self.controller_manager.as_ref()];
        parts.into_iter().flatten().filter_map(Part::pid).collect()
    }
}

/// Returns the client that a kubeconfig describes.
pub async fn client(kubeconfig: &str) -> Result<Client> {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}
