//! The control plane: two processes of each role, each with a proxy of its own before the API server, behind the
//! addresses of their Services.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use nudge_tests::cluster::installation::{ACCOUNT, CERTS_ACCOUNT, HUB_ACCOUNT, NAMESPACE};
use nudge_tests::cluster::{Cluster, Identity};
use nudge_tests::{Installation, Replica, ReplicaOptions, eventually, ports};
use tokio::task::AbortHandle;

use crate::proxy::api::ApiProxy;
use crate::proxy::tcp::Service;

/// How long the control plane may take to come up.
const START_TIMEOUT: Duration = Duration::from_mins(2);
/// The duration of a lease, and the longest silence of a watch.
pub(crate) const LEASE_DURATION: Duration = Duration::from_secs(5);
/// How often mounted Secrets are read.
const MOUNT_INTERVAL: Duration = Duration::from_secs(1);
/// The Secrets and their keys that the roles control and hub mount.
const SECRETS: [(&str, &[&str]); 2] =
    [("nudge-serving", &["tls.crt", "tls.key", "ca.crt"]), ("nudge-content-key", &["content", "notes"])];

/// A role of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Control,
    Hub,
    Certs,
}

/// One process of a role, or its settings while it does not run.
pub(crate) struct ControlPlaneProcess {
    pub(crate) name: String,
    pub(crate) role: Role,
    pub(crate) proxy: ApiProxy,
    pub(crate) replica: Option<Replica>,
    kubeconfig: String,
    options: ReplicaOptions,
}

impl ControlPlaneProcess {
    /// Starts the process, and returns at once.
    pub(crate) fn start(&mut self, cluster: &Cluster) -> Result<()> {
        let started = Installation { cluster }.launch(&self.name, &self.kubeconfig, &self.options)?;
        self.replica = Some(started);
        Ok(())
    }

    /// Sets the environment variables with which the process starts the next time.
    pub(crate) fn set_variables(&mut self, variables: Vec<(&'static str, String)>) {
        self.options.variables = variables;
    }

    /// Returns the status of the process, if it has ended by itself.
    pub(crate) fn exit_status(&mut self) -> Result<Option<ExitStatus>> {
        self.replica.as_mut().map_or(Ok(None), |replica| replica.process.try_exited())
    }

    /// Ends the process at once.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.replica.take().map_or(Ok(()), |mut replica| replica.process.kill().map(drop))
    }
}

/// All processes, and the Services before them.
pub(crate) struct ControlPlane {
    pub(crate) processes: Vec<ControlPlaneProcess>,
    pub(crate) hubs: Service,
    pub(crate) webhooks: Service,
    mounts: AbortHandle,
}

impl ControlPlane {
    /// Starts all processes, and waits until they serve.
    pub(crate) async fn start(cluster: &Cluster) -> Result<Self> {
        let installation = Installation { cluster };
        let mounted = cluster.folder().join("mounted");
        fs::create_dir_all(&mounted)?;
        let mut processes = Vec::new();
        for role in [Role::Certs, Role::Hub, Role::Control] {
            for number in 0..2 {
                processes.push(new_process(cluster, role, number, &mounted).await?);
            }
        }
        let addresses_of = |role: Role, address: fn(&ControlPlaneProcess) -> SocketAddr| {
            processes.iter().filter(|process| process.role == role).map(address).collect::<Vec<_>>()
        };
        let hubs = Service::start(addresses_of(Role::Hub, |process| process.addresses().1)).await?;
        let webhooks = Service::start(addresses_of(Role::Control, |process| process.addresses().0)).await?;
        installation.apply_webhooks(webhooks.address()).await?;
        for process in processes.iter_mut().filter(|process| process.role == Role::Certs) {
            process.start(cluster)?;
        }
        let secrets: Api<Secret> = Api::namespaced(cluster.admin().await?, NAMESPACE);
        let filled = async || mount(&secrets, &mounted).await.ok();
        eventually(START_TIMEOUT, "the Secrets of the control plane are filled", filled).await?;
        let mounts = tokio::spawn(keep_mounted(cluster.admin().await?, mounted)).abort_handle();
        for process in processes.iter_mut().filter(|process| process.role != Role::Certs) {
            process.start(cluster)?;
        }
        for process in processes.iter().filter(|process| process.role != Role::Certs) {
            process.replica.as_ref().context("it was started")?.wait_until_ready().await?;
        }
        Ok(Self { processes, hubs, webhooks, mounts })
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        self.mounts.abort();
    }
}

impl ControlPlaneProcess {
    fn addresses(&self) -> (SocketAddr, SocketAddr, SocketAddr) {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        self.options.addresses.unwrap_or((any, any, any))
    }
}

async fn new_process(cluster: &Cluster, role: Role, number: usize, mounted: &Path) -> Result<ControlPlaneProcess> {
    let free = || ports::free().map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let (word, account, addresses) = match role {
        Role::Control => ("control", ACCOUNT, (free()?, any, free()?)),
        Role::Hub => ("hub", HUB_ACCOUNT, (any, free()?, free()?)),
        Role::Certs => ("certs", CERTS_ACCOUNT, (any, any, any)),
    };
    let seconds = LEASE_DURATION.as_secs();
    let mut arguments = vec![
        format!("--roles={word}"),
        format!("--lease-seconds={seconds}"),
        format!("--watch-seconds={seconds}"),
        "--drain-seconds=1".to_owned(),
    ];
    if role != Role::Certs {
        arguments.push(format!("--certificate-dir={}", mounted.display()));
        arguments.push(format!("--content-key-dir={}", mounted.display()));
    }
    let proxy = ApiProxy::start(cluster.address(), cluster.authority()).await?;
    // The token lasts for longer than a run.
    let token = Installation { cluster }.token(account).await?;
    let kubeconfig = cluster.kubeconfig_at(&proxy.url(), &Identity::Token(&token));
    let options = ReplicaOptions { arguments, addresses: Some(addresses), ..ReplicaOptions::default() };
    Ok(ControlPlaneProcess { name: format!("{word}-{number}"), role, proxy, replica: None, kubeconfig, options })
}

/// Keeps the files of mounted Secrets up to date, as a kubelet does.
async fn keep_mounted(admin: Client, folder: PathBuf) {
    let secrets: Api<Secret> = Api::namespaced(admin, NAMESPACE);
    let mut reads = tokio::time::interval(MOUNT_INTERVAL);
    loop {
        reads.tick().await;
        // The API server is away from time to time; the next read tries again.
        let _ = mount(&secrets, &folder).await;
    }
}

/// Writes the files whose content is not what the Secrets hold.
async fn mount(secrets: &Api<Secret>, folder: &Path) -> Result<()> {
    for (secret, keys) in SECRETS {
        let data = secrets.get(secret).await?.data.context("no data")?;
        for key in keys {
            let (file, value) = (folder.join(key), &data.get(*key).context("no such key")?.0);
            if fs::read(&file).ok().as_ref() != Some(value) {
                let draft = folder.join(format!("{key}.new"));
                fs::write(&draft, value)?;
                fs::rename(draft, file)?;
            }
        }
    }
    Ok(())
}
