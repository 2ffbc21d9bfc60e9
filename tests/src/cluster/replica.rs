//! Processes of the control plane, with their health, metrics and logs.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http_body_util::{BodyExt as _, Empty};
use hyper::Request;
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use nix::sys::signal::Signal;
use tokio::net::TcpStream;

use crate::{Balancer, Process, eventually};

/// How long one may take until it is ready, on a busy machine.
const READY_TIMEOUT: Duration = Duration::from_mins(1);

/// What differs between replicas.
#[derive(Clone, Debug, Default)]
pub struct ReplicaOptions {
    /// The program; the debug build where absent.
    pub binary: Option<PathBuf>,
    /// Further arguments of `serve`.
    pub arguments: Vec<String>,
    /// Further variables of the environment.
    pub variables: Vec<(&'static str, String)>,
    /// Addresses for admission, hub and health; free ones where absent.
    pub addresses: Option<(SocketAddr, SocketAddr, SocketAddr)>,
}

impl ReplicaOptions {
    /// Short times, so that tests need not wait long for what takes long by design.
    pub fn quick() -> Self {
        Self::with(&["--lease-seconds=3", "--watch-seconds=3", "--drain-seconds=1"])
    }

    /// Returns options with these arguments.
    pub fn with(arguments: &[&str]) -> Self {
        Self::default().with_more(arguments)
    }

    /// Adds arguments.
    #[must_use]
    pub fn with_more(&self, arguments: &[impl AsRef<str>]) -> Self {
        let further_arguments = arguments.iter().map(|argument| argument.as_ref().to_owned());
        Self { arguments: self.arguments.iter().cloned().chain(further_arguments).collect(), ..self.clone() }
    }
}

/// Two processes for each role, as [`Apart`].
pub struct ApartTwice {
    /// The webhooks and the controllers.
    pub control: [Replica; 2],
    /// The replicas of the role hub.
    pub hub: [Replica; 2],
    /// The replicas of the role certs.
    pub certs: [Replica; 2],
    /// The balancer at which the API server finds the webhooks.
    pub(super) _webhooks: Balancer,
}

/// A process for each role. Only the addresses are real that its role listens at.
pub struct Apart {
    /// The webhooks and the controllers.
    pub control: Replica,
    /// The replica of the role hub.
    pub hub: Replica,
    /// The replica of the role certs.
    pub certs: Replica,
}

/// A replica of the control plane.
pub struct Replica {
    /// The identity of the replica.
    pub name: String,
    /// The process of the replica.
    pub process: Process,
    /// The address for admission reviews.
    pub admission: SocketAddr,
    /// The address for agents.
    pub hub: SocketAddr,
    /// The address of health and metrics; port 0 if it is not served.
    pub health: SocketAddr,
    pub(super) log: PathBuf,
}

impl Replica {
    /// Returns all that it has logged.
    pub fn log(&self) -> String {
        fs::read(&self.log).map(|text| String::from_utf8_lossy(&text).into_owned()).unwrap_or_default()
    }

    /// Returns the address in its log.
    pub(super) async fn wait_for_address(&self, what: &str) -> Result<SocketAddr> {
        let address = async || {
            let log = self.log();
            let mut lines = log.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
            lines.find_map(|line| line[what].as_str()?.parse().ok())
        };
        let waited = eventually(READY_TIMEOUT, &format!("the control plane listens for {what}"), address).await;
        waited.with_context(|| format!("its log:\n{}", self.log()))
    }

    /// Waits until it is ready.
    pub async fn wait_until_ready(&self) -> Result<()> {
        let ready = async || self.get("/readyz").await.ok().filter(|(status, _)| *status == 200).map(drop);
        let waited = eventually(READY_TIMEOUT, "the control plane is ready", ready).await;
        waited.with_context(|| format!("its log:\n{}", self.log()))
    }

    /// Requests a path of the health endpoint.
    pub async fn get(&self, path: &str) -> Result<(u16, String)> {
        let stream = TcpStream::connect(self.health).await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let request = Request::get(path).header("host", "nudge").body(Empty::<Bytes>::new())?;
        let reply = sender.send_request(request).await?;
        let status = reply.status().as_u16();
        let body = reply.into_body().collect().await?.to_bytes();
        Ok((status, String::from_utf8_lossy(&body).into_owned()))
    }

    /// Returns the value of a metric without labels, or the sum over its labels.
    pub async fn metric(&self, name: &str) -> Result<f64> {
        let (status, text) = self.get("/metrics").await?;
        ensure!(status == 200, "no metrics: {text}");
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let values = lines.filter_map(|line| {
            let (series, value) = line.rsplit_once(' ')?;
            (series.split('{').next() == Some(name)).then(|| value.parse::<f64>().ok())?
        });
        Ok(values.sum())
    }

    /// Returns the value of a metric, summed over those of its series whose labels hold `label`, such as
    /// `path="/mutate/pods"`.
    pub async fn metric_where(&self, name: &str, label: &str) -> Result<f64> {
        let (status, text) = self.get("/metrics").await?;
        ensure!(status == 200, "no metrics: {text}");
        let values = text.lines().filter_map(|line| {
            let (series, value) = line.rsplit_once(' ')?;
            let (found, labels) = series.split_once('{')?;
            (found == name && labels.contains(label)).then(|| value.parse::<f64>().ok())?
        });
        Ok(values.sum())
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        self.process.signal(signal)
    }
}
