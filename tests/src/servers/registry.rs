//! Debian's docker-registry, with TLS and a password.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cluster::authority::Authority;
use crate::{Process, eventually, tools};

/// The user that it knows.
pub const USER: &str = "puller";
/// The password. It is searched for in all that is written.
pub const PASSWORD: &str = "pw-hunter2-registry";
/// bcrypt of the password.
const HASH: &str = "$2b$04$j3D9cQIIHPYlZDC3HMzDpOEcSxtB.uITpp1cq6wtlOhX/Kb.BUsei";

/// A registry of OCI artifacts.
pub struct Registry {
    folder: TempDir,
    address: SocketAddr,
    authority: Authority,
    _process: Process,
}

impl Registry {
    /// Starts one at an address of this machine. `None` if it is not installed.
    pub async fn start_at(address: SocketAddr) -> Result<Option<Self>> {
        let Some(program) = tools::find("docker-registry")? else { return Ok(None) };
        let (folder, authority) = (tempfile::tempdir()?, Authority::new("registry")?);
        let certified = authority.server(&["localhost", &address.ip().to_string()])?;
        let at = |name: &str| folder.path().join(name);
        fs::write(at("tls.crt"), &certified.certificate)?;
        fs::write(at("tls.key"), &certified.key)?;
        fs::write(at("users"), format!("{USER}:{HASH}\n"))?;
        // JSON is YAML.
        let config = json!({
            "version": "0.1", "log": {"level": "info"},
            "storage": {"filesystem": {"rootdirectory": at("storage")}},
            "http": {"addr": address, "secret": "none", "tls": {"certificate": at("tls.crt"), "key": at("tls.key")}},
            "auth": {"htpasswd": {"realm": "registry", "path": at("users")}},
        });
        fs::write(at("config.yml"), config.to_string())?;
        let log = File::create(at("log"))?;
        let mut command = Command::new(program);
        command.arg("serve").arg(at("config.yml")).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let process = Process::spawn("docker-registry", &mut command)?;
        let open = async || TcpStream::connect(address).ok().map(drop);
        let waited = eventually(Duration::from_secs(30), "the registry listens", open).await;
        waited.with_context(|| fs::read_to_string(at("log")).unwrap_or_default())?;
        Ok(Some(Self { folder, address, authority, _process: process }))
    }

    /// Returns its name in references.
    pub fn host(&self) -> String {
        let ip = self.address.ip();
        let host = if ip.is_loopback() { "localhost".to_owned() } else { ip.to_string() };
        format!("{host}:{}", self.address.port())
    }

    /// Returns the certificate of its authority.
    pub fn ca(&self) -> String {
        self.authority.certificate()
    }

    /// Returns a docker config with this password.
    pub fn docker_config(&self, password: &str) -> Value {
        json!({"auths": {self.host(): {"username": USER, "password": password}}})
    }

    /// Returns what it has logged.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}
