//! Giftless, a server of Git LFS, on a socket for nginx: it keeps objects in a folder, and knows tokens that are signed
//! with its key.

use std::fs::{self, File};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use ring::hmac;
use serde_json::json;
use tempfile::TempDir;

use crate::{Process, eventually, python};

/// The user with whose name a token stands in a password.
pub const USER: &str = "_jwt";
/// What tokens are signed with.
const KEY: &str = "giftless-hunter2-giftless-hunter2-giftless";

/// A server of Git LFS.
pub struct Giftless {
    folder: TempDir,
    _process: Process,
}

impl Giftless {
    /// Starts one. `folder`: where the program is kept. `None` if it can't be had.
    pub async fn start(folder: &Path) -> Result<Option<Self>> {
        let Some(python) = python::environment(folder, "giftless")? else { return Ok(None) };
        let folder = tempfile::tempdir()?;
        let at = |name: &str| folder.path().join(name);
        let signed = json!({"algorithm": "HS256", "private_key": KEY});
        let configuration = json!({
            "LEGACY_ENDPOINTS": false,
            "AUTH_PROVIDERS": [{"factory": "giftless.auth.jwt:factory", "options": signed}],
            "PRE_AUTHORIZED_ACTION_PROVIDER": {"options": signed},
            "TRANSFER_ADAPTERS": {"basic": {"options": {"storage_options": {"path": at("objects")}}}},
        });
        // JSON is YAML.
        fs::write(at("giftless.yaml"), configuration.to_string())?;
        let log = File::create(at("log"))?;
        let mut command = Command::new(python);
        command
            .args(["-m", "waitress", "--url-scheme=https"])
            .arg(format!("--unix-socket={}", at("socket").display()))
            .arg("giftless.wsgi_entrypoint:app")
            .env("GIFTLESS_CONFIG_FILE", at("giftless.yaml"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let process = Process::spawn("giftless", &mut command)?;
        let server = Self { folder, _process: process };
        let open = async || UnixStream::connect(server.folder.path().join("socket")).ok().map(drop);
        let waited = eventually(Duration::from_mins(1), "giftless listens", open).await;
        waited.with_context(|| server.log())?;
        Ok(Some(server))
    }

    /// Returns the part of nginx's configuration that passes requests on, for repositories below this path, with more
    /// settings.
    pub fn location(&self, path: &str, more: &str) -> String {
        format!(
            "location ~ ^/{path}/.*\\.git/info/lfs/ {{ {more} client_max_body_size 64m; proxy_set_header Host $http_host; \
             proxy_pass http://unix:{}; }}\n",
            self.folder.path().join("socket").display()
        )
    }

    /// Returns a token for the objects of a repository, such as `token/shop`, for these actions: `read,write`. It is
    /// valid for this many seconds, which may be past.
    pub fn token(&self, repository: &str, actions: &str, seconds: i64) -> Result<String> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
        let claims = json!({
            "sub": "nudge", "exp": now.cast_signed() + seconds, "scopes": format!("obj:{repository}/*:{actions}")});
        let part = |json: serde_json::Value| BASE64_URL_SAFE_NO_PAD.encode(json.to_string());
        let text = format!("{}.{}", part(json!({"alg": "HS256", "typ": "JWT"})), part(claims));
        let signature = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, KEY.as_bytes()), text.as_bytes());
        Ok(format!("{text}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature)))
    }

    /// Returns the file of an object.
    pub fn object(&self, repository: &str, id: &str) -> PathBuf {
        self.folder.path().join("objects").join(repository).join(id)
    }

    /// Returns what it has logged.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}
