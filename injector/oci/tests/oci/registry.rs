//! Debian's registry on a free port, in a folder of its own.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use tempfile::TempDir;

/// A registry that ends with this value.
pub(crate) struct DockerRegistry {
    child: Child,
    port: u16,
    _folder: TempDir,
}

impl DockerRegistry {
    /// Starts one, with more of its config: `auth` of its own, `tls` below `http`.
    pub(crate) async fn start(auth: &str, tls: &str) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        Self::start_in(folder, |_| Ok((auth.to_owned(), tls.to_owned()))).await
    }

    /// The same with files that the config names.
    pub(crate) async fn start_in(folder: TempDir, config: impl Fn(&Path) -> Result<(String, String)>) -> Result<Self> {
        let (auth, tls) = config(folder.path())?;
        let file = folder.path().join("config.yml");
        // Somebody else may take the port between its choice and its use.
        for _ in 0..5 {
            let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
            let storage = folder.path().join("storage");
            fs::write(
                &file,
                format!(
                    "version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {}}}, delete: {{enabled: true}}}}\n\
                     http: {{addr: '127.0.0.1:{port}', secret: none{tls}}}\n{auth}\n",
                    storage.display()
                ),
            )?;
            let log = fs::File::create(folder.path().join("log"))?;
            let mut child = Command::new("docker-registry")
                .arg("serve")
                .arg(&file)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(log)
                .spawn()
                .context("docker-registry; tests/run installs it")?;
            let deadline = Instant::now() + Duration::from_secs(30);
            while Instant::now() < deadline && child.try_wait()?.is_none() {
                if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() && child.try_wait()?.is_none() {
                    return Ok(Self { child, port, _folder: folder });
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            let _ = child.kill();
            let _ = child.wait();
        }
        let log = fs::read_to_string(folder.path().join("log"))?;
        bail!("the registry did not start: {log}")
    }

    pub(crate) fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

impl Drop for DockerRegistry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
