//! The peer of the endpoint: Debian's nginx, one worker, tuned to serve one file over TLS as fast as it can.

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::unistd::geteuid;
use nudge_tests::affinity::Pinned;
use nudge_tests::{Access, Process, eventually, ports, procfs};
use rcgen::{CertificateParams, KeyPair};
use tempfile::TempDir;

const START_TIMEOUT: Duration = Duration::from_secs(10);

/// Returns what `nginx -v` says; `None` where nginx is not installed.
pub(crate) fn version() -> Option<String> {
    let output = Command::new(binary()).arg("-v").output().ok()?;
    let text = String::from_utf8_lossy(&output.stderr);
    Some(text.trim().rsplit('/').next()?.to_owned())
}

/// A running nginx with a folder of its own; both are gone when it is dropped.
pub(crate) struct Nginx {
    // Dropped first: nginx writes to the folder.
    #[expect(dead_code, reason = "held to be dropped")]
    process: Process,
    home: TempDir,
    address: SocketAddr,
    worker: i32,
}

impl Nginx {
    /// Serves `body` as `/config`, on one core.
    pub(crate) async fn start(body: &[u8], core: usize) -> Result<Self> {
        let home =
            tempfile::Builder::new().prefix("nudge-nginx-").tempdir().context("can't make a folder for nginx")?;
        let address = free_address()?;
        let key = KeyPair::generate()?;
        let certificate = CertificateParams::new([address.ip().to_string()])?.self_signed(&key)?;
        let write = |name: &str, text: &[u8]| {
            fs::write(home.path().join(name), text).with_context(|| format!("can't write nginx's {name}"))
        };
        write("certificate.pem", certificate.pem().as_bytes())?;
        write("key.pem", key.serialize_pem().as_bytes())?;
        write("config", body)?;
        write("nginx.conf", settings(home.path(), address).as_bytes())?;

        let mut command = Command::new(binary());
        command.arg("-p").arg(home.path()).arg("-c").arg(home.path().join("nginx.conf"));
        command.arg("-e").arg(home.path().join("error.log"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = {
            let _pinned = Pinned::to(core)?;
            Process::spawn("nginx", &mut command)?
        };
        // The first process binds the port, then starts the one worker, which serves.
        let worker = eventually(START_TIMEOUT, "nginx starts its worker", async || {
            TcpStream::connect(address).ok()?;
            procfs::descendants(process.pid()).ok()?.first().copied()
        });
        let log = || fs::read_to_string(home.path().join("error.log")).unwrap_or_default();
        let worker = worker.await.with_context(|| format!("nginx's log:\n{}", log()))?;
        Ok(Self { process, home, address, worker })
    }

    /// Returns what a client needs; it ignores the token, which is sent all the same.
    pub(crate) fn access(&self, token: &str) -> Access {
        Access {
            address: self.address,
            token: token.to_owned(),
            authority: self.home.path().join("certificate.pem"),
            variables: BTreeMap::new(),
        }
    }

    /// Returns the process that serves.
    pub(crate) fn worker(&self) -> i32 {
        self.worker
    }
}

/// Debian keeps it where only root's search path looks.
fn binary() -> &'static str {
    if Path::new("/usr/sbin/nginx").exists() { "/usr/sbin/nginx" } else { "nginx" }
}

/// nginx can't say which port it got, so another process could take this one in between; then it fails to start.
fn free_address() -> Result<SocketAddr> {
    Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, ports::free()?)))
}

fn settings(home: &Path, address: SocketAddr) -> String {
    let home = home.display();
    // Started by root, the worker would become a user who can't read the private folder.
    let user = if geteuid().is_root() { "user root;" } else { "" };
    format!(
        r"
{user}
daemon off;
worker_processes 1;
pid {home}/pid;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {home}/body;
    proxy_temp_path {home}/proxy;
    fastcgi_temp_path {home}/fastcgi;
    uwsgi_temp_path {home}/uwsgi;
    scgi_temp_path {home}/scgi;
    default_type application/json;
    keepalive_requests 1000000000;
    keepalive_timeout 1h;
    tcp_nodelay on;
    open_file_cache max=16 inactive=1h;
    open_file_cache_valid 1h;
    # With TLS in user space sendfile has nothing to offer; the file goes through buffers that hold it whole.
    sendfile off;
    output_buffers 1 128k;
    server {{
        listen {address} ssl;
        ssl_certificate {home}/certificate.pem;
        ssl_certificate_key {home}/key.pem;
        ssl_protocols TLSv1.3;
        root {home};
        location / {{ return 404; }}
        location = /config {{ }}
    }}
}}
"
    )
}
