//! Debian's Prometheus, with a user and a password, at an address of this machine that is not the loopback.

use std::fs::{self, File};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use nudge_tests::cluster::analysis::own_address;
use nudge_tests::cluster::authority::Certified;
use nudge_tests::{Process, eventually, ports, tools};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpStream;

pub(crate) const USER: &str = "nudge";
pub(crate) const PASSWORD: &str = "hunter2";
/// bcrypt of the password.
const HASH: &str = "$2b$04$abcdefghijklmnopqrstuuV3duMsC0HpUex6N9qapiuOHHWkwRXVm";

/// A Prometheus server.
pub(crate) struct Prometheus {
    program: PathBuf,
    folder: TempDir,
    address: SocketAddr,
    process: Option<Process>,
}

impl Prometheus {
    /// Returns one that reads the metrics of these pods of a namespace every second. `None` if it can't be.
    pub(crate) async fn start(namespace: &str, pods: &[&str], metrics: SocketAddr) -> Result<Option<Self>> {
        let target = |pod: &&str| {
            json!({"targets": [metrics.to_string()],
                   "labels": {"__metrics_path__": format!("/{pod}"), "pod": pod, "namespace": namespace}})
        };
        let targets: Vec<_> = pods.iter().map(target).collect();
        let config = json!({
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
            "scrape_configs": [{"job_name": "pods", "static_configs": targets}],
        });
        Self::of(&config, &json!({"basic_auth_users": {USER: HASH}}), None).await
    }

    /// Returns one behind TLS, which knows nothing. `None` if it can't be.
    pub(crate) async fn behind_tls(certified: &Certified) -> Result<Option<Self>> {
        let web = json!({"tls_server_config": {"cert_file": "tls.crt", "key_file": "tls.key"}});
        Self::of(&json!({}), &web, Some(certified)).await
    }

    async fn of(config: &Value, web: &Value, certified: Option<&Certified>) -> Result<Option<Self>> {
        let Some(program) = tools::find("prometheus")? else { return Ok(None) };
        let Some(ip) = own_address()? else {
            tools::skipped("this machine has no address but the loopback, to which no query is sent");
            return Ok(None);
        };
        let address = ports::free_at(ip)?;
        let folder = tempfile::tempdir()?;
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text);
        // JSON is YAML.
        write("prometheus.yml", &config.to_string())?;
        write("web.yml", &web.to_string())?;
        if let Some(Certified { certificate, key }) = certified {
            write("tls.crt", certificate)?;
            write("tls.key", key)?;
        }
        let mut prometheus = Self { program, folder, address, process: None };
        prometheus.run().await?;
        Ok(Some(prometheus))
    }

    /// Starts it, or starts it again.
    pub(crate) async fn run(&mut self) -> Result<()> {
        let at = |name: &str| self.folder.path().join(name).display().to_string();
        let log = File::options().create(true).append(true).open(at("log"))?;
        let mut command = Command::new(&self.program);
        command
            .arg(format!("--config.file={}", at("prometheus.yml")))
            .arg(format!("--web.config.file={}", at("web.yml")))
            .arg(format!("--storage.tsdb.path={}", at("data")))
            .arg(format!("--web.listen-address={}", self.address))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        self.process = Some(Process::spawn("prometheus", &mut command)?);
        let answers = async || TcpStream::connect(self.address).await.ok().map(drop);
        let waited = eventually(Duration::from_mins(1), "Prometheus listens", answers).await;
        waited.with_context(|| fs::read_to_string(at("log")).unwrap_or_default())
    }

    pub(crate) fn process(&mut self) -> Result<&mut Process> {
        self.process.as_mut().context("it does not run")
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn https(&self) -> String {
        format!("https://{}", self.address)
    }

    pub(crate) fn ip(&self) -> IpAddr {
        self.address.ip()
    }
}
