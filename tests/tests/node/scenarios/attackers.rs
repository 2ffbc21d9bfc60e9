//! Plain pods of a namespace that has nothing to do with Nudge attack every port of every replica at once, each from an
//! address of its own: with connections, bodies that never end or are as long as they may be, reviews and tokens of
//! their own making. All replicas stay Ready, keep within their memory and admit pods; agents stay connected and get
//! another version.
//!
//! Times are shown next to the times before the attack, and not judged: all of it runs on the processors of one
//! machine.

use std::env;
use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::PostParams;
use nudge_protocol::status::Status;
use nudge_tests::cluster::installation::at_once;
use nudge_tests::procfs;
use serde_json::{Value, json};
use time::OffsetDateTime;
use tokio::time::{interval, sleep};

use super::{exposure, failures, forged, memory, starving};
use crate::log::Log;
use crate::objects::{config, deployment, list, opted_in, pod, python, shell, template};
use crate::place::Place;
use crate::report::seconds;
use crate::space::{LONG_WAIT_TIMEOUT, ScenarioNamespace, WAIT_TIMEOUT, assert_untouched, containers};
use crate::suite::Suite;
use nudge_tests::eventually;

const TITLE: &str = "All attackers at once";
/// How long the attack lasts.
const SECONDS: &str = "NUDGE_ATTACK_SECONDS";
/// How often the replicas are checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// The time between two pods that are created.
const CREATION_INTERVAL: Duration = Duration::from_millis(50);
/// How long pods are created before the attack.
const CALM_DURATION: Duration = Duration::from_secs(10);
const AGENTS: usize = 3;
/// What deploy/README.md says that a replica keeps within.
const MAX_MEMORY_BYTES: u64 = 256 * 1024 * 1024;
/// Connections of an attacker, by name and port, to each of the two replicas; of port 8080 there are four.
const KEPT: [(&str, u16, usize); 3] = [("metrics", 8080, 500), ("webhooks", 8443, 1000), ("hub", 9443, 1000)];
/// The sizes of bodies in bytes: as long as they may be, and as long as bodies of that many values may be.
const BODIES: [usize; 2] = [16 * 1024 * 1024, 300 * 1024];

/// Sends each request to each address of its port again and again, over a new connection each time. A number stands for
/// a body of this many bytes, and RANDOM in a header for another text each time.
const SENDER: &str = r#"
import collections, http.client, json, os, secrets, ssl, threading, time

tls = ssl._create_unverified_context()
answers = collections.Counter()

def send(address, port, path, headers, body):
    if isinstance(body, int):
        begin, end = b'{"request":{"object":{"metadata":{},"spec":[', b"0]}}}"
        body = begin + b"0," * ((body - len(begin) - len(end)) // 2) + end
    while True:
        connection = http.client.HTTPSConnection(address, port, context=tls, timeout=10)
        try:
            filled = {name: value.replace("RANDOM", secrets.token_hex(16)) for name, value in headers.items()}
            connection.request("POST", path, body, filled)
            answer = connection.getresponse()
            answer.read()
            answers[f"{port}:{answer.status}"] += 1
        except (OSError, http.client.HTTPException) as error:
            answers[f"{port}:{type(error).__name__}"] += 1
            time.sleep(0.1)
        finally:
            connection.close()

for address, port in json.loads(os.environ["ADDRESSES"]):
    for to, *request in json.loads(os.environ["REQUESTS"]):
        if to == port:
            threading.Thread(target=send, args=(address, port, *request), daemon=True).start()
while True:
    time.sleep(1)
    print("open", dict(answers), flush=True)
    if answers:
        print("all were opened", flush=True)
"#;

/// Port, path, headers, body.
type Request = (u16, &'static str, Value, Value);

pub(crate) async fn run(suite: &Suite) -> Result<()> {
    let lasts = env::var(SECONDS).ok().map_or(Ok(20), |text| text.parse());
    let lasts = Duration::from_secs(lasts.with_context(|| format!("{SECONDS} is no number"))?);
    let home = ScenarioNamespace::enabled(suite, "attacked").await?;
    let replicas = starving::replicas(&home).await?;
    let version = |greeting: &str| json!({"greeting": greeting});
    home.apply(&config("tough", &[("1", version("one")), ("2", version("two"))], &at_once()))?;
    home.wait_until_current("tough", "1").await?;
    home.apply(&list([deployment(&subscriber(&home, "agents"), i32::try_from(AGENTS)?)]))?;
    let agents = Agents::of(&home).await?;
    suite.report.row(TITLE, &["", "median", "p99", "worst", "of"].map(str::to_owned));
    created(suite, &home, "before", CALM_DURATION).await?;
    agents.switch(suite, &home, "before", "2", "two").await?;
    let contacts = agents.contacts(home.place).await?;
    let memory = Memory::of(home.place, &replicas)?;

    let stranger = ScenarioNamespace::create(suite, "strangers").await?;
    let logs = attack(&stranger, &home, &replicas, &agents.pods[0]).await?;
    let began = Instant::now();
    let looks = async {
        let mut turns = interval(CHECK_INTERVAL);
        let mut looks = 0;
        while began.elapsed() < lasts {
            turns.tick().await;
            starving::assert_whole(&home, &replicas).await.with_context(|| format!("after {:?}", began.elapsed()))?;
            looks += 1;
        }
        anyhow::Ok(looks)
    };
    let served = async {
        sleep(lasts / 3).await;
        agents.switch(suite, &home, "during", "1", "one").await?;
        let asked_at = Instant::now();
        home.apply(&pod(subscriber(&home, "real")).to_string())?;
        home.ready_pod("app=real").await?;
        suite.report.row(TITLE, &["a pod until it is Ready, during".to_owned(), seconds(asked_at.elapsed())]);
        Ok(())
    };
    let (looks, (), ()) = tokio::try_join!(looks, created(suite, &home, "during", lasts), served)?;

    for (name, log) in &logs {
        suite.report.row(TITLE, &[format!("{name} at its end: {}", starving::last(log)?)]);
    }
    memory.report(suite)?;
    agents.assert_connected(&home, &contacts).await?;
    suite.report.row(TITLE, &[format!("all replicas Ready, none restarted, {looks} looks"), seconds(lasts)]);
    // Others are measured next.
    stranger.kubectl(&["delete", "pods", "--all", "--wait=true", "--grace-period=0", "--force"])?;
    Ok(())
}

fn subscriber(home: &ScenarioNamespace<'_>, name: &str) -> Value {
    opted_in(name, &shell(home, failures::APP), &[("configs", "tough"), ("notify", "SIGUSR1")])
}

/// Starts all attackers, and waits until each has all its connections or its first answer.
async fn attack(
    stranger: &ScenarioNamespace<'_>,
    home: &ScenarioNamespace<'_>,
    replicas: &[Pod],
    victim: &Pod,
) -> Result<Vec<(String, Log)>> {
    let mut pods = Vec::new();
    for (name, port, count) in KEPT {
        let mut container = python(stranger, starving::APP);
        let addresses = starving::addresses(replicas, &[port]);
        let addresses = addresses.into_iter().map(|(address, port)| format!("{address}={port}"));
        let command = container["command"].as_array_mut().context("no command")?;
        command.extend([format!("{{{port}: {count}}}")].into_iter().chain(addresses).map(Into::into));
        pods.push((name, container));
    }
    let addresses = serde_json::to_string(&starving::addresses(replicas, &[8443, 9443]))?;
    for (name, requests) in [("bodies", bodies()), ("forger", forgeries(&home.space.name, victim)?)] {
        let mut container = python(stranger, SENDER);
        let variable = |name: &str, value: &str| json!({"name": name, "value": value});
        container["env"] =
            json!([variable("ADDRESSES", &addresses), variable("REQUESTS", &serde_json::to_string(&requests)?)]);
        pods.push((name, container));
    }
    stranger.apply(&list(pods.iter().map(|(name, container)| pod(template(name, container)))))?;
    let mut logs = Vec::new();
    for (name, _) in pods {
        let log = stranger.follow(&stranger.ready_pod(&format!("app={name}")).await?).await?;
        logs.push((name.to_owned(), log));
    }
    for (name, log) in &logs {
        log.line(OffsetDateTime::UNIX_EPOCH, LONG_WAIT_TIMEOUT, "all were opened")
            .await
            .with_context(|| name.clone())?;
    }
    Ok(logs)
}

fn bodies() -> Vec<Request> {
    let to = [(8443, "/mutate/pods?timeout=30s"), (8443, "/validate/configs?timeout=30s"), (9443, "/v1/poll")];
    to.iter().flat_map(|&(port, path)| BODIES.map(|bytes| (port, path, json!({}), json!(bytes)))).collect()
}

/// Reviews that claim to come from an admin, and tokens that claim to be those of a pod: all that can be known without
/// asking anybody is true.
fn forgeries(namespace: &str, victim: &Pod) -> Result<Vec<Request>> {
    let review = |path, kind: &str, operation: &str, object: &Value| {
        let review = forged::review(kind, operation, namespace, object).to_string();
        (8443, path, json!({"Content-Type": "application/json"}), review.into())
    };
    let config = json!({"apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": "tough"}, "spec": {}});
    let part = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "immutable": true, "data": {"greeting": "one"},
        "metadata": {"name": "tough-1", "labels": {"nudge.dev/config": "tough", "nudge.dev/version": "1"}},
    });
    let expires = OffsetDateTime::now_utc().unix_timestamp() + 3600;
    let claims = json!({
        "aud": ["nudge"], "exp": expires, "iss": "https://kubernetes.default.svc", "sub": format!("system:serviceaccount:{namespace}:default"),
        "kubernetes.io": {
            "namespace": namespace, "serviceaccount": {"name": "default", "uid": "0"},
            "pod": {"name": victim.name_any(), "uid": victim.uid().context("no uid")?},
        },
    });
    let [head, claims] =
        [json!({"alg": "RS256", "typ": "JWT"}), claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
    let token = json!({"Authorization": format!("Bearer {head}.{claims}.RANDOM")});
    Ok(vec![
        review("/mutate/pods?timeout=30s", "Pod", "CREATE", &serde_json::to_value(victim)?),
        review("/mutate/versions?timeout=30s", "ConfigMap", "CREATE", &part),
        review("/validate/versions?timeout=30s", "ConfigMap", "DELETE", &part),
        review("/validate/configs?timeout=30s", "VersionedConfig", "DELETE", &config),
        (9443, "/v1/poll", token.clone(), json!("{}")),
        (9443, "/v1/report", token, json!("{}")),
    ])
}

/// Asks the API server to create pods that opt in and pods that do not, in dry runs. Each pod must be admitted.
async fn created(suite: &Suite, home: &ScenarioNamespace<'_>, when: &str, lasts: Duration) -> Result<()> {
    let script = shell(home, "exec sleep 1000000");
    let kinds = [("a pod that opts in", subscriber(home, "tried")), ("any other", template("other", &script))];
    let mut kinds = kinds.map(|(what, template)| (what, pod(template), Vec::new()));
    let (pods, dry_run) = (home.space.api::<Pod>(), PostParams { dry_run: true, ..PostParams::default() });
    let began = Instant::now();
    while began.elapsed() < lasts {
        for (what, pod, times) in &mut kinds {
            let pod: Pod = serde_json::from_value(pod.clone())?;
            let asked_at = Instant::now();
            let created = pods.create(&dry_run, &pod).await;
            let created = created.with_context(|| format!("{what} is not created after {:?}", began.elapsed()))?;
            times.push(asked_at.elapsed());
            let injected = serde_json::to_string(&created.spec)?.contains("nudge-agent");
            ensure!(injected == pod.labels().contains_key("nudge.dev/inject"), "{what}: {created:#?}");
            sleep(CREATION_INTERVAL).await;
        }
    }
    for (what, _, mut times) in kinds {
        times.sort();
        let at = |hundredths: usize| seconds(times[(times.len() - 1) * hundredths / 100]);
        let row = [format!("{what}, {when}"), at(50), at(99), at(100), times.len().to_string()];
        suite.report.row(TITLE, &row);
    }
    Ok(())
}

/// Pods with an agent, and the logs of their applications.
struct Agents {
    pods: Vec<Pod>,
    logs: Vec<Log>,
}

impl Agents {
    async fn of(home: &ScenarioNamespace<'_>) -> Result<Self> {
        let pods = exposure::ready(home, "agents", AGENTS).await?;
        let mut logs = Vec::new();
        for pod in &pods {
            let log = home.follow(pod).await?;
            log.line(OffsetDateTime::UNIX_EPOCH, WAIT_TIMEOUT, "has one").await?;
            logs.push(log);
        }
        Ok(Self { pods, logs })
    }

    /// Makes a version current, which all have then.
    async fn switch(
        &self,
        suite: &Suite,
        home: &ScenarioNamespace<'_>,
        when: &str,
        version: &str,
        greeting: &str,
    ) -> Result<()> {
        let before = OffsetDateTime::now_utc();
        home.activate("tough", version).await?;
        let mut times = Vec::new();
        for log in &self.logs {
            times.push(log.line(before, WAIT_TIMEOUT, &format!("has {greeting}")).await?.at - before);
        }
        home.wait_until_current("tough", version).await?;
        let last = times.into_iter().max().context("no agents")?;
        let row = [format!("all {AGENTS} agents have another version, {when}"), seconds(last.try_into()?)];
        suite.report.row(TITLE, &row);
        Ok(())
    }

    /// Returns the connection of each to the hub on which it polls, by its own port. The kernel shows it on our node
    /// only.
    async fn contacts(&self, place: &Place) -> Result<Vec<(i32, String)>> {
        let mut contacts = Vec::new();
        if place.inside("looking at agents' connections").is_some() {
            for pod in &self.pods {
                let process = memory::process(pod, "nudge-agent", "run")?;
                // Another one is open for as long as there is something to report.
                let only = async || to_hub(process).ok()?.try_into().ok();
                let [contact] = eventually(WAIT_TIMEOUT, "there is one connection to the hub", only).await?;
                contacts.push((process, contact));
            }
        }
        Ok(contacts)
    }

    /// Fails unless they still have these connections to the hub, and are what they were.
    async fn assert_connected(&self, home: &ScenarioNamespace<'_>, contacts: &[(i32, String)]) -> Result<()> {
        for (process, before) in contacts {
            let now = to_hub(*process)?;
            ensure!(now.contains(before), "an agent had {before} and has {now:?}");
        }
        for pod in &self.pods {
            assert_untouched(home, pod).await?;
            let status = ["exec", &pod.name_any(), "-c", "app", "--", "nudge-agent", "status", "--format", "json"];
            let status: Status = serde_json::from_str(&home.kubectl(&status)?)?;
            let contact = status.contact.clone().context("no contact")?;
            ensure!(contact.connected && contact.failures == 0, "{status:#?}");
        }
        Ok(())
    }
}

/// Returns the connections of the process's pod to the hub's Service, by their own addresses.
fn to_hub(process: i32) -> Result<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{process}/net/tcp"))?;
    // Number, own address, the other's, whose port is 443, and ESTABLISHED.
    let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let to_hub = lines.filter(|line| line.len() > 3 && line[2].ends_with(":01BB") && line[3] == "01");
    Ok(to_hub.map(|line| line[1].to_owned()).collect())
}

/// Processes of replicas, by their pods' names, with their memory before the attack. The machine shows those of our
/// node only.
struct Memory(Vec<(String, i32, u64)>);

impl Memory {
    fn of(place: &Place, replicas: &[Pod]) -> Result<Self> {
        let of = |pod: &Pod| {
            let (container, ..) = containers(pod).into_iter().next().context("no container")?;
            let process = memory::process(pod, &container, "serve")?;
            procfs::forget_peak(process)?;
            Ok((pod.name_any(), process, procfs::memory(process)?.vm_rss))
        };
        let inside = place.inside("reading the memory of replicas").is_some();
        Ok(Self(replicas.iter().filter(|_| inside).map(of).collect::<Result<_>>()?))
    }

    /// Shows the maximum of each since then, and fails if it exceeds the bound.
    fn report(&self, suite: &Suite) -> Result<()> {
        let mebibytes = |bytes: u64| format!("{} MiB", bytes / 1024 / 1024);
        let mut highest = 0;
        for (name, process, before) in &self.0 {
            let peak = procfs::memory(*process)?.peak;
            highest = highest.max(peak);
            let row = [format!("memory of {name}, before and at most"), mebibytes(*before), mebibytes(peak)];
            suite.report.row(TITLE, &row);
        }
        ensure!(highest <= MAX_MEMORY_BYTES, "a replica has had {}", mebibytes(highest));
        Ok(())
    }
}
