//! A pod of the fleet: an object that the API server holds, with a real agent and an application as processes.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod as PodObject;
use kube::ResourceExt as _;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use nudge_tests::cluster::installation::{agent_token, hub_ca, injected_pod_with};
use nudge_tests::cluster::{Cluster, TestNamespace};
use nudge_tests::{Pod, Process, ports, procfs};
use serde_json::json;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};

use super::app_output::record_output;
use super::disk::Disk;
use super::kubelet::{PodHealth, write_pod_status};
use super::nodes::{self, NODES, Nodes};
use super::secrets::Canaries;
use crate::history::recorder::Recorder;
use crate::history::{self, Occurrence};
use crate::proxy::tcp::{Caller, Service, ServiceListener};

/// The workloads, each with the configs of its pods.
pub(crate) const WORKLOADS: [(&str, &str); 4] =
    [("web", "shop,keys"), ("api", "shop"), ("worker", "keys"), ("batch", "flags")];

/// How long a token may take.
const TOKEN_TIMEOUT: Duration = Duration::from_mins(2);
/// How long the answer to one request for a token may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// The time between two requests for a token.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// A pod of the fleet.
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) workload: usize,
    // Dropped before the folder that it is mounted in.
    pub(crate) disk: Disk,
    pub(crate) pod: Pod,
    pub(crate) object: PodObject,
    /// Starts the application again whenever it has ended, as a kubelet does.
    app: Process,
    pub(crate) health: Arc<PodHealth>,
    canaries: Canaries,
    recorder: Recorder,
    /// The file with what its agents have logged that have ended.
    log: PathBuf,
    /// The address at which its agent reaches the hubs.
    _hub_listener: ServiceListener,
    tasks: [AbortHandle; 2],
}

/// What pods of the fleet are created from.
pub(crate) struct PodFactory<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) space: &'a TestNamespace,
    pub(crate) hubs: &'a Service,
    pub(crate) recorder: &'a Recorder,
    pub(crate) canaries: &'a Canaries,
    pub(crate) nodes: &'a Nodes,
}

impl PodFactory<'_> {
    /// Creates the pod of this number: the object, and its processes, which are not waited for. `image` is what pods of
    /// another template differ in.
    pub(crate) async fn create_member(&self, number: usize, workload: usize, image: usize) -> Result<Member> {
        let (deployment, configs) = WORKLOADS[workload];
        let hash = format!("5d59{image}");
        let name = format!("{deployment}-{hash}-{number}");
        let owner = json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("{deployment}-{hash}"),
            "uid": format!("uid-{deployment}-{image}"), "controller": true,
        });
        let labels = json!({"pod-template-hash": hash, "app": deployment});
        let meta = json!({"name": name, "labels": labels, "ownerReferences": [owner]});
        let object = injected_pod_with(self.space, configs, &meta, &json!({})).await?;
        let node = NODES[number % NODES.len()];
        nodes::bind(self.space, &name, node).await?;
        let ready = self.nodes.follow(node).context("no such node")?;
        let created = history::Pod {
            name: name.clone(),
            uid: object.uid().context("no uid")?,
            workload: format!("Deployment/{deployment}"),
            labels: object.metadata.labels.clone().unwrap_or_default(),
            configs: configs.split(',').map(str::to_owned).collect(),
        };
        self.recorder.note(Occurrence::PodCreated(created));
        let hub_listener = self.hubs.listen_for(Caller { pod: name.clone(), recorder: self.recorder.clone() }).await?;
        let hub = format!("https://{}", hub_listener.address);
        let mut pod = Pod::of(hub, &hub_ca(self.space).await?, &agent_token(self.space, &object).await?)?;
        pod.configs = configs;
        pod.group = Some(self.cluster.group());
        let files = pod.path("files");
        let mut pod = pod.with(&["--mount-path", text(&files)?, "--notify", "app=SIGUSR1"]).at_port(ports::free()?);
        let disk = Disk::new([files, pod.path("state")])?;
        let app = start_application(&pod, |command| self.cluster.guard(command))?;
        pod.arguments.extend(["--process".into(), format!("app={}", app.pid()).into()]);
        pod.spawn()?;
        let health = Arc::new(PodHealth::default());
        let tasks = [
            tokio::spawn(record_output(pod.path("app.out"), name.clone(), self.recorder.clone(), Arc::clone(&health))),
            tokio::spawn(write_pod_status(self.space.clone(), name.clone(), Arc::clone(&health), ready)),
        ];
        let folder = log_folder(self.cluster);
        fs::create_dir_all(&folder)?;
        let log = folder.join(format!("{name}.log"));
        Ok(Member {
            name,
            workload,
            pod,
            object,
            disk,
            app,
            health,
            canaries: self.canaries.clone(),
            recorder: self.recorder.clone(),
            log,
            _hub_listener: hub_listener,
            tasks: tasks.map(|task| task.abort_handle()),
        })
    }
}

/// Returns the folder with the logs of agents.
pub(crate) fn log_folder(cluster: &Cluster) -> PathBuf {
    cluster.folder().join("agents")
}

/// Writes a new token of a pod's account into the volume of its agent, unless the pod is gone.
pub(crate) async fn renew_token(space: &TestNamespace, object: &PodObject, file: &Path) -> Result<()> {
    let deadline = Instant::now() + TOKEN_TIMEOUT;
    let token = loop {
        match timeout(REQUEST_TIMEOUT, agent_token(space, object)).await {
            Ok(Ok(token)) => break token,
            _ if file.parent().is_none_or(|folder| !folder.exists()) => return Ok(()),
            _ => ensure!(Instant::now() < deadline, "no token within {TOKEN_TIMEOUT:?}"),
        }
        sleep(RETRY_INTERVAL).await;
    };
    let draft = file.with_extension("new");
    match fs::write(&draft, token).and_then(|()| fs::rename(&draft, file)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

fn append(log: &Path, text: &str) -> Result<()> {
    let mut file = File::options().create(true).append(true).open(log)?;
    Ok(file.write_all(text.as_bytes())?)
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("the path is not UTF-8")
}

/// Starts the application of a pod, below a shell that starts it again whenever it has ended.
pub(super) fn start_application(pod: &Pod, guard: impl FnOnce(&mut Command)) -> Result<Process> {
    let mut command = Command::new("sh");
    command.args(["-c", r#"while :; do "$@"; done"#, "sh", env!("CARGO_BIN_EXE_observer")]);
    command.arg("--share").arg(pod.path("share")).arg("--files").arg(pod.path("files"));
    let output = File::create(pod.path("app.out"))?;
    let errors = File::create(pod.path("app.err"))?;
    command.stdin(Stdio::null()).stdout(output).stderr(errors);
    guard(&mut command);
    Process::spawn("app", &mut command)
}

impl Member {
    /// Kills the agent.
    pub(crate) fn kill_agent(&mut self) -> Result<()> {
        let Some(mut agent) = self.pod.agent.take() else { return Ok(()) };
        agent.process().kill()?;
        append(&self.log, &agent.log())?;
        self.canaries.record_leak(&format!("the log of the agent of {}", self.name), &agent.log(), &self.recorder);
        self.recorder.note(Occurrence::AgentKilled { pod: self.name.clone() });
        Ok(())
    }

    /// Returns the status of the agent, if it has ended by itself.
    pub(crate) fn agent_exit_status(&mut self) -> Result<Option<ExitStatus>> {
        self.pod.agent.as_mut().map_or(Ok(None), |agent| agent.process().try_exited())
    }

    /// Adds what the agent has logged since its start to the log of the pod.
    pub(crate) fn store_log(&self) -> Result<()> {
        self.pod.agent.as_ref().map_or(Ok(()), |agent| append(&self.log, &agent.log()))
    }

    /// Starts the agent, unless it runs.
    pub(crate) fn start_agent(&mut self) -> Result<()> {
        if self.pod.agent.is_some() {
            return Ok(());
        }
        self.pod.spawn()?;
        self.health.record_agent_restart();
        Ok(())
    }

    /// Sends a signal to the agent.
    pub(crate) fn signal_agent(&self, signal: Signal) -> Result<()> {
        let agent = self.pod.agent.as_ref().context("no agent")?;
        Ok(kill(Pid::from_raw(agent.pid()), signal)?)
    }

    /// Sends a signal to the application, if it runs at this moment.
    pub(crate) fn signal_app(&self, signal: Signal) -> Result<()> {
        for pid in procfs::descendants(self.app.pid())? {
            // The process may have ended by itself.
            let _ = kill(Pid::from_raw(pid), signal);
        }
        Ok(())
    }

    /// Ends the processes of a pod that was deleted.
    pub(crate) fn end(mut self) -> Result<()> {
        self.kill_agent()?;
        self.app.stop()?;
        self.recorder.note(Occurrence::PodDeleted { pod: self.name.clone() });
        Ok(())
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}
