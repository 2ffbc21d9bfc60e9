//! A pod of the fleet: an object that the API server holds, and the processes that stand for it: a real agent and an application.

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
use nudge_tests::cluster::{Cluster, Space};
use nudge_tests::{Pod, Process, ports, procfs};
use serde_json::json;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};

use super::disk::Disk;
use super::kubelet::{Condition, kubelet};
use super::nodes::{self, NODES, Nodes};
use super::secrets::Canaries;
use super::tail::tail;
use crate::history::recorder::Recorder;
use crate::history::{self, What};
use crate::proxy::tcp::{Caller, Door, Service};

/// The workloads: each with the configs of its pods.
pub(crate) const WORKLOADS: [(&str, &str); 4] =
    [("web", "shop,keys"), ("api", "shop"), ("worker", "keys"), ("batch", "flags")];

/// How long a token may take, an answer to a request for one, and the time between two requests.
const PATIENCE: Duration = Duration::from_mins(2);
const ANSWER: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(500);

/// One pod.
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) workload: usize,
    // Before the folder that it is mounted in.
    pub(crate) disk: Disk,
    pub(crate) pod: Pod,
    pub(crate) object: PodObject,
    /// Starts the application again whenever it has ended, as a kubelet does.
    app: Process,
    pub(crate) condition: Arc<Condition>,
    canaries: Canaries,
    recorder: Recorder,
    /// What its agents have logged that have ended.
    log: PathBuf,
    /// Its way to the hubs.
    _door: Door,
    tasks: [AbortHandle; 2],
}

/// What a new pod needs to know.
pub(crate) struct Birth<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) space: &'a Space,
    pub(crate) hubs: &'a Service,
    pub(crate) recorder: &'a Recorder,
    pub(crate) canaries: &'a Canaries,
    pub(crate) nodes: &'a Nodes,
}

impl Birth<'_> {
    /// The pod of this number: the object, and its processes, which are not waited for. `image` is what pods of another template differ in.
    pub(crate) async fn member(&self, number: usize, workload: usize, image: usize) -> Result<Member> {
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
        let born = history::Pod {
            name: name.clone(),
            uid: object.uid().context("no uid")?,
            workload: format!("Deployment/{deployment}"),
            labels: object.metadata.labels.clone().unwrap_or_default(),
            configs: configs.split(',').map(str::to_owned).collect(),
        };
        self.recorder.note(What::Born(born));
        let door = self.hubs.door(Caller { pod: name.clone(), recorder: self.recorder.clone() }).await?;
        let hub = format!("https://{}", door.address);
        let mut pod = Pod::of(hub, &hub_ca(self.space).await?, &agent_token(self.space, &object).await?)?;
        pod.configs = configs;
        pod.group = Some(self.cluster.group());
        let files = pod.path("files");
        let mut pod = pod.with(&["--mount-path", text(&files)?, "--notify", "app=SIGUSR1"]).at_port(ports::free()?);
        let disk = Disk::new([files, pod.path("state")])?;
        let app = application(&pod, |command| self.cluster.guard(command))?;
        pod.arguments.extend(["--process".into(), format!("app={}", app.pid()).into()]);
        pod.spawn()?;
        let condition = Arc::new(Condition::default());
        let tasks = [
            tokio::spawn(tail(pod.path("app.out"), name.clone(), self.recorder.clone(), Arc::clone(&condition))),
            tokio::spawn(kubelet(self.space.clone(), name.clone(), Arc::clone(&condition), ready)),
        ];
        let folder = logs(self.cluster);
        fs::create_dir_all(&folder)?;
        let log = folder.join(format!("{name}.log"));
        Ok(Member {
            name,
            workload,
            pod,
            object,
            disk,
            app,
            condition,
            canaries: self.canaries.clone(),
            recorder: self.recorder.clone(),
            log,
            _door: door,
            tasks: tasks.map(|task| task.abort_handle()),
        })
    }
}

/// Where the logs of agents are.
pub(crate) fn logs(cluster: &Cluster) -> PathBuf {
    cluster.folder().join("agents")
}

/// Puts another token of a pod's account into its agent's volume, as soon as there is one; none if the pod is gone.
pub(crate) async fn renew_token(space: &Space, object: &PodObject, file: &Path) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    let token = loop {
        match timeout(ANSWER, agent_token(space, object)).await {
            Ok(Ok(token)) => break token,
            _ if file.parent().is_none_or(|folder| !folder.exists()) => return Ok(()),
            _ => ensure!(Instant::now() < deadline, "no token within {PATIENCE:?}"),
        }
        sleep(PAUSE).await;
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

/// The application below what starts it again.
pub(super) fn application(pod: &Pod, guard: impl FnOnce(&mut Command)) -> Result<Process> {
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
    /// Ends its agent without giving it time for anything.
    pub(crate) fn kill_agent(&mut self) -> Result<()> {
        let Some(mut agent) = self.pod.agent.take() else { return Ok(()) };
        agent.process().kill()?;
        append(&self.log, &agent.log())?;
        self.canaries.look(&format!("the log of the agent of {}", self.name), &agent.log(), &self.recorder);
        self.recorder.note(What::AgentKilled { pod: self.name.clone() });
        Ok(())
    }

    /// How its agent has ended by itself, if it has.
    pub(crate) fn agent_ended(&mut self) -> Result<Option<ExitStatus>> {
        self.pod.agent.as_mut().map_or(Ok(None), |agent| agent.process().try_exited())
    }

    /// Adds what the agent has logged since its start to the log of the pod.
    pub(crate) fn keep_log(&self) -> Result<()> {
        self.pod.agent.as_ref().map_or(Ok(()), |agent| append(&self.log, &agent.log()))
    }

    /// Starts it anew, where it does not run.
    pub(crate) fn start_agent(&mut self) -> Result<()> {
        if self.pod.agent.is_some() {
            return Ok(());
        }
        self.pod.spawn()?;
        self.condition.agent_restarted();
        Ok(())
    }

    /// Sends a signal to the agent.
    pub(crate) fn signal_agent(&self, signal: Signal) -> Result<()> {
        let agent = self.pod.agent.as_ref().context("no agent")?;
        Ok(kill(Pid::from_raw(agent.pid()), signal)?)
    }

    /// Sends a signal to the application; one that is between two lives gets none.
    pub(crate) fn signal_app(&self, signal: Signal) -> Result<()> {
        for pid in procfs::descendants(self.app.pid())? {
            // It may have ended by itself.
            let _ = kill(Pid::from_raw(pid), signal);
        }
        Ok(())
    }

    /// The pod is gone, and so are its processes.
    pub(crate) fn bury(mut self) -> Result<()> {
        self.kill_agent()?;
        self.app.stop()?;
        self.recorder.note(What::Gone { pod: self.name.clone() });
        Ok(())
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}
