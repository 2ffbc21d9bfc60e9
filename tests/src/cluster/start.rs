//! Starting a cluster, step by step.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use hyper::Request;
use kube::Client;
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256};

use super::Cluster;
use super::authority::Authority;
use super::binaries::Binaries;
use super::etcd::Etcd;
use super::kubeconfig::{self, Identity};
use super::options::Options;
use super::part::Part;
use super::reaper::Reaper;
use super::servers::Files;
use super::version::Version;
use crate::{ports, tools};

/// The folder of etcd's data.
pub(super) const DATA: &str = "etcd";
/// How long the API server may take to be ready, on a busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(90);

/// Names of the API server.
const NAMES: [&str; 3] = ["127.0.0.1", "localhost", "kubernetes.default.svc"];

/// Starts etcd, then the API server, and then the controller manager, which is not waited for. It begins with the data
/// of the template, if there is one, and has its authority and keys.
pub(super) async fn start(binaries: &Binaries, options: &Options, template: Option<&Cluster>) -> Result<Cluster> {
    let mut home = tempfile::Builder::new();
    home.prefix("nudge-cluster-");
    let home = match &options.folder {
        Some(folder) => home.tempdir_in(folder),
        None => home.tempdir(),
    };
    let home = home.context("can't make a folder for the cluster")?;
    let reaper = Reaper::start(home.path())?;
    let part = |name, program| Part::new(name, program, home.path(), reaper.group());

    let data = home.path().join(DATA);
    let (authority, tokens) = if let Some(template) = template {
        Etcd::copy_data(&template.home.path().join(DATA), &data)?;
        (Arc::clone(&template.authority), Arc::clone(&template.tokens))
    } else {
        let authority = Authority::new("Nudge test cluster")?;
        (Arc::new(authority), Arc::new(KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?))
    };
    let admin = authority.client("admin", Some("system:masters"))?;
    let files = Files::write(home.path(), &authority, &authority.server(&NAMES)?, &tokens)?;

    let etcd = part("etcd", &binaries.etcd);
    let mut etcd = Etcd::new(etcd, &data, [ports::free()?, ports::free()?], options.sync)?;
    etcd.start().await?;

    let port = ports::free()?;
    let mut apiserver = part("kube-apiserver", &binaries.apiserver);
    files.apiserver(&mut apiserver, &etcd.url(), port);
    for (flag, value) in &options.flags {
        apiserver.flag(flag, value);
    }
    apiserver.start()?;
    let mut cluster = Cluster {
        controller_manager: None,
        apiserver,
        etcd,
        home,
        reaper,
        authority,
        admin,
        tokens,
        files,
        kubectl: binaries.kubectl.clone(),
        controllers: Vec::new(),
        port,
        version: Version { major: 0, minor: 0 },
    };
    fs::write(cluster.kubeconfig(), cluster.kubeconfig_of(&cluster.administrator()))?;
    let client = cluster.admin().await?;
    ready(&mut cluster.apiserver, &client).await?;
    let version = client.apiserver_version().await?;
    cluster.version = Version::parse(&version.major, &version.minor)?;

    match &binaries.controller_manager {
        _ if options.controllers.is_empty() => {}
        Some(program) => {
            cluster.controller_manager = Some(controller_manager(&cluster, program, &options.controllers)?);
            cluster.controllers.clone_from(&options.controllers);
        }
        // The programs that kubebuilder fetches are without it. Most tests can do without it, too.
        None => tools::missing("kube-controller-manager")?,
    }
    Ok(cluster)
}

/// Waits until the API server says that it is ready.
pub(super) async fn ready(part: &mut Part, admin: &Client) -> Result<()> {
    let says_so = async || match Request::get("/readyz").body(Vec::new()) {
        Ok(request) => admin.request_text(request).await.is_ok(),
        Err(_) => false,
    };
    part.until(START_TIMEOUT, "the API server is ready", says_so).await
}

fn controller_manager(cluster: &Cluster, program: &Path, controllers: &[String]) -> Result<Part> {
    let folder = cluster.home.path();
    let certificate = cluster.authority.client("system:kube-controller-manager", None)?;
    let text = kubeconfig::text(&cluster.url(), &cluster.authority.certificate(), &Identity::Certificate(&certificate));
    let kubeconfig = folder.join("controller-manager.kubeconfig");
    fs::write(&kubeconfig, text)?;
    let mut part = Part::new("kube-controller-manager", program, folder, cluster.reaper.group());
    cluster.files.controller_manager(&mut part, &kubeconfig, controllers, cluster.version);
    part.start()?;
    Ok(part)
}
