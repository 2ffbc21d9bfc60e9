//! Debian's git-http-backend behind nginx, with TLS and passwords.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::cluster::analysis::own_address;
use crate::cluster::authority::Authority;
use crate::{Process, eventually, ports, tools};

/// The user that the server knows.
pub const USER: &str = "deployer";
/// The token of the server, which is searched for in all that is written.
pub const TOKEN: &str = "tok-5e1f9c7a3b";

/// A web server. It serves `served` of its folder: below /open to anybody, below /token to the user with the token,
/// below /old without protocol 2; and /moved is redirected to another port.
pub struct GitServer {
    folder: TempDir,
    address: SocketAddr,
    authority: Authority,
    _nginx: Process,
    _backend: Process,
}

impl GitServer {
    /// Starts one on the loopback. `None` if a tool is missing.
    pub async fn start() -> Result<Option<Self>> {
        Self::start_with("").await
    }

    /// Returns the same with locations of nginx that come before the others.
    pub async fn start_with(more: &str) -> Result<Option<Self>> {
        Self::start_at(SocketAddr::from((Ipv4Addr::LOCALHOST, ports::free()?)), more).await
    }

    /// Starts one at an address of this machine that is not the loopback, to which nothing is sent. `None` if a tool or
    /// an address is missing.
    pub async fn start_outside(more: &str) -> Result<Option<Self>> {
        let Some(ip) = own_address()? else {
            tools::skipped("this machine has no address but the loopback, to which nothing is sent");
            return Ok(None);
        };
        Self::start_at(ports::free_at(ip)?, more).await
    }

    /// Starts one at an address of this machine.
    pub async fn start_at(address: SocketAddr, more: &str) -> Result<Option<Self>> {
        let (Some(nginx), Some(fcgiwrap)) = (tools::find("nginx")?, tools::find("fcgiwrap")?) else { return Ok(None) };
        let folder = tempfile::tempdir()?;
        let root = folder.path();
        let authority = Authority::new("git")?;
        let certified = authority.server(&["localhost", &address.ip().to_string()])?;
        fs::create_dir_all(root.join("served"))?;
        fs::write(root.join("chain"), &certified.certificate)?;
        fs::write(root.join("key"), &certified.key)?;
        fs::write(root.join("users"), format!("{USER}:{{PLAIN}}{TOKEN}\nx-access-token:{{PLAIN}}{TOKEN}\n"))?;
        fs::write(root.join("nginx.conf"), configuration(root, address, more))?;
        let socket = root.join("backend");
        let backend = Process::spawn(
            "fcgiwrap",
            Command::new(fcgiwrap)
                .arg("-s")
                .arg(format!("unix:{}", socket.display()))
                .env("GIT_CONFIG_GLOBAL", "/dev/null")
                .stdout(Stdio::null())
                .stderr(Stdio::null()),
        )?;
        eventually(Duration::from_secs(30), "the backend listens", async || socket.exists().then_some(())).await?;
        let nginx = Process::spawn(
            "nginx",
            Command::new(nginx)
                .arg("-p")
                .arg(root)
                .arg("-c")
                .arg(root.join("nginx.conf"))
                .stdout(Stdio::null())
                .stderr(Stdio::null()),
        )?;
        let open = async || TcpStream::connect(address).ok().map(drop);
        eventually(Duration::from_secs(30), "nginx listens", open).await?;
        Ok(Some(Self { folder, address, authority, _nginx: nginx, _backend: backend }))
    }

    /// Returns where its files are.
    pub fn root(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the URL of a path.
    pub fn url(&self, path: &str) -> String {
        let host = if self.address.ip().is_loopback() { "localhost".to_owned() } else { self.address.ip().to_string() };
        format!("https://{host}:{}/{path}", self.address.port())
    }

    /// Returns its port.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Returns the certificate of its authority.
    pub fn ca(&self) -> String {
        self.authority.certificate()
    }

    /// Returns all that it has logged: what was asked, and with which user.
    pub fn log(&self) -> Result<String> {
        fs::read_to_string(self.root().join("access.log")).context("no log")
    }
}

fn backend() -> PathBuf {
    let path =
        Command::new("git").arg("--exec-path").output().map(|it| String::from_utf8_lossy(&it.stdout).trim().to_owned());
    Path::new(&path.unwrap_or_default()).join("git-http-backend")
}

fn configuration(root: &Path, address: SocketAddr, more: &str) -> String {
    let (root, backend) = (root.display(), backend().display().to_string());
    let user = if nix::unistd::Uid::effective().is_root() { "user root;" } else { "" };
    let git = format!(
        "fastcgi_pass unix:{root}/backend; fastcgi_param SCRIPT_FILENAME {backend}; fastcgi_param GIT_PROJECT_ROOT {root}/served; \
         fastcgi_param GIT_HTTP_EXPORT_ALL 1; fastcgi_param PATH_INFO $1; fastcgi_param QUERY_STRING $query_string; \
         fastcgi_param REQUEST_METHOD $request_method; fastcgi_param CONTENT_TYPE $content_type; \
         fastcgi_param CONTENT_LENGTH $content_length; fastcgi_param HTTP_CONTENT_ENCODING $http_content_encoding;"
    );
    let new = "fastcgi_param GIT_PROTOCOL $http_git_protocol;";
    let password = format!("auth_basic git; auth_basic_user_file {root}/users;");
    format!(
        "daemon off; master_process off; {user} pid {root}/pid; error_log {root}/error.log; worker_processes 1;
events {{ worker_connections 256; }}
http {{
    log_format all '$request $status $body_bytes_sent user=$remote_user authorization=$http_authorization';
    access_log {root}/access.log all;
    client_body_temp_path {root}/t1; proxy_temp_path {root}/t2; fastcgi_temp_path {root}/t3; uwsgi_temp_path {root}/t4;
    scgi_temp_path {root}/t5;
    server {{
        listen {address} ssl;
        ssl_certificate {root}/chain; ssl_certificate_key {root}/key;
        {more}
        location ~ ^/open(/.*)$ {{ {git} {new} }}
        location ~ ^/token(/.*)$ {{ {password} {git} {new} }}
        location ~ ^/old(/.*)$ {{ {git} }}
        location ~ ^/forbidden(/.*)$ {{ return 403; }}
    }}
}}
"
    )
}
