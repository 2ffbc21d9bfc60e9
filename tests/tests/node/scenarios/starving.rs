//! A plain pod of a namespace that has nothing to do with Nudge keeps as many connections to every port of every
//! replica as it can get. All replicas stay Ready and are not restarted, their Services have them, and pods that opt in
//! are created and become Ready.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Endpoints, Pod};
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use nudge_tests::cluster::installation::NAMESPACE;
use serde_json::json;
use time::OffsetDateTime;

use crate::log::Log;
use crate::objects::{config, list, opted_in, pod, python, shell, template};
use crate::place::succeed;
use crate::report::seconds;
use crate::space::{LONG_WAIT_TIMEOUT, ScenarioNamespace, WAIT_TIMEOUT, containers, is_ready};
use crate::suite::Suite;
use nudge_tests::eventually;

const TITLE: &str = "One pod that takes all the connections it can get";
/// The duration of the attack: more than twice what it took until both replicas were not Ready when a listener had one
/// pool of places for all.
const ATTACK_DURATION: Duration = Duration::from_secs(25);
/// How often the replicas are checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// How many it wants of each port of each replica: more than there are places for health (64) and webhooks (512).
const WANTED: &str = "{8080: 80, 8443: 600, 9443: 200}";

/// Nobody reaches the roles sources and analysis, which other scenarios install.
const SELECTOR: &str = "app.kubernetes.io/name=nudge,app.kubernetes.io/component notin (sources, analysis)";

/// Two replicas of nudge-injector, two of nudge-hub, and one of nudge-certs, which serves nobody.
const REPLICAS: usize = 5;
/// Replicas of each that serves.
const SERVING: usize = 2;

/// Keeps connections: on port 8080 by a small request now and then, on the others some with a request whose body never
/// comes, else silent. One that is closed is opened again at once.
pub(super) const APP: &str = r#"
import asyncio, resource, ssl, sys, time

soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
counts = eval(sys.argv[1])
targets = [(address, int(port)) for one in sys.argv[2:] for address, ports in [one.split("=")] for port in ports.split(",")]
wanted = {port: count * sum(1 for _, other in targets if other == port) for port, count in counts.items()}
tls = ssl._create_unverified_context()
bodies = {8443: ("/mutate/pods?timeout=30s", 16000000), 9443: ("/v1/poll", 60000)}
open_now, opened = {port: 0 for port in counts}, {port: 0 for port in counts}

async def keep(address, port, number):
    while True:
        try:
            slow = port in bodies and number % 20 == 0
            reader, writer = await asyncio.open_connection(address, port, ssl=tls if slow else None)
            if slow:
                writer.write(b"POST %b HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n{" % (bodies[port][0].encode(), bodies[port][1]))
            open_now[port] += 1
            opened[port] += 1
            try:
                while port == 8080:
                    writer.write(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
                    await reader.readuntil(b"\r\n\r\n")
                    await asyncio.sleep(2)
                await reader.read()
            finally:
                open_now[port] -= 1
                writer.close()
        except (OSError, asyncio.IncompleteReadError):
            pass
        await asyncio.sleep(0.1)

async def report():
    while True:
        print("open", sum(open_now.values()), open_now, "opened", opened, flush=True)
        if all(opened[port] >= count for port, count in wanted.items()):
            print("all were opened", flush=True)
        await asyncio.sleep(1)

async def main():
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda *_: None)
    work = [keep(address, port, number) for address, port in targets for number in range(counts[port])]
    await asyncio.gather(report(), *work)

asyncio.run(main())
"#;

pub(crate) async fn run(suite: &Suite) -> Result<()> {
    let home = ScenarioNamespace::enabled(suite, "starved").await?;
    // Before the version is created: one that is created without the webhook does not become current by itself.
    let before = replicas(&home).await?;
    home.apply(&config("calm", &[("1", json!({"greeting": "one"}))], &nudge_tests::cluster::installation::at_once()))?;
    home.wait_until_current("calm", "1").await?;

    let stranger = ScenarioNamespace::create(suite, "stranger").await?;
    let mut container = python(&stranger, APP);
    let command = container["command"].as_array_mut().context("no command")?;
    let all = addresses(&before, &[8080, 8443, 9443]).into_iter().map(|(address, port)| format!("{address}={port}"));
    command.extend([WANTED.to_owned()].into_iter().chain(all).map(Into::into));
    stranger.apply(&list([pod(template("greedy", &container))]))?;
    let greedy = stranger.ready_pod("app=greedy").await?;
    let log = stranger.follow(&greedy).await?;
    log.line(OffsetDateTime::UNIX_EPOCH, WAIT_TIMEOUT, "all were opened").await?;
    let attacked = attack(suite, &home, &before, &log).await;
    // Others are measured next.
    stranger.kubectl(&["delete", "pod", "greedy", "--wait=true", "--grace-period=0", "--force"])?;
    attacked
}

async fn attack(suite: &Suite, home: &ScenarioNamespace<'_>, before: &[Pod], log: &Log) -> Result<()> {
    let began = Instant::now();
    let mut turns = tokio::time::interval(CHECK_INTERVAL);
    let mut times = BTreeMap::<&str, Vec<Duration>>::new();
    let mut metrics = Vec::new();
    let mut looks = 0;
    while began.elapsed() < ATTACK_DURATION {
        turns.tick().await;
        assert_whole(home, before).await.with_context(|| format!("after {:?}", began.elapsed()))?;
        looks += 1;
        if looks % 20 != 1 {
            continue;
        }
        let name = format!("calm-{looks}");
        let asked_at = Instant::now();
        home.apply(&pod(subscriber(home, &name)).to_string())
            .with_context(|| format!("after {:?}", began.elapsed()))?;
        times.entry("kubectl apply of a pod that opts in").or_default().push(asked_at.elapsed());
        home.ready_pod(&format!("app={name}")).await?;
        times.entry("from there until it is Ready").or_default().push(asked_at.elapsed());
        for replica in before.iter().filter(|pod| !listening_ports(pod).is_empty()) {
            let asked_at = Instant::now();
            let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{}:8080/proxy/metrics", replica.name_any());
            let text = succeed(home.place.command("kubectl").args(["get", "--raw", &path]))?;
            ensure!(text.contains("nudge_watch_age_seconds"), "no metrics: {text}");
            metrics.push(asked_at.elapsed());
        }
    }
    let last = last(log)?;
    times.insert("kubectl get of a replica's metrics", metrics);
    suite.report.row(TITLE, &["", "median", "worst", "of"].map(str::to_owned));
    for (what, mut times) in times {
        times.sort();
        let (median, worst) = (times[times.len() / 2], times[times.len() - 1]);
        suite.report.row(TITLE, &[what.to_owned(), seconds(median), seconds(worst), times.len().to_string()]);
    }
    let lasted = [format!("all replicas Ready, both Services whole, {looks} looks"), seconds(began.elapsed())];
    suite.report.row(TITLE, &lasted);
    suite.report.row(TITLE, &[format!("the attack at its end: {last}")]);
    Ok(())
}

/// Returns what an attacker has said last, a moment ago.
pub(super) fn last(log: &Log) -> Result<String> {
    let last = log.lines().into_iter().rfind(|line| line.text.starts_with("open "));
    let last = last.context("the attack has said nothing")?;
    ensure!(OffsetDateTime::now_utc() - last.at < time::Duration::seconds(30), "the attack has ended: {}", last.text);
    Ok(last.text)
}

fn subscriber(home: &ScenarioNamespace<'_>, name: &str) -> serde_json::Value {
    opted_in(name, &shell(home, "exec sleep 1000000"), &[("configs", "calm")])
}

pub(super) async fn replicas(home: &ScenarioNamespace<'_>) -> Result<Vec<Pod>> {
    let pods: Api<Pod> = Api::namespaced(home.space.client.clone(), NAMESPACE);
    // One of an earlier scenario's may still be terminating.
    eventually(LONG_WAIT_TIMEOUT, "all replicas are there, and no other", async || {
        let listed_pods = pods.list(&ListParams::default().labels(SELECTOR)).await.ok()?.items;
        (listed_pods.len() == REPLICAS && listed_pods.iter().all(is_ready)).then_some(listed_pods)
    })
    .await
}

/// Returns where the replica listens.
fn listening_ports(pod: &Pod) -> &'static [u16] {
    match pod.labels().get("app.kubernetes.io/component").map(String::as_str) {
        Some("injector") => &[8080, 8443],
        Some("hub") => &[8080, 9443],
        _ => &[],
    }
}

/// Returns where replicas listen, as far as it is one of these ports.
pub(super) fn addresses(replicas: &[Pod], ports: &[u16]) -> Vec<(String, u16)> {
    let address = |pod: &Pod| pod.status.as_ref()?.pod_ip.clone();
    let of = |pod| {
        listening_ports(pod)
            .iter()
            .filter(|port| ports.contains(port))
            .filter_map(move |&port| Some((address(pod)?, port)))
    };
    replicas.iter().flat_map(of).collect()
}

/// Fails unless the replicas are those from before, Ready, with the same containers, and in both Services.
pub(super) async fn assert_whole(home: &ScenarioNamespace<'_>, before: &[Pod]) -> Result<()> {
    let client = &home.space.client;
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    for pod in before {
        let now = pods.get(&pod.name_any()).await?;
        let conditions = now.status.as_ref().and_then(|status| status.conditions.clone());
        ensure!(is_ready(&now), "{} is not Ready: {conditions:#?}", pod.name_any());
        ensure!(containers(&now) == containers(pod), "had {:?} and has {:?}", containers(pod), containers(&now));
    }
    let endpoints: Api<Endpoints> = Api::namespaced(client.clone(), NAMESPACE);
    for service in ["nudge-injector", "nudge-hub"] {
        let subsets = endpoints.get(service).await?.subsets.unwrap_or_default();
        let ready: usize = subsets.iter().map(|subset| subset.addresses.as_ref().map_or(0, Vec::len)).sum();
        ensure!(ready == SERVING, "{service} has {ready} addresses");
    }
    Ok(())
}
