//! The beginning of the tests of pod mode: a hub, an agent as in a pod, and a process in place of its container.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use nudge_protocol::env;
use nudge_protocol::status::Status;
use tempfile::TempDir;

use crate::agent::WAIT_TIMEOUT;
use crate::agent::home;
use crate::fakes::fake_hub::TOKEN;
use crate::{Agent, Client, FakeHub, Process, binary, eventually};

/// Folders and files as a pod has them, and what runs in it.
pub struct Pod {
    /// The agent, once it is started.
    pub agent: Option<Agent>,
    /// What stands for the container `app`.
    app: Option<Process>,
    /// Arguments of the agent besides those that all have.
    pub arguments: Vec<OsString>,
    /// Variables of its environment.
    pub variables: Vec<(&'static str, String)>,
    /// The hub's URL.
    pub hub: String,
    /// The agent's program; the debug build where absent.
    pub binary: Option<PathBuf>,
    /// The pod's configs.
    pub configs: &'static str,
    /// The process group of its agent; that of the test where absent.
    pub group: Option<i32>,
    folder: TempDir,
    addresses: String,
    port: u16,
}

impl Pod {
    /// Returns a pod of this hub, in which nothing runs yet.
    pub fn new(hub: &FakeHub) -> Result<Self> {
        let pod = Self::empty(hub.url())?;
        hub.write_ca(&pod.path("hub-ca.crt"))?;
        pod.write_token(TOKEN)?;
        Ok(pod)
    }

    /// Returns a pod of the hub at this URL, whose authority is this one.
    pub fn of(hub: String, authority: &str, token: &str) -> Result<Self> {
        let pod = Self::empty(hub)?;
        fs::write(pod.path("hub-ca.crt"), authority)?;
        pod.write_token(token)?;
        Ok(pod)
    }

    fn empty(hub: String) -> Result<Self> {
        let folder = volumes()?;
        let (agent, app, arguments, configs) = (None, None, Vec::new(), "shop");
        let (variables, binary, group) = (Vec::new(), None, None);
        let addresses = "127.0.0.1".to_owned();
        let pod = Self { agent, app, arguments, variables, hub, binary, configs, group, folder, addresses, port: 0 };
        Ok(pod.with(&["--log-format", "text", "--log-level", "debug"]))
    }

    /// Adds arguments.
    #[must_use]
    pub fn with(mut self, arguments: &[&str]) -> Self {
        self.arguments.extend(arguments.iter().map(OsString::from));
        self
    }

    /// Lets the agent listen at this port from the start, instead of a free one.
    #[must_use]
    pub fn at_port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// Gives the pod these addresses, with commas, instead of loopback.
    #[must_use]
    pub fn at_addresses(mut self, addresses: &str) -> Self {
        addresses.clone_into(&mut self.addresses);
        self
    }

    /// Returns a file or folder of the pod.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Puts another token into the agent's volume, as the kubelet does.
    pub fn write_token(&self, token: &str) -> Result<()> {
        fs::write(self.path("hub-token.new"), token)?;
        fs::rename(self.path("hub-token.new"), self.path("hub-token")).context("can't write the token")
    }

    /// Starts what stands for the container `app`, and shows it to the agent that comes to signal it.
    pub async fn start_app(&mut self, app: &str, arguments: &[&str]) -> Result<()> {
        self.start_process(app, arguments).await?;
        let process = format!("app={}", self.app_pid()?);
        self.arguments.extend(["--process".into(), process.into()]);
        Ok(())
    }

    /// Starts a process in the place of the one before, without showing it to the agent.
    pub async fn start_process(&mut self, app: &str, arguments: &[&str]) -> Result<()> {
        self.app = None;
        let output = File::create(self.path("app.out"))?;
        let mut command = Command::new(app);
        command.args(arguments).stdin(Stdio::null()).stdout(output);
        self.app = Some(Process::spawn("app", &mut command)?);
        eventually(WAIT_TIMEOUT, "the app is ready", async || self.app_output().contains("ready").then_some(())).await
    }

    /// Returns the process id of what stands for the container `app`.
    pub fn app_pid(&self) -> Result<i32> {
        Ok(self.app.as_ref().context("no app runs")?.pid())
    }

    /// Returns what it has written.
    pub fn app_output(&self) -> String {
        fs::read_to_string(self.path("app.out")).unwrap_or_default()
    }

    /// Waits until it has written this line this many times, behind its process id.
    pub async fn app_says(&mut self, count: usize, what: &str) -> Result<()> {
        let find = async || {
            let output = self.app_output();
            let lines = output.lines().filter(|line| line.split_once(' ').is_some_and(|(_, said)| said == what));
            (lines.count() >= count).then_some(())
        };
        let waited = eventually(WAIT_TIMEOUT, &format!("the app says {what} {count} times"), find).await;
        waited.map_err(|error| self.explain(&error))
    }

    /// Returns a command of the agent's with the folders of this pod.
    pub fn command(&self, name: &str) -> Result<Command> {
        let program = match &self.binary {
            Some(program) => program,
            None => binary::debug()?,
        };
        let mut command = Command::new(program);
        command.arg(name).arg("--state-dir").arg(self.path("state")).arg("--share-dir").arg(self.path("share"));
        Ok(command)
    }

    /// Starts the agent and returns at once. One that is started again gets the port of the first.
    pub fn spawn(&mut self) -> Result<()> {
        let mut command = self.command("run")?;
        command.args(["--pod-ips", &self.addresses, "--port", &self.port.to_string()]);
        command.arg("--hub-ca-file").arg(self.path("hub-ca.crt")).arg("--hub-token-file").arg(self.path("hub-token"));
        command.arg("--bootstrap-dir").arg(self.path("bootstrap"));
        command.args(["--hub", &self.hub, "--configs", self.configs]).args(&self.arguments);
        command.envs(self.variables.iter().map(|(name, value)| (*name, value)));
        if let Some(group) = self.group {
            command.process_group(group);
        }
        self.agent = Some(Agent::spawn(command, home()?)?);
        Ok(())
    }

    /// Starts the agent and waits until it serves.
    pub async fn start(&mut self) -> Result<Client> {
        self.spawn()?;
        self.client().await
    }

    /// Returns a client of the agent, as soon as it serves.
    pub async fn client(&mut self) -> Result<Client> {
        let serving = eventually(WAIT_TIMEOUT, "the agent serves", async || {
            let mut client = self.connect().ok()?;
            let ready = client.get("/readyz").await.is_ok_and(|reply| reply.status == 200);
            ready.then_some(client)
        });
        let client = serving.await.map_err(|error| self.explain(&error))?;
        self.port = client.address().port();
        Ok(client)
    }

    fn connect(&self) -> Result<Client> {
        let variables = fs::read_to_string(self.path("share/env"))?;
        let variable = |name: &str| {
            let line = variables.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix("='"));
            line.and_then(|value| value.strip_suffix('\'')).with_context(|| format!("no {name}"))
        };
        let endpoint: hyper::Uri = variable(env::ENDPOINT)?.parse()?;
        let address = endpoint.authority().context("no address")?.as_str().parse()?;
        Client::with_token(address, variable(env::TOKEN)?, &self.path("share/ca.crt"))
    }

    /// Ends the agent without giving it time for anything.
    pub async fn kill(&mut self) -> Result<()> {
        let mut agent = self.agent.take().context("no agent runs")?;
        agent.process().signal(nix::sys::signal::Signal::SIGKILL)?;
        agent.process().wait_for_exit(WAIT_TIMEOUT).await.map(drop)
    }

    /// Adds the agent's log to an error.
    pub fn explain(&self, error: &anyhow::Error) -> anyhow::Error {
        self.agent.as_ref().map_or_else(|| anyhow!("{error:#}; no agent runs"), |agent| agent.explain(error))
    }

    /// Waits until the agent's log has this.
    pub async fn logs(&self, what: &str) -> Result<()> {
        let log = || self.agent.as_ref().map(Agent::log).unwrap_or_default();
        let wait = format!("the log has {what}");
        let result = eventually(WAIT_TIMEOUT, &wait, async || log().contains(what).then_some(()));
        result.await.map_err(|error| self.explain(&error))
    }

    /// Waits until `/status` is as expected.
    pub async fn status_when(
        &self,
        client: &mut Client,
        within: Duration,
        what: &str,
        expected: impl Fn(&Status) -> bool,
    ) -> Result<Status> {
        let mut last = None;
        let result = eventually(within, what, async || {
            last = client.status().await.ok();
            last.clone().filter(&expected)
        });
        let result = result.await;
        result.map_err(|error| self.explain(&error.context(format!("the last status is {last:?}"))))
    }

    /// Waits until exactly these versions are served, such as `shop=1.0.1`.
    pub async fn wait_until_served(&self, client: &mut Client, versions: &str) -> Result<Status> {
        let description = format!("the endpoint serves {versions}");
        self.status_when(client, WAIT_TIMEOUT, &description, |status| served(status) == versions).await
    }

    /// Puts a version into the agent's bootstrap volume, as the kubelet does.
    pub fn mount(&self, config: &str, version: &str, part: &str, values: &[(&str, &[u8])]) -> Result<()> {
        let folder = self.path("bootstrap").join(config).join(version).join(part);
        fs::create_dir_all(folder.join("..1"))?;
        std::os::unix::fs::symlink("..1", folder.join("..data"))?;
        for (key, value) in values {
            fs::write(folder.join("..1").join(key), value)?;
            std::os::unix::fs::symlink(Path::new("..data").join(key), folder.join(key))?;
        }
        Ok(())
    }
}

/// Returns a folder in memory, as a pod's volumes for the agent are.
fn volumes() -> Result<TempDir> {
    let memory = Path::new("/dev/shm");
    if !memory.is_dir() {
        return home();
    }
    tempfile::Builder::new().prefix("nudge-pod-").tempdir_in(memory).context("can't make a folder for the pod")
}

/// Returns the versions of a status in order, such as `shop=1.0.1,keys=7`.
pub fn served(status: &Status) -> String {
    let versions = status.configs.iter().map(|config| format!("{}={}", config.name, config.version));
    versions.collect::<Vec<_>>().join(",")
}
