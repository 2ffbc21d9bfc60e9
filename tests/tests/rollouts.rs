//! Rollouts against the real API server, with agents as real processes that stand for the pods of two workloads.

#![allow(clippy::print_stderr, reason = "the timeline is for whoever runs it by hand")]

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Pod as PodObject};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use kube::api::{ListParams, Patch, PatchParams};
use nudge_injector::api::{Phase, VersionedConfig, VersionedConfigStatus};
use nudge_injector::rollout::{ALL, assigned};
use nudge_tests::cluster::{Options, Space};
use nudge_tests::installation::{agent_token, hub_ca, injected_pod};
use nudge_tests::{Balancer, Cluster, Installation, Pod, Replica, ReplicaOptions, eventually};
use serde_json::{Value, json};

/// For a machine that has much else to do.
const LONG: Duration = Duration::from_secs(90);
const WORKLOADS: [&str; 2] = ["web", "api"];

/// One pod.
struct Member {
    name: String,
    uid: String,
    workload: String,
    pod: Pod,
}

impl Member {
    /// The versions that its application was told of by a signal, and found then.
    fn told(&self) -> Vec<String> {
        let output = self.pod.app_output();
        output.lines().filter_map(|line| Some(line.rsplit_once("SIGUSR1 ")?.1.to_owned())).collect()
    }

    fn was_told(&self, version: &str) -> bool {
        self.told().iter().any(|told| told == version)
    }
}

/// A config at version 1 with its subscribers.
struct Scene {
    space: Space,
    uid: String,
    members: Vec<Member>,
}

impl Scene {
    /// So many pods, divided between the workloads.
    async fn new(installation: &Installation<'_>, hub: SocketAddr, pods: usize, batch: &str) -> Result<Self> {
        let space = installation.enabled("rollouts").await?;
        for number in 1..=4 {
            let version = number.to_string();
            let labels = json!({"nudge.dev/config": "shop", "nudge.dev/version": version});
            let object = json!({
                "metadata": {"name": format!("shop-{version}"), "labels": labels}, "immutable": true, "data": {"number": version},
            });
            space.create_object::<ConfigMap>(object).await?;
        }
        let rollout = json!({"batch": batch, "minReadySeconds": 1, "bakeSeconds": 0, "ackTimeoutSeconds": 60});
        let config = json!({"metadata": {"name": "shop"}, "spec": {"current": "1", "rollout": rollout}});
        let config = space.create_object::<VersionedConfig>(config).await?;
        let mut scene = Self { space, uid: config.uid().context("no uid")?, members: Vec::new() };
        scene.is_current("1").await?;
        for number in 0..pods {
            let member = member(&scene.space, hub, WORKLOADS[number % 2], number).await?;
            scene.members.push(member);
        }
        let all = format!("{pods}/{pods}");
        scene.stands("all pods run version 1", |status| status.pods.summary == all).await?;
        Ok(scene)
    }

    async fn status(&self) -> Result<VersionedConfigStatus> {
        self.space.api::<VersionedConfig>().get("shop").await?.status.context("no status")
    }

    async fn stands(&self, what: &str, is: impl Fn(&VersionedConfigStatus) -> bool) -> Result<VersionedConfigStatus> {
        let found = async || self.status().await.ok().filter(&is);
        match eventually(LONG, what, found).await {
            Ok(status) => Ok(status),
            Err(error) => Err(error.context(format!("{:#?}", self.status().await?))),
        }
    }

    async fn is_current(&self, version: &str) -> Result<VersionedConfigStatus> {
        let what = format!("version {version} is current");
        self.stands(&what, |status| status.phase == Phase::Current && status.current.as_deref() == Some(version)).await
    }

    /// Changes the spec; its new generation.
    async fn set(&self, spec: Value) -> Result<i64> {
        let patch = Patch::Merge(json!({"spec": spec}));
        let written = self.space.api::<VersionedConfig>().patch("shop", &PatchParams::default(), &patch).await?;
        written.metadata.generation.context("no generation")
    }

    /// Members that the status assigns its target to.
    fn assigned<'a>(&'a self, status: &VersionedConfigStatus) -> Vec<&'a Member> {
        let Some(target) = status.target.as_deref() else { return Vec::new() };
        let is = |member: &&Member| assigned(status, &self.uid, &member.uid, &member.workload) == Some(target);
        self.members.iter().filter(is).collect()
    }

    /// Waits until pods are being told, but not all of them.
    async fn first_batch(&self, target: &str) -> Result<VersionedConfigStatus> {
        self.stands("the first batch is told", |status| {
            status.target.as_deref() == Some(target)
                && !status.rollout.groups.is_empty()
                && status.rollout.groups.iter().any(|group| group.threshold < ALL)
        })
        .await
    }

    async fn all_end_with(&self, version: &str) -> Result<()> {
        for member in &self.members {
            let what = format!("{} ends with version {version}", member.name);
            let last = async || (member.told().last().map(String::as_str) == Some(version)).then_some(());
            eventually(LONG, &what, last).await.map_err(|error| member.pod.explain(&error))?;
        }
        Ok(())
    }

    /// What a kubelet writes when the readiness probe changes its mind.
    async fn make_ready(&self, member: &Member, ready: bool) -> Result<()> {
        let status = if ready { "True" } else { "False" };
        let condition = json!({"type": "Ready", "status": status, "lastTransitionTime": Timestamp::now().to_string()});
        let patch = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
        self.space.api::<PodObject>().patch_status(&member.name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    async fn has_event(&self, reason: &str) -> Result<Event> {
        eventually(LONG, &format!("there is an Event {reason}"), async || {
            let events = self.space.api::<Event>().list(&ListParams::default()).await.ok()?;
            events.into_iter().find(|event| event.reason.as_deref() == Some(reason))
        })
        .await
    }
}

/// A pod of a Deployment, its agent, and an application that prints the number that it finds at each signal.
async fn member(space: &Space, hub: SocketAddr, deployment: &str, number: usize) -> Result<Member> {
    let name = format!("{deployment}-5d59-{number}");
    let object = injected_pod(space, &name, "shop").await?;
    let owner = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("{deployment}-5d59"), "uid": format!("uid-{deployment}"),
        "controller": true,
    });
    let patch =
        Patch::Merge(json!({"metadata": {"labels": {"pod-template-hash": "5d59"}, "ownerReferences": [owner]}}));
    space.api::<PodObject>().patch(&name, &PatchParams::default(), &patch).await?;
    let pod = Pod::of(format!("https://{hub}"), &hub_ca(space).await?, &agent_token(space, &object).await?)?;
    let files = pod.path("files");
    let mut pod = pod.with(&["--mount-path", files.to_str().context("a path")?, "--notify", "app=SIGUSR1"]);
    let read = files.join("number");
    let app = env!("CARGO_BIN_EXE_app");
    pod.start_app(app, &["--catch", "SIGUSR1", "--read", read.to_str().context("a path")?]).await?;
    pod.start().await?;
    Ok(Member { name, uid: object.uid().context("no uid")?, workload: format!("Deployment/{deployment}"), pod })
}

/// How many pods of each workload a batch has.
fn quarter(pods: usize) -> usize {
    pods.div_ceil(2).div_ceil(4)
}

/// Follows a rollout to its end: before another batch is told, all of the one before have the version.
async fn walks(scene: &Scene, version: &str) -> Result<()> {
    let began = Instant::now();
    let generation = scene.set(json!({"current": version})).await?;
    let batch = quarter(scene.members.len());
    let mut before: Vec<&Member> = Vec::new();
    let mut batches = 0;
    loop {
        ensure!(began.elapsed() < LONG, "{:#?}", scene.status().await?);
        let status = scene.status().await?;
        if status.observed_generation != Some(generation) {
            // It still tells of what was before.
            tokio::task::yield_now().await;
            continue;
        }
        if status.phase == Phase::Current && status.current.as_deref() == Some(version) {
            break;
        }
        ensure!(status.phase != Phase::Failed && status.phase != Phase::RollingBack, "{status:#?}");
        let now = scene.assigned(&status);
        if now.len() == before.len() {
            tokio::task::yield_now().await;
            continue;
        }
        for workload in WORKLOADS.map(|name| format!("Deployment/{name}")) {
            let of = |members: &[&Member]| members.iter().filter(|member| member.workload == workload).count();
            ensure!(of(&now) - of(&before) <= batch, "{} to {} of {workload} at once", of(&before), of(&now));
        }
        for member in &before {
            ensure!(member.was_told(version), "{} has not taken version {version}, and others were told", member.name);
        }
        batches += 1;
        eprintln!("{:6} ms: {} of {} pods are told", began.elapsed().as_millis(), now.len(), scene.members.len());
        before = now;
    }
    eprintln!("{:6} ms: version {version} is current", began.elapsed().as_millis());
    ensure!(batches >= 2 && before.len() == scene.members.len(), "{batches} batches, {} pods", before.len());
    scene.all_end_with(version).await
}

/// A version with which every application becomes unready.
async fn fails(scene: &Scene, good: &str, bad: &str) -> Result<()> {
    let began = Instant::now();
    let stamp = |what: &str| eprintln!("{:6} ms: {what}", began.elapsed().as_millis());
    scene.set(json!({"current": bad})).await?;
    let mut sick: Vec<&Member> = Vec::new();
    let mut unready = None;
    let mut told_back = None;
    let status = loop {
        ensure!(began.elapsed() < LONG, "{:#?}", scene.status().await?);
        let fall = scene.members.iter().filter(|it| it.was_told(bad));
        let fall: Vec<&Member> = fall.filter(|it| sick.iter().all(|sick| sick.uid != it.uid)).collect();
        for member in fall {
            scene.make_ready(member, false).await?;
            unready.get_or_insert_with(Instant::now);
            stamp(&format!("{} has version {bad} and is not Ready", member.name));
            sick.push(member);
        }
        let status = scene.status().await?;
        if status.phase == Phase::RollingBack && told_back.is_none() {
            ensure!(scene.assigned(&status).is_empty(), "{status:#?}");
            stamp("all are told to go back");
            told_back = Some(Instant::now());
        }
        if status.phase == Phase::Failed {
            told_back.get_or_insert_with(Instant::now);
            break status;
        }
    };
    stamp("Failed: all are back");
    let (unready, told_back) = (unready.context("none was unready")?, told_back.context("none was told")?);
    eprintln!(
        "from the first unready to all told to go back: at most {} ms",
        told_back.saturating_duration_since(unready).as_millis()
    );
    let batch = quarter(scene.members.len());
    for workload in WORKLOADS.map(|name| format!("Deployment/{name}")) {
        let count = scene.members.iter().filter(|it| it.workload == workload && it.was_told(bad)).count();
        ensure!(count <= batch, "{count} pods of {workload} were told the bad version");
    }
    scene.all_end_with(good).await?;

    ensure!(status.current.as_deref() == Some(good) && status.target.is_none(), "{status:#?}");
    let failure = status.rollout.failure.context("no failure")?;
    ensure!((failure.version.as_str(), failure.reason.as_str()) == (bad, "PodNotReady"), "{failure:?}");
    let condition = |kind: &str| status.conditions.iter().find(|condition| condition.type_ == kind);
    let stalled = condition("Stalled").context("not Stalled")?;
    ensure!((stalled.status.as_str(), stalled.reason.as_str()) == ("True", "Failed"), "{stalled:?}");
    ensure!(stalled.message.contains("was Ready and is not"), "{stalled:?}");
    ensure!(condition("Ready").is_some_and(|ready| ready.status == "False"), "{:?}", status.conditions);
    for reason in ["RollingBack", "Failed"] {
        let event = scene.has_event(reason).await?;
        ensure!(event.type_.as_deref() == Some("Warning"), "{event:?}");
    }
    let spec = scene.space.api::<VersionedConfig>().get("shop").await?.spec;
    ensure!(spec.current.as_deref() == Some(bad), "spec.current is the user's: {:?}", spec.current);
    for member in sick {
        scene.make_ready(member, true).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_change_walks_batch_by_batch_and_a_bad_one_stops_at_the_first() -> Result<()> {
    let Some((installation, replica)) = Installation::shared().await? else { return Ok(()) };
    // By hand: more, for figures.
    let pods = std::env::var("NUDGE_ROLLOUT_PODS").ok().and_then(|count| count.parse().ok()).unwrap_or(12);
    let scene = Scene::new(installation, replica.hub, pods, "25%").await?;
    walks(&scene, "2").await?;
    fails(&scene, "2", "3").await?;
    walks(&scene, "4").await
}

#[tokio::test]
async fn a_pause_holds_and_the_last_word_counts() -> Result<()> {
    let Some((installation, replica)) = Installation::shared().await? else { return Ok(()) };
    let scene = Scene::new(installation, replica.hub, 4, "50%").await?;
    scene.set(json!({"current": "2"})).await?;
    scene.first_batch("2").await?;
    scene.set(json!({"rollout": {"paused": true}})).await?;
    let paused = |status: &VersionedConfigStatus| {
        status.conditions.iter().any(|condition| condition.type_ == "Ready" && condition.reason == "Paused")
    };
    let status = scene.stands("it is paused", paused).await?;
    let told = scene.assigned(&status).len();
    ensure!(told == 2, "{told} pods were told");
    for member in scene.assigned(&status) {
        eventually(LONG, "those that were told run it", async || member.was_told("2").then_some(())).await?;
    }
    // Looked at again with nothing left to wait for, and it stays where it is.
    let generation = scene.set(json!({"rollout": {"minReadySeconds": 0}})).await?;
    let seen = |status: &VersionedConfigStatus| {
        status.observed_generation == Some(generation) && status.pods.updated == status.pods.total
    };
    let status = scene.stands("the spec is seen, and every pod runs what it was told", seen).await?;
    ensure!(paused(&status) && scene.assigned(&status).len() == told, "{status:#?}");
    scene.set(json!({"rollout": {"paused": false, "minReadySeconds": 1}})).await?;
    scene.is_current("2").await?;
    scene.all_end_with("2").await?;

    scene.set(json!({"current": "3"})).await?;
    scene.first_batch("3").await?;
    scene.set(json!({"current": "1"})).await?;
    scene.set(json!({"current": "4"})).await?;
    scene.is_current("4").await?;
    scene.all_end_with("4").await?;
    for member in &scene.members {
        ensure!(!member.was_told("1"), "{} was told what nobody wanted by then: {:?}", member.name, member.told());
    }
    Ok(())
}

async fn leader(replicas: &[Replica; 2]) -> Result<usize> {
    eventually(LONG, "one replica leads", async || {
        for (index, replica) in replicas.iter().enumerate() {
            if replica.metric("nudge_leader").await.is_ok_and(|leads| leads > 0.0) {
                return Some(index);
            }
        }
        None
    })
    .await
}

#[tokio::test]
async fn the_leader_is_killed_in_the_middle_and_no_application_is_told_twice() -> Result<()> {
    let Some(cluster) = Cluster::start(&Options::default()).await? else { return Ok(()) };
    let Some(installation) = Installation::apply(&cluster).await? else { return Ok(()) };
    let options = ReplicaOptions::with(&["--lease-seconds=3", "--watch-seconds=3", "--drain-seconds=1"]);
    let mut replicas = [installation.replica(&options).await?, installation.replica(&options).await?];
    let balancer = Balancer::start(&[replicas[0].hub, replicas[1].hub]).await?;
    let scene = Scene::new(&installation, balancer.address, 4, "25%").await?;
    let leads = leader(&replicas).await?;
    scene.set(json!({"current": "2"})).await?;
    scene.first_batch("2").await?;
    replicas[leads].process.kill()?;
    balancer.set(&[replicas[1 - leads].hub]);
    scene.is_current("2").await?;
    scene.all_end_with("2").await?;
    for member in &scene.members {
        ensure!(member.told() == ["2"], "{}: {:?}", member.name, member.told());
    }
    Ok(())
}
