//! A recipe: the page, the script and the versions of one software, as they are in the repository.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::unistd::geteuid;
use nudge_protocol::expectation::{Expectation, Sign};
use nudge_tests::{AgentUnderTest, ConfigDir, ExecCommand, Process, ports, tools};
use serde_json::Value;
use tokio::sync::{Mutex, MutexGuard};

/// The versions that every recipe has.
pub(crate) const VERSIONS: [&str; 2] = ["1.0.0", "1.0.1"];

/// What refuses to run as root runs as this user, and so does the rest: pods have no root either.
const NOBODY: u32 = 65534;

/// How long the software has to show a version: less than on the pages, so that a wrong version is known soon.
const SIGN_TIMEOUT: Duration = Duration::from_secs(10);

/// A lock, so that one recipe runs at a time: they are timed, and each has clients of its own.
static ALONE: Mutex<()> = Mutex::const_new(());

/// Returns the folder of the examples.
pub(crate) fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples")
}

/// What the repository has of one software.
pub(crate) struct Recipe {
    /// The name of the page's folder, and of the config if the page names no other.
    pub(crate) name: &'static str,
    /// Debian's version of the software.
    pub(crate) version: String,
    /// The folder with `app.sh`.
    source: PathBuf,
    config: String,
    notify: String,
    /// The URL that the agent posts to, with the port of the page.
    webhook: Option<String>,
    /// What the software shows when it has taken a version, if it shows anything.
    pub(crate) verify: Option<Expectation>,
}

impl Recipe {
    /// Returns whether the agent finds the process of the software, to send it a signal.
    pub(crate) fn has_signal(&self) -> bool {
        self.webhook.is_none()
    }

    /// Returns the recipe, if the programs that it needs are installed; `package` is the software's.
    pub(crate) fn find(name: &'static str, package: &str, programs: &[&str]) -> Result<Option<Self>> {
        for program in programs {
            if tools::find(program)?.is_none() {
                return Ok(None);
            }
        }
        let Some(version) = installed(package) else {
            tools::missing(package)?;
            return Ok(None);
        };
        let page = examples().join("cookbook").join(name).join("README.md");
        let page = fs::read_to_string(&page).with_context(|| format!("can't read {}", page.display()))?;
        let manifest = manifest(&page).with_context(|| format!("{name}'s page"))?;
        let mut volumes = manifest["spec"]["volumes"].as_array().into_iter().flatten();
        let config = volumes.find_map(|volume| volume["configMap"]["name"].as_str());
        let own = examples().join("cookbook").join(name);
        Ok(Some(Self {
            name,
            version,
            source: if own.join("app.sh").exists() { own } else { examples().join(name) },
            config: config.with_context(|| format!("{name}'s page mounts no ConfigMap"))?.to_owned(),
            notify: annotation(&manifest, "nudge.dev/notify")
                .with_context(|| format!("{name}'s page notifies nobody"))?,
            webhook: annotation(&manifest, "nudge.dev/webhook"),
            verify: annotation(&manifest, "nudge.dev/verify").map(|text| text.parse()).transpose()?,
        }))
    }

    /// Returns a file of a version.
    pub(crate) fn key(&self, version: &str, key: &str) -> Result<String> {
        let file = examples().join("config").join(&self.config).join(version).join(key);
        fs::read_to_string(&file).with_context(|| format!("can't read {}", file.display()))
    }

    /// Starts the software under an agent, as the page says.
    pub(crate) async fn start(self) -> Result<Software> {
        let alone = ALONE.lock().await;
        self.launch(Some(alone), |text| text).await
    }

    /// Returns the same beside another one that it needs, with a change to every value: what a test can't have as the
    /// page has it, such as a port.
    pub(crate) async fn start_beside(self, _other: &Software, change: impl Fn(String) -> String) -> Result<Software> {
        self.launch(None, change).await
    }

    async fn launch(
        self,
        alone: Option<MutexGuard<'static, ()>>,
        change: impl Fn(String) -> String,
    ) -> Result<Software> {
        let dir = ConfigDir::new()?;
        let root = dir.path().parent().context("no folder")?;
        fs::set_permissions(root, Permissions::from_mode(0o755))?;
        for version in VERSIONS {
            let mut entries = vec![];
            for entry in fs::read_dir(examples().join("config").join(&self.config).join(version))? {
                let key = entry?.file_name().into_string().ok().context("odd name")?;
                entries.push((key.clone(), change(self.key(version, &key)?)));
            }
            dir.write_version(&self.config, version, entries)?;
        }
        dir.switch(&self.config, VERSIONS[0])?;
        let folder = dir.beside(self.name);
        let (app, port) = (self.copy(&dir)?, ports::free()?);
        let mount = [OsStr::new("--mount-path").to_owned(), folder.join("config").into()];
        let webhook =
            self.webhook.as_ref().map(|url| format!("--webhook={}", url.replace(":8080/", &format!(":{port}/"))));
        let verify = self.verify.as_ref().map(|sign| format!("--verify={}", sign_at(sign, port)));
        let set = |exec: ExecCommand| {
            let exec = exec.args(["--config", &self.config, "--notify", &self.notify]);
            let exec = exec.args(mount).args(webhook).args(verify);
            exec.env("PORT", port.to_string()).env("NGINX_PORT", port.to_string())
        };
        let command = as_nobody().chain(["sh".into(), app.into(), folder.clone().into()]).collect::<Vec<_>>();
        let agent = AgentUnderTest::start_with(dir, set, &command).await?;
        Ok(Software { agent, port, folder, recipe: self, _alone: alone })
    }

    /// Copies the recipe to where its user may read it, and makes the folder that it writes to. Gives the script's
    /// path.
    fn copy(&self, dir: &ConfigDir) -> Result<PathBuf> {
        let (folder, copy) = (dir.beside(self.name), dir.beside(&format!("{}-recipe", self.name)));
        fs::create_dir(&folder)?;
        fs::create_dir(&copy)?;
        for entry in fs::read_dir(&self.source)? {
            let entry = entry?;
            fs::copy(entry.path(), copy.join(entry.file_name()))?;
        }
        if geteuid().is_root() {
            chown(&folder, Some(NOBODY), Some(NOBODY))?;
        }
        Ok(copy.join("app.sh"))
    }
}

/// A software that runs, with all that its test looks at.
pub(crate) struct Software {
    /// The agent above it.
    pub(crate) agent: AgentUnderTest,
    /// The port at which the software listens.
    pub(crate) port: u16,
    /// The folder that `app.sh` got.
    pub(crate) folder: PathBuf,
    /// What it is.
    pub(crate) recipe: Recipe,
    _alone: Option<MutexGuard<'static, ()>>,
}

impl Software {
    /// Starts another program next to the software. Its output goes to a file in the folder.
    pub(crate) fn start_beside<S: AsRef<OsStr>>(&self, name: &str, command: &[S]) -> Result<Process> {
        let words = as_nobody().chain(command.iter().map(Into::into)).collect::<Vec<_>>();
        let output = File::create(self.folder.join(name))?;
        let mut beside = Command::new(&words[0]);
        beside.args(&words[1..]).current_dir(&self.folder).stderr(output.try_clone()?).stdout(output);
        Process::spawn(name, &mut beside)
    }

    /// Adds a version with the content of another one.
    pub(crate) fn copy_version(&self, from: &str, version: &str) -> Result<()> {
        let config = self.agent.dir.path().join(&self.recipe.config);
        let mut entries = vec![];
        for entry in fs::read_dir(config.join(from))? {
            let entry = entry?;
            entries.push((entry.file_name().into_string().ok().context("odd name")?, fs::read(entry.path())?));
        }
        self.agent.dir.write_version(&self.recipe.config, version, entries).map(drop)
    }

    /// Returns a file of the recipe.
    pub(crate) fn recipe_file(&self, name: &str) -> PathBuf {
        self.agent.dir.beside(&format!("{}-recipe", self.recipe.name)).join(name)
    }

    /// Adds a version.
    pub(crate) fn write_version<const N: usize>(&self, version: &str, entries: [(&str, &str); N]) -> Result<()> {
        self.agent.dir.write_version(&self.recipe.config, version, entries).map(drop)
    }

    /// Begins a switch to a version.
    pub(crate) fn switch(&self, version: &str) -> Result<()> {
        self.agent.dir.switch(&self.recipe.config, version)
    }
}

/// Returns what the software must show, with a page at this port in place of the page's, and with the time of a test.
fn sign_at(expectation: &Expectation, port: u16) -> String {
    let mut sign = expectation.sign.clone();
    if let Sign::Page { url, .. } = &mut sign
        && let Some((_, path)) = url.as_str()["http://".len()..].split_once('/')
        && let Ok(changed) = format!("http://127.0.0.1:{port}/{path}").parse()
    {
        *url = changed;
    }
    Expectation { sign, within: SIGN_TIMEOUT }.to_string()
}

/// Returns what stands before a command that is not to be root.
fn as_nobody() -> impl Iterator<Item = OsString> {
    let words = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    words.into_iter().filter(|_| geteuid().is_root()).map(OsString::from)
}

/// Returns the first manifest of the page, which is the template of a pod.
fn manifest(page: &str) -> Result<Value> {
    let manifest = page.split_once("```yaml\n").and_then(|(_, rest)| rest.split_once("```")).context("no manifest")?.0;
    Ok(serde_saphyr::from_str(manifest)?)
}

/// Returns an annotation of the pod, with or without the name of a container, so that the tested value is the
/// documented value.
fn annotation(manifest: &Value, key: &str) -> Option<String> {
    let mut annotations = manifest["metadata"]["annotations"].as_object().into_iter().flatten();
    let is_named = |name: &str| name.strip_prefix(key).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    let (_, value) = annotations.find(|(name, _)| is_named(name))?;
    value.as_str().map(str::to_owned)
}

/// Returns the version of a Debian package, if it is installed.
fn installed(package: &str) -> Option<String> {
    let query = Command::new("dpkg-query").args(["-W", "-f", "${Version}", package]).output().ok()?;
    String::from_utf8(query.stdout).ok().filter(|version| query.status.success() && !version.is_empty())
}
