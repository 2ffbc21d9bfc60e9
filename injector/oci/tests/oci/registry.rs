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
        let storage = folder.path().join("storage");
        fs::write(
            &file,
            format!(
                "version: 0.1\nstorage: {{filesystem: {{rootdirectory: {}}}, delete: {{enabled: true}}}}\n\
                 http: {{addr: '127.0.0.1:0', secret: none{tls}}}\n{auth}\n",
                storage.display()
            ),
        )?;
        let log = folder.path().join("log");
        let child = Command::new("docker-registry")
            .arg("serve")
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(&log)?)
            .spawn()
            .context("docker-registry; tests/run installs it")?;
        let mut registry = Self { child, port: 0, _folder: folder };
        let deadline = Instant::now() + Duration::from_secs(30);
        // The registry chooses its port: a port chosen here could be taken by then.
        while Instant::now() < deadline && registry.child.try_wait()?.is_none() {
            if let Some(port) = listening_port(&fs::read_to_string(&log)?) {
                registry.port = port;
                return Ok(registry);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        bail!("the registry did not start: {}", fs::read_to_string(log)?)
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

/// Returns the port after `listening on` in the log of a registry.
fn listening_port(log: &str) -> Option<u16> {
    let (_, address) = log.split_once("listening on 127.0.0.1:")?;
    let digits = address.find(|character: char| !character.is_ascii_digit())?;
    address[..digits].parse().ok()
}
