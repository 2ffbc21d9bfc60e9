//! A stand-in for a kubelet, which follows exactly the pod that the API server has stored: environment, volumes, users,
//! hooks and order. It starts processes of this machine under roots of their own, in control groups that are named like
//! containers, and writes the pod's status.
//!
//! The pod stays JSON: a typed one would drop the fields of servers that are newer than the types.

mod environment;
pub mod pod;
mod sandbox;
mod security;
pub mod subscriber;
mod volumes;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::Client;
use kube::api::{ListParams, Patch, PatchParams};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use self::environment::{Lookup, Variables};
use self::sandbox::Sandbox;
use self::security::Security;
use crate::agent::WAIT_TIMEOUT;
use crate::cgroup::Cgroup;
use crate::cluster::TestNamespace;
use crate::fakes::hub_tls::sha256;
use crate::{Process, eventually, tools};

pub use self::sandbox::Image;

/// Reads a pod as it is stored.
pub async fn stored(client: &Client, namespace: &str, name: &str) -> Result<Value> {
    let request = hyper::Request::get(format!("/api/v1/namespaces/{namespace}/pods/{name}")).body(Vec::new())?;
    Ok(client.request(request).await?)
}

/// Makes a pod through the API server, with whatever its webhooks change, and returns what is stored.
pub async fn create(client: &Client, namespace: &str, pod: &Value) -> Result<Value> {
    post(client, &format!("/api/v1/namespaces/{namespace}/pods"), pod).await
}

/// Returns the same without storing it.
pub async fn create_dry(client: &Client, namespace: &str, pod: &Value) -> Result<Value> {
    post(client, &format!("/api/v1/namespaces/{namespace}/pods?dryRun=All"), pod).await
}

async fn post(client: &Client, path: &str, pod: &Value) -> Result<Value> {
    let request = hyper::Request::post(path);
    let request = request.header("content-type", "application/json").body(serde_json::to_vec(pod)?)?;
    Ok(client.request(request).await?)
}

/// Returns a copy of the agent's program with the capability to send signals to anyone, in a folder.
pub fn with_kill(program: &Path, folder: &Path) -> Result<Option<PathBuf>> {
    let Some(setcap) = tools::find("setcap")? else { return Ok(None) };
    let copy = folder.join("nudge-agent-kill");
    fs::copy(program, &copy)?;
    let set = Command::new(setcap).arg("cap_kill+ep").arg(&copy).status()?;
    ensure!(set.success(), "a program can't be given a capability in {}", folder.display());
    Ok(Some(copy))
}

/// A container that was started.
struct Container {
    // Dropped in this order: a control group can go when its processes have.
    process: Process,
    group: Cgroup,
    sandbox: Sandbox,
    id: String,
    restarts: u32,
    ended: bool,
}

/// A kubelet with one pod.
pub struct Kubelet {
    containers: BTreeMap<String, Container>,
    space: TestNamespace,
    pod: Value,
    images: BTreeMap<String, Image>,
    folder: TempDir,
    /// Values of ConfigMaps and Secrets that variables refer to.
    referred: BTreeMap<(String, String), BTreeMap<String, String>>,
    services: Variables,
}

impl Kubelet {
    /// Takes a stored pod: makes its volumes and writes that it has an address. `None` if that can't be done here.
    pub async fn take(space: &TestNamespace, pod: &Value, images: BTreeMap<String, Image>) -> Result<Option<Self>> {
        if !sandbox::is_possible()? {
            return Ok(None);
        }
        let memory = Path::new("/dev/shm");
        let mut builder = tempfile::Builder::new();
        builder.prefix("nudge-kubelet-").permissions(fs::Permissions::from_mode(0o755));
        let folder = if memory.is_dir() { builder.tempdir_in(memory)? } else { builder.tempdir()? };
        for name in ["volumes", "roots"] {
            fs::create_dir(folder.path().join(name))?;
            fs::set_permissions(folder.path().join(name), fs::Permissions::from_mode(0o755))?;
        }
        let (containers, referred, services) = <(BTreeMap<_, _>, BTreeMap<_, _>, Variables)>::default();
        let mut kubelet =
            Self { containers, space: space.clone(), pod: pod.clone(), images, folder, referred, services };
        kubelet.write_status().await?;
        let name = pod["metadata"]["name"].as_str().context("a pod without a name")?;
        kubelet.pod = stored(&space.client, &space.name, name).await?;
        kubelet.look_up().await?;
        for volume in pod["spec"]["volumes"].as_array().into_iter().flatten() {
            let name = volume["name"].as_str().context("a volume without a name")?;
            volumes::make(space, &kubelet.pod, volume, &kubelet.volume(name)).await?;
        }
        Ok(Some(kubelet))
    }

    /// Returns the folder of a volume.
    pub fn volume(&self, name: &str) -> PathBuf {
        self.folder.path().join("volumes").join(name)
    }

    /// Reads what variables of the pod refer to.
    async fn look_up(&mut self) -> Result<()> {
        let mut references = Vec::new();
        for container in self.specifications() {
            let of_variables = container["env"].as_array().into_iter().flatten().map(|one| &one["valueFrom"]);
            for from in of_variables.chain(container["envFrom"].as_array().into_iter().flatten()) {
                let kinds = [
                    ("configMapKeyRef", "configmaps"),
                    ("secretKeyRef", "secrets"),
                    ("configMapRef", "configmaps"),
                    ("secretRef", "secrets"),
                ];
                for (kind, resource) in kinds {
                    references.extend(from[kind]["name"].as_str().map(|name| (resource.to_owned(), name.to_owned())));
                }
            }
        }
        for (resource, name) in references {
            if let Some(values) = volumes::values(&self.space, &resource, &name).await? {
                let texts = values.into_iter().filter_map(|(key, value)| Some((key, String::from_utf8(value).ok()?)));
                self.referred.insert((resource, name), texts.collect());
            }
        }
        if self.pod["spec"]["enableServiceLinks"] != false {
            for service in self.space.api::<Service>().list(&ListParams::default()).await?.items {
                let spec = service.spec.unwrap_or_default();
                let Some(ip) = spec.cluster_ip.filter(|ip| ip != "None") else { continue };
                let ports: Vec<_> =
                    spec.ports.unwrap_or_default().into_iter().map(|port| (port.name, port.port)).collect();
                self.services.extend(environment::of_service(&service.metadata.name.unwrap_or_default(), &ip, &ports));
            }
        }
        Ok(())
    }

    /// Returns all containers of the specification, the init containers first.
    fn specifications(&self) -> Vec<&Value> {
        let lists = ["initContainers", "containers", "ephemeralContainers"].into_iter();
        lists.filter_map(|list| self.pod["spec"][list].as_array()).flatten().collect()
    }

    fn specification(&self, name: &str) -> Result<Value> {
        let entry = self.specifications().into_iter().find(|container| container["name"] == name).cloned();
        entry.with_context(|| format!("the pod has no container {name}"))
    }

    /// Starts the pod's containers in the order of a kubelet: a sidecar's `postStart` hook or startup probe ends before
    /// the next one starts, an init container that is none runs to its end, then come the ordinary ones, each with its
    /// hook.
    pub async fn start(&mut self) -> Result<()> {
        let init = self.pod["spec"]["initContainers"].as_array().cloned().unwrap_or_default();
        for container in &init {
            let name = container["name"].as_str().context("a container without a name")?;
            self.start_container(name).await?;
            if container["restartPolicy"] != "Always" {
                let status = self.running(name)?.process.wait_for_exit(WAIT_TIMEOUT).await?;
                ensure!(status.success(), "init container {name} failed: {status}; {}", self.log(name));
                self.running(name)?.ended = true;
            }
        }
        for container in self.pod["spec"]["containers"].as_array().cloned().unwrap_or_default() {
            self.start_container(container["name"].as_str().context("a container without a name")?).await?;
        }
        self.write_status().await
    }

    /// Adds an ephemeral container to the pod through the API server, and starts it.
    pub async fn debug(&mut self, container: &Value) -> Result<()> {
        let name = self.pod["metadata"]["name"].as_str().context("a pod without a name")?.to_owned();
        let added = Patch::Strategic(json!({"spec": {"ephemeralContainers": [container]}}));
        let pods = self.space.api::<Pod>();
        let _: Pod = pods.patch_subresource("ephemeralcontainers", &name, &PatchParams::default(), &added).await?;
        self.pod = stored(&self.space.client, &self.space.name, &name).await?;
        self.start_container(container["name"].as_str().context("a container without a name")?).await
    }

    fn running(&mut self, name: &str) -> Result<&mut Container> {
        self.containers.get_mut(name).with_context(|| format!("container {name} was not started"))
    }

    /// Starts one container again, or for the first time, and runs its hook or its startup probe to the end.
    pub async fn start_container(&mut self, name: &str) -> Result<()> {
        let restarts = self.containers.remove(name).map_or(0, |before| before.restarts + 1);
        let container = self.specification(name)?;
        let image = container["image"].as_str().context("a container without an image")?;
        let image = self.images.get(image).with_context(|| format!("ErrImagePull: no image {image}"))?.clone();
        let mut services = self.services.clone();
        services.insert("HOSTNAME".to_owned(), self.pod["metadata"]["name"].as_str().unwrap_or_default().to_owned());
        let variables = environment::variables(&self.pod, &container, services, &*self)?;
        let security = Security::of(&self.pod, &container, image.user)?;
        let root = self.folder.path().join("roots").join(format!("{name}-{restarts}"));
        let sandbox =
            Sandbox::new(&root, &container, &image, &self.folder.path().join("volumes"), security, variables)?;
        // As a runtime: 64 hexadecimal digits, others with every start.
        let id = sha256(format!("{} {name} {restarts}", self.pod["metadata"]["uid"]).as_bytes());
        let group = Cgroup::new(&id).context("no control group")?;
        let words = sandbox.words(&container, &image);
        let mut command = sandbox.command(&words, &group.processes());
        let log = File::create(self.log_file(name, restarts))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let process = Process::spawn(name, &mut command)?;
        self.containers.insert(name.to_owned(), Container { process, group, sandbox, id, restarts, ended: false });
        for gate in [&container["lifecycle"]["postStart"], &container["startupProbe"]] {
            let words = gate["exec"]["command"].as_array().into_iter().flatten();
            let words: Vec<String> = words.filter_map(Value::as_str).map(str::to_owned).collect();
            if !words.is_empty() {
                self.hook(name, &words).await?;
            }
        }
        self.write_status().await
    }

    /// Runs a hook in a container. As by the kubelet its arguments are not expanded.
    async fn hook(&mut self, name: &str, words: &[String]) -> Result<()> {
        let log = File::create(self.folder.path().join(format!("{name}.hook.log")))?;
        let container = self.running(name)?;
        let mut command = container.sandbox.command(words, &container.group.processes());
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let mut process = Process::spawn("the hook", &mut command)?;
        let status = process.wait_for_exit(WAIT_TIMEOUT).await?;
        if !status.success() {
            let message = fs::read_to_string(self.folder.path().join(format!("{name}.hook.log"))).unwrap_or_default();
            bail!("FailedPostStartHook: {message}; the log of {name}:\n{}", self.log(name));
        }
        Ok(())
    }

    fn log_file(&self, name: &str, restarts: u32) -> PathBuf {
        self.folder.path().join(format!("{name}.{restarts}.log"))
    }

    /// Returns what a container has written since its last start.
    pub fn log(&self, name: &str) -> String {
        let restarts = self.containers.get(name).map_or(0, |container| container.restarts);
        let text = fs::read(self.log_file(name, restarts));
        text.map(|text| String::from_utf8_lossy(&text).into_owned()).unwrap_or_default()
    }

    /// Waits until a container has written this since its last start.
    pub async fn logs(&self, name: &str, what: &str) -> Result<()> {
        let exists = async || self.log(name).contains(what).then_some(());
        let waited = eventually(WAIT_TIMEOUT, &format!("{name} writes {what}"), exists).await;
        waited.with_context(|| {
            let logs = self.containers.keys().map(|name| format!("--- {name}:\n{}", self.log(name)));
            logs.collect::<Vec<_>>().join("\n")
        })
    }

    /// Returns the id of a container as it runs now.
    pub fn id(&self, name: &str) -> Result<&str> {
        Ok(&self.containers.get(name).with_context(|| format!("container {name} was not started"))?.id)
    }

    /// Returns the variables that a container was started with.
    pub fn variables(&self, name: &str) -> Result<&BTreeMap<String, String>> {
        Ok(self.containers.get(name).with_context(|| format!("container {name} was not started"))?.sandbox.variables())
    }

    /// Returns the process id of a container's first process.
    pub fn pid(&mut self, name: &str) -> Result<i32> {
        Ok(self.running(name)?.process.pid())
    }

    /// Returns what a container has said about its end.
    pub fn termination_message(&mut self, name: &str) -> Result<String> {
        Ok(self.running(name)?.sandbox.termination_message())
    }

    /// Kills a container and starts it again, as when it has crashed. Volumes stay.
    pub async fn crash(&mut self, name: &str) -> Result<()> {
        self.running(name)?.process.signal(Signal::SIGKILL)?;
        self.running(name)?.process.wait_for_exit(WAIT_TIMEOUT).await?;
        self.start_container(name).await
    }

    /// Runs a program in a running container: its exit code and what it has written.
    pub async fn exec(&mut self, name: &str, words: &[&str]) -> Result<(Option<i32>, String)> {
        let output = self.folder.path().join(format!("{name}.exec.log"));
        let log = File::create(&output)?;
        let container = self.running(name)?;
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        let mut command = container.sandbox.command(&words, &container.group.processes());
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let status = Process::spawn("the program", &mut command)?.wait_for_exit(WAIT_TIMEOUT).await?;
        Ok((status.code(), String::from_utf8_lossy(&fs::read(&output)?).into_owned()))
    }

    /// Waits for the end of a container that ends by itself and stays so, and writes that to the API server.
    pub async fn wait_for_end(&mut self, name: &str) -> Result<Option<i32>> {
        let container = self.running(name)?;
        let status = container.process.wait_for_exit(WAIT_TIMEOUT).await?;
        container.ended = true;
        self.write_status().await?;
        Ok(status.code())
    }

    /// Ends a container in good order, for good.
    pub async fn stop(&mut self, name: &str) -> Result<()> {
        let container = self.running(name)?;
        container.process.stop()?;
        container.ended = true;
        self.write_status().await
    }

    /// Writes the pod's status as it is.
    async fn write_status(&self) -> Result<()> {
        let now = &self.pod["metadata"]["creationTimestamp"];
        let state = |container: &Container| {
            let id = format!("containerd://{}", container.id);
            if container.ended {
                json!({"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": now, "finishedAt": now, "containerID": id}})
            } else {
                json!({"running": {"startedAt": now}})
            }
        };
        let status = |one: &Value| match self.containers.get(one["name"].as_str().unwrap_or_default()) {
            Some(container) => json!({
                "name": one["name"], "image": one["image"], "imageID": "test", "restartCount": container.restarts,
                "ready": !container.ended, "started": !container.ended,
                "containerID": format!("containerd://{}", container.id), "state": state(container),
            }),
            None => json!({
                "name": one["name"], "image": one["image"], "imageID": "", "restartCount": 0, "ready": false, "started": false,
                "state": {"waiting": {"reason": "PodInitializing"}},
            }),
        };
        let list = |list: &str| self.pod["spec"][list].as_array().into_iter().flatten().map(status).collect::<Vec<_>>();
        let all_run = self
            .specifications()
            .iter()
            .all(|specification| self.containers.contains_key(specification["name"].as_str().unwrap_or_default()));
        let ready = if all_run { "True" } else { "False" };
        let condition =
            |(kind, status): (&str, &str)| json!({"type": kind, "status": status, "lastTransitionTime": now});
        let conditions =
            [("PodScheduled", "True"), ("Initialized", ready), ("ContainersReady", ready), ("Ready", ready)]
                .map(condition);
        let status = json!({"status": {
            "phase": if all_run { "Running" } else { "Pending" }, "startTime": now,
            // Processes that stand for the pod are on this machine.
            "podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}], "hostIP": "127.0.0.1",
            "conditions": conditions,
            "initContainerStatuses": list("initContainers"), "containerStatuses": list("containers"),
            "ephemeralContainerStatuses": list("ephemeralContainers"),
        }});
        let name = self.pod["metadata"]["name"].as_str().context("a pod without a name")?;
        let pods = self.space.api::<Pod>();
        // Conditions of others stay, as with a kubelet: by their type.
        pods.patch_status(name, &PatchParams::default(), &Patch::Strategic(status)).await?;
        Ok(())
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        // All at once, or each would take the time that the one before takes.
        for container in self.containers.values() {
            let _ = container.process.signal(Signal::SIGTERM);
        }
    }
}

impl Lookup for Kubelet {
    fn key(&self, resource: &str, name: &str, key: &str) -> Option<String> {
        self.all(resource, name)?.get(key).cloned()
    }

    fn all(&self, resource: &str, name: &str) -> Option<BTreeMap<String, String>> {
        self.referred.get(&(resource.to_owned(), name.to_owned())).cloned()
    }

    fn file(&self, volume: &str, path: &str) -> Option<String> {
        fs::read_to_string(self.volume(volume).join(path)).ok()
    }
}
