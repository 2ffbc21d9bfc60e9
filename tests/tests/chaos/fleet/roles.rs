//! The control plane: two processes of each role, each with a way of its own to the API server, behind the addresses of their Services.

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

use crate::proxy::api::ApiWay;
use crate::proxy::tcp::Service;

/// How long the control plane may take to come up.
const SOON: Duration = Duration::from_mins(2);
/// How long a lease lasts, and the longest silence of a watch.
pub(crate) const LEASE: Duration = Duration::from_secs(5);
/// How often the kubelet looks at mounted Secrets.
const MOUNTED: Duration = Duration::from_secs(1);
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

/// One process of a role, or its place while there is none.
pub(crate) struct Station {
    pub(crate) name: String,
    pub(crate) role: Role,
    pub(crate) way: ApiWay,
    pub(crate) process: Option<Replica>,
    kubeconfig: String,
    options: ReplicaOptions,
}

impl Station {
    /// Starts its process, and returns at once.
    pub(crate) fn start(&mut self, cluster: &Cluster) -> Result<()> {
        let started = Installation { cluster }.launch(&self.name, &self.kubeconfig, &self.options)?;
        self.process = Some(started);
        Ok(())
    }

    /// What its next process has in its environment.
    pub(crate) fn set_variables(&mut self, variables: Vec<(&'static str, String)>) {
        self.options.variables = variables;
    }

    /// How its process has ended by itself, if it has.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.process.as_mut().map_or(Ok(None), |replica| replica.process.try_exited())
    }

    /// Ends its process at once.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.process.take().map_or(Ok(()), |mut replica| replica.process.kill().map(drop))
    }
}

/// All processes, and what stands before them.
pub(crate) struct ControlPlane {
    pub(crate) stations: Vec<Station>,
    pub(crate) hubs: Service,
    pub(crate) webhooks: Service,
    mounts: AbortHandle,
}

impl ControlPlane {
    /// Starts all, and waits until they serve.
    pub(crate) async fn start(cluster: &Cluster) -> Result<Self> {
        let installation = Installation { cluster };
        let mounted = cluster.folder().join("mounted");
        fs::create_dir_all(&mounted)?;
        let mut stations = Vec::new();
        for role in [Role::Certs, Role::Hub, Role::Control] {
            for number in 0..2 {
                stations.push(station(cluster, role, number, &mounted).await?);
            }
        }
        let of = |role: Role, address: fn(&Station) -> SocketAddr| {
            stations.iter().filter(|station| station.role == role).map(address).collect::<Vec<_>>()
        };
        let hubs = Service::start(of(Role::Hub, |station| station.addresses().1)).await?;
        let webhooks = Service::start(of(Role::Control, |station| station.addresses().0)).await?;
        installation.apply_webhooks(webhooks.address()).await?;
        for station in stations.iter_mut().filter(|station| station.role == Role::Certs) {
            station.start(cluster)?;
        }
        let secrets: Api<Secret> = Api::namespaced(cluster.admin().await?, NAMESPACE);
        let filled = async || mount(&secrets, &mounted).await.ok();
        eventually(SOON, "the Secrets of the control plane are filled", filled).await?;
        let mounts = tokio::spawn(keep_mounted(cluster.admin().await?, mounted)).abort_handle();
        for station in stations.iter_mut().filter(|station| station.role != Role::Certs) {
            station.start(cluster)?;
        }
        for station in stations.iter().filter(|station| station.role != Role::Certs) {
            station.process.as_ref().context("it was started")?.is_ready().await?;
        }
        Ok(Self { stations, hubs, webhooks, mounts })
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        self.mounts.abort();
    }
}

impl Station {
    fn addresses(&self) -> (SocketAddr, SocketAddr, SocketAddr) {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        self.options.addresses.unwrap_or((any, any, any))
    }
}

async fn station(cluster: &Cluster, role: Role, number: usize, mounted: &Path) -> Result<Station> {
    let free = || ports::free().map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let (word, account, addresses) = match role {
        Role::Control => ("control", ACCOUNT, (free()?, any, free()?)),
        Role::Hub => ("hub", HUB_ACCOUNT, (any, free()?, free()?)),
        Role::Certs => ("certs", CERTS_ACCOUNT, (any, any, any)),
    };
    let seconds = LEASE.as_secs();
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
    let way = ApiWay::to(cluster.address(), cluster.authority()).await?;
    // It lasts for longer than a run.
    let token = Installation { cluster }.token(account).await?;
    let kubeconfig = cluster.kubeconfig_at(&way.url(), &Identity::Token(&token));
    let options = ReplicaOptions { arguments, addresses: Some(addresses), ..ReplicaOptions::default() };
    Ok(Station { name: format!("{word}-{number}"), role, way, process: None, kubeconfig, options })
}

/// What the kubelet does with the Secrets that pods of the control plane mount.
async fn keep_mounted(admin: Client, folder: PathBuf) {
    let secrets: Api<Secret> = Api::namespaced(admin, NAMESPACE);
    let mut turns = tokio::time::interval(MOUNTED);
    loop {
        turns.tick().await;
        // The API server is away from time to time: at the next turn.
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
