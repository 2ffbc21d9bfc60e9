//! The transcripts of injector/KUBECTL.md, run by a shell, through a real kubectl, against a real API server with the
//! control plane, and with agents as real processes.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod as PodObject};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, ResourceExt as _};
use nudge_api::{ConfigSource, ConfigState, PartKind, VersionStatus, VersionedConfig, VersionedConfigStatus};
use nudge_tests::cluster::TestNamespace;
use nudge_tests::cluster::assigned::pod_number;
use nudge_tests::cluster::installation::{agent_token, bind, hub_ca, injected_pod_of};
use nudge_tests::commands::transcript::{Piece, difference, parse, render};
use nudge_tests::servers::git_content::git_content;
use nudge_tests::{Finished, Installation, Pod, Replica, binary, eventually};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::config_sources::scene::sources;

/// The limit on a busy machine.
const WAIT_TIMEOUT: Duration = Duration::from_secs(90);
/// If this variable is `1`, the test writes the page instead of comparing it.
const WRITE: &str = "NUDGE_WRITE_TRANSCRIPTS";
/// Replaces the URL of every source.
const SOURCE_URL: &str = "https://git.example.com/banner";
/// Replaces every time.
const TIME: &str = "2026-01-01T12:00:00Z";
/// Replaces the digest of every version with Secrets, whose seals are others in each cluster.
const DIGEST: &str = "5ea1ed0c0de500000000000000000000";
/// Two pods of each of two workloads, in the order in which they are assigned a version.
const PODS: [&str; 4] = ["api-5d8f7c6b9d-4kq2z", "web-7d4b9c6f5-mz8rt", "api-5d8f7c6b9d-w7x5n", "web-7d4b9c6f5-x2x7p"];

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../injector/KUBECTL.md")
}

/// The cluster and the files for the commands of the page.
struct Stage<'a> {
    installation: &'a Installation<'static>,
    replica: &'a Replica,
    space: TestNamespace,
    folder: TempDir,
    pods: Vec<Pod>,
}

impl<'a> Stage<'a> {
    /// Returns a namespace, a directory with files, and a search path with kubectl and the plugin.
    async fn new(installation: &'a Installation<'static>, replica: &'a Replica, kubectl: &Path) -> Result<Self> {
        let client = installation.cluster.admin().await?;
        let space = TestNamespace { client: client.clone(), name: "shop".to_owned() };
        let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": space.name}}))?;
        Api::all(client).create(&PostParams::default(), &namespace).await?;
        let folder = tempfile::tempdir()?;
        let path = |name: &str| folder.path().join(name);
        for name in ["bin", "config"] {
            fs::create_dir(path(name))?;
        }
        symlink(kubectl, path("bin/kubectl"))?;
        for name in ["kubectl-nudge", "kubectl_complete-nudge"] {
            symlink(binary::kubectl_nudge()?, path("bin").join(name))?;
        }
        fs::write(path("config/game.properties"), "enemies=aliens\nlives=3\n")?;
        fs::write(path("config/greeting"), "hello\n")?;
        let schema = "{properties: {lives: {type: integer, minimum: 1}}, additionalProperties: false}";
        let rules = format!(
            "- {{name: keys, required: [game.json, greeting]}}\n- name: game\n  key: game.json\n  schema: {{inline: {schema}}}\n"
        );
        fs::write(path("rules.yaml"), rules)?;
        fs::write(path("game.env"), "LIVES=5\nSPEED=2\n")?;
        fs::write(path("notes.txt"), "remember: the tournament\n")?;
        let identity = installation.cluster.administrator();
        let mut config: Value = serde_json::from_str(&installation.cluster.kubeconfig_of(&identity))?;
        config["contexts"][0]["context"]["namespace"] = json!(space.name);
        fs::write(path("kubeconfig"), config.to_string())?;
        Ok(Self { installation, replica, space, folder, pods: Vec::new() })
    }

    /// Returns the text with equal digests.
    async fn with_equal_digests(&self, text: String) -> Result<String> {
        let configs = self.space.api::<VersionedConfig>().list(&ListParams::default()).await?.items;
        let versions = configs.iter().filter_map(|config| config.status.as_ref()).flat_map(|status| &status.versions);
        let differs = |version: &&VersionStatus| {
            !version.digest.is_empty() && version.parts.iter().any(|part| part.kind == PartKind::Secret)
        };
        Ok(versions.filter(differs).fold(text, |text, version| text.replace(&version.digest, DIGEST)))
    }

    /// Returns the text with equal URLs of sources, in tables too.
    async fn with_equal_urls(&self, text: String) -> Result<String> {
        let cell = |text: &str, url: &str| format!("{text}{}", " ".repeat(url.len().saturating_sub(text.len())));
        let sources = match self.space.api::<ConfigSource>().list(&ListParams::default()).await {
            Ok(sources) => sources.items,
            // The kind is not served before a step requests sources.
            Err(_) => return Ok(text),
        };
        let urls = sources.into_iter().filter_map(|source| source.spec.from.git).map(|git| git.url);
        Ok(urls.fold(text, |text, url| {
            text.replace(&url, SOURCE_URL).replace(&cell("FROM", &url), &cell("FROM", SOURCE_URL))
        }))
    }

    /// Returns the output of the command, with equal times, digests and URLs.
    async fn output(&self, line: &str) -> Result<String> {
        let folder = self.folder.path();
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("exec 2>&1\n{line}")).current_dir(folder);
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", folder.join("bin").display()));
        command.env("KUBECONFIG", folder.join("kubeconfig")).env("HOME", folder);
        let ended = tokio::task::spawn_blocking(move || Finished::of(&mut command)).await??;
        let mut output = self.with_equal_urls(self.with_equal_digests(normal(&ended.stdout)).await?).await?;
        if !output.is_empty() && !output.ends_with('\n') {
            output.push('\n');
        }
        match ended.code {
            Some(0) => {}
            Some(code) => output = format!("{output}[exit code {code}]\n"),
            None => bail!("{line} was ended by a signal: {output}"),
        }
        Ok(output)
    }

    /// Does a step of the page before its next commands.
    async fn step(&mut self, step: &str) -> Result<()> {
        match step {
            "pods" => self.start_pods().await,
            "sources" => self.start_sources().await,
            step => self.act(step).await,
        }
    }

    /// Does a step that can also happen while a command runs.
    async fn act(&self, step: &str) -> Result<()> {
        match step.split(' ').collect::<Vec<_>>()[..] {
            ["config", "map", name] => {
                let map = json!({"metadata": {"name": name}, "data": {"from": "shop@example.com", "retries": "3"}});
                self.space.create_object::<ConfigMap>(map).await.map(drop)
            }
            ["complete", config, version] => {
                self.wait_for_status(config, step, |status| status.version(version).is_some()).await
            }
            ["current", config, version] => {
                let is_expected = |status: &VersionedConfigStatus| {
                    status.state() == ConfigState::Current && status.current_version.as_deref() == Some(version)
                };
                self.wait_for_status(config, step, is_expected).await
            }
            ["held", config] => {
                let matches_expected = |status: &VersionedConfigStatus| {
                    status.conditions.iter().any(|condition| condition.reason == "OnHold")
                };
                self.wait_for_status(config, step, matches_expected).await
            }
            ["source", name] => {
                let content = git_content(&self.space, name, "welcome").await?.context("no git server")?;
                let spec = json!({"from": content.from, "debounceSeconds": 0, "minPeriodSeconds": 0});
                self.space.create_object::<ConfigSource>(json!({"metadata": {"name": name}, "spec": spec})).await?;
                self.source_is(name, "Activated").await
            }
            ["source", name, reason] => self.source_is(name, reason).await,
            ["ready", pod] => self.set_ready(pod, true).await,
            ["unready", pod, "with", version] => {
                let pods = self.space.api::<PodObject>();
                let runs = async || {
                    let status = pods.get(pod).await.ok()?.status?;
                    let said = status.conditions?.into_iter().filter_map(|condition| condition.message);
                    said.into_iter().any(|said| said.contains(version)).then_some(())
                };
                eventually(WAIT_TIMEOUT, step, runs).await?;
                self.set_ready(pod, false).await
            }
            ["flux", config, version] => {
                let object = json!({
                    "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig",
                    "metadata": {"name": config, "namespace": self.space.name}, "spec": {"version": version},
                });
                let apply = ["apply", "--server-side", "--force-conflicts", "--field-manager=kustomize-controller"];
                self.installation.cluster.kubectl_on(&apply, &object.to_string()).await.map(drop)
            }
            _ => bail!("the page has the unknown step {step:?}"),
        }
    }

    /// Lets sources work here.
    async fn start_sources(&mut self) -> Result<()> {
        sources(self.installation).await?;
        bind(&self.space, "nudge-sources").await
    }

    async fn source_is(&self, name: &str, reason: &str) -> Result<()> {
        let api = self.space.api::<ConfigSource>();
        let is_expected = async || {
            let conditions = api.get(name).await.ok()?.status?.conditions;
            conditions.iter().any(|condition| condition.type_ == "Ready" && condition.reason == reason).then_some(())
        };
        eventually(WAIT_TIMEOUT, &format!("source {name} is {reason}"), is_expected).await
    }

    async fn wait_for_status(
        &self,
        config: &str,
        what: &str,
        is: impl Fn(&VersionedConfigStatus) -> bool,
    ) -> Result<()> {
        let api = self.space.api::<VersionedConfig>();
        let find = async || api.get(config).await.ok()?.status.filter(&is).map(drop);
        match eventually(WAIT_TIMEOUT, what, find).await {
            Ok(()) => Ok(()),
            Err(error) => Err(error.context(format!("{:#?}", api.get(config).await?.status))),
        }
    }

    /// Sets the condition that a kubelet sets after readiness probes.
    async fn set_ready(&self, pod: &str, ready: bool) -> Result<()> {
        self.space.set_ready(pod, ready).await
    }

    /// Starts the pods of config `game` with their agents.
    async fn start_pods(&mut self) -> Result<()> {
        let config = self.space.api::<VersionedConfig>().get("game").await?;
        let config = config.uid().context("the config has no uid")?;
        for (place, name) in PODS.iter().enumerate() {
            let object = self.in_place(&config, name, place).await?;
            let token = agent_token(&self.space, &object).await?;
            let hub = format!("https://{}", self.replica.hub);
            let mut pod = Pod::of(hub, &hub_ca(&self.space).await?, &token)?;
            pod.configs = "game";
            pod.start().await?;
            self.pods.push(pod);
        }
        self.wait_for_status("game", "all pods run it", |status| status.pods.summary == "4/4").await
    }

    /// Returns a pod that has this place in the order in which pods are assigned a version. That depends on its uid, so
    /// it takes some attempts.
    async fn in_place(&self, config: &str, name: &str, place: usize) -> Result<PodObject> {
        let (set, _) = name.rsplit_once('-').context("a pod's name")?;
        let (_, hash) = set.rsplit_once('-').context("a pod's name")?;
        let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": set, "uid": set, "controller": true});
        let meta = json!({"name": name, "labels": {"pod-template-hash": hash}, "ownerReferences": [owner]});
        let env = [("NUDGE_CONFIGS", "game"), ("NUDGE_NOTIFY", "app=SIGHUP")];
        let env = env.map(|(name, value)| json!({"name": name, "value": value}));
        let share = json!({"name": "nudge-share", "mountPath": "/run/nudge"});
        let spec = json!({
            "containers": [
                {"name": "nudge-agent", "image": "test", "env": env},
                {"name": "app", "image": "test", "volumeMounts": [share]},
            ],
            "volumes": [{"name": "nudge-share", "emptyDir": {}}],
        });
        let api = self.space.api::<PodObject>();
        for _ in 0..64 {
            let pod = injected_pod_of(&self.space, &meta, &spec).await?;
            let number = pod_number(config, pod.metadata.uid.as_deref().unwrap_or_default());
            // A quarter of all numbers for each.
            if usize::try_from(number >> 30)? == place {
                return Ok(pod);
            }
            api.delete(name, &DeleteParams::default().grace_period(0)).await?;
            let gone = async || matches!(api.get_opt(name).await, Ok(None)).then_some(());
            eventually(WAIT_TIMEOUT, "the pod is gone", gone).await?;
        }
        bail!("64 pods had another place")
    }
}

/// Returns the text with equal times, also of what a pod did this many seconds after its notification.
fn normal(text: &str) -> String {
    const AFTER: &str = " s after its notification";
    let mut parts = text.split(AFTER).peekable();
    let mut out = String::new();
    while let Some(part) = parts.next() {
        match parts.peek() {
            Some(_) => out.extend([part.trim_end_matches(|letter: char| letter.is_ascii_digit()), "1", AFTER]),
            None => out += part,
        }
    }
    with_equal_times(&out)
}

fn with_equal_times(text: &str) -> String {
    let mask = "dddd-dd-ddTdd:dd:dd";
    let is_time = |text: &str| {
        let fits = |(byte, mask): (u8, u8)| if mask == b'd' { byte.is_ascii_digit() } else { byte == mask };
        text.len() > mask.len() && text.bytes().zip(mask.bytes()).all(fits)
    };
    let mut out = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if is_time(rest) {
            let fraction =
                rest[mask.len()..].trim_start_matches(|letter: char| letter == '.' || letter.is_ascii_digit());
            rest = fraction.strip_prefix('Z').unwrap_or(fraction);
            out += TIME;
        } else {
            out.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    out
}

#[test]
fn times_are_equal() {
    assert_eq!(normal("é 2026-11-21T21:56:09Z x 2026-11-21T21:56:09.123Z"), format!("é {TIME} x {TIME}"));
    assert_eq!(normal("2026-11-21"), "2026-11-21");
    assert_eq!(normal("a, 12 s after its notification; b"), "a, 1 s after its notification; b");
}

#[tokio::test]
async fn the_page_is_what_the_commands_print() -> Result<()> {
    let Some((installation, replica)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    let kubectl = installation.cluster.kubectl_program().context("no kubectl")?;
    let mut stage = Stage::new(installation, replica, kubectl).await?;
    let written = fs::read_to_string(page()).context("can't read injector/KUBECTL.md")?;
    let mut pieces = parse(&written);
    let mut meanwhile = None;
    let mut count = 0;
    for piece in &mut pieces {
        match piece {
            Piece::Text(_) => {}
            Piece::Before(step) => stage.step(step).await.with_context(|| format!("the step {step:?} failed"))?,
            Piece::Meanwhile(step) => meanwhile = Some(step.clone()),
            Piece::Block(entries) => {
                for entry in entries {
                    entry.output = match meanwhile.take() {
                        Some(step) => {
                            let (output, done) = tokio::join!(stage.output(&entry.command), stage.act(&step));
                            done.with_context(|| format!("the step {step:?} failed"))?;
                            output?
                        }
                        None => stage.output(&entry.command).await?,
                    };
                    count += 1;
                }
            }
        }
    }
    ensure!(count > 20, "the page has only {count} commands");
    let now = render(&pieces);
    if std::env::var(WRITE).is_ok_and(|value| value == "1") {
        return fs::write(page(), now).context("can't write injector/KUBECTL.md");
    }
    let Some(diff) = difference(&written, &now) else { return Ok(()) };
    Err(anyhow!(
        "injector/KUBECTL.md differs from the output of the commands:\n\n{diff}\nThis command writes the page:\n\n    {WRITE}=1 cargo test --workspace --test webhooks transcripts\n"
    ))
}
