//! The cost of a reconcile with ten thousand pods, compared with a bare pass over the same pods. To see the numbers of
//! an optimised build: `cargo test --release -p nudge-controller --lib cost_tests -- --nocapture`.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use hyper::http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use nix::time::{ClockId, clock_gettime};
use nudge_cluster::index::Index;
use nudge_core::keys::{ConfigKey, PodUid};
use nudge_core::owners::WorkloadId;
use nudge_core::pods::{PodPhase, PodState, Readiness, Report, ReportState, RestartSums};
use nudge_protocol::{ConfigName, VersionName};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tower::service_fn;

use super::NextReconcile;
use crate::Controller;
use crate::fake_api_server::{controller_over, part};

const PODS: usize = 10_000;
/// The maximum number of versions of a config.
const VERSIONS: usize = 50;
/// The number of reconciles that are measured in each state; the median counts.
const RECONCILES: usize = 15;
/// The maximum cost of a reconcile, even of one that writes, in bare passes over the same pods. Quadratic code costs
/// thousands of them.
const MAX_PASSES: u32 = 300;

/// Processor time of this thread so far.
fn processor() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap().into()
}

fn uid(number: usize) -> String {
    format!("{:08x}-7c2d-4b1e-9a3f-{number:012x}", number.wrapping_mul(2_654_435_761) & 0xffff_ffff)
}

/// Returns a pod that runs this version. `apart`: it is the only one of its workload.
fn pod(number: usize, runs: &str, apart: bool) -> PodState {
    let shop = ConfigName::new("shop").unwrap();
    PodState {
        namespace: "ns".to_owned(),
        name: format!("web-5d4f7c9b6d-{number:05}"),
        uid: PodUid::new(&uid(number)).unwrap(),
        service_account: "app".to_owned(),
        configs: vec![shop.clone()],
        workload: Some(WorkloadId::new("Deployment", &format!("web-{}", if apart { number } else { number % 40 }))),
        template: Some("5d4f7c9b6d".to_owned()),
        node: Some(format!("node-{}", number % 300)),
        readiness: Readiness::Ready,
        containers_ready: true,
        phase: PodPhase::Running,
        report: Some(Report {
            versions: vec![(shop, VersionName::new(runs).ok())],
            state: ReportState::Acknowledged,
            reasons: Vec::new(),
            at: None,
        }),
        ..PodState::default()
    }
}

/// Returns a config with as many versions as there may be. 1 is current; half of the pods are on 2 if the config moves.
fn config(moves: bool) -> Value {
    let version = |number: usize| {
        let name = number.to_string();
        let part =
            json!({"kind": "ConfigMap", "name": format!("shop-{name}"), "uid": uid(number), "digest": "sha256:00"});
        json!({"version": name, "state": "Available", "parts": [part], "keys": 1, "bytes": 1})
    };
    let rollout =
        if moves { json!({"stage": "Moving", "step": 3, "stepTime": "2026-01-01T00:00:00Z"}) } else { json!({}) };
    let threshold = if moves { 1_u64 << 31 } else { 0 };
    let ready = json!({"type": "Ready", "status": if moves { "False" } else { "True" },
        "reason": if moves { "Progressing" } else { "Current" }, "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    json!({
        "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig",
        "metadata": {"name": "shop", "namespace": "ns", "uid": uid(7), "resourceVersion": "1", "generation": 1},
        "spec": {"version": if moves { "2" } else { "1" }, "historyLimit": 40, "rollout": {"steps": [{"pods": "50%"}]}},
        "status": {
            "currentVersion": "1", "targetVersion": moves.then_some("2"), "conditions": [ready],
            "versions": (1..=VERSIONS).map(version).collect::<Vec<_>>(), "rollout": rollout,
            "internal": {"revision": 1, "threshold": threshold},
        },
    })
}

/// Returns a controller over this config and its pods. Writes succeed; there is no published ConfigMap.
fn controller(config: Value, pods: impl Iterator<Item = PodState>) -> Arc<Controller> {
    let stored = Arc::new(Mutex::new(1));
    let service = service_fn(move |request: Request<Body>| {
        let stored = Arc::clone(&stored);
        async move {
            let is_write = request.method() == Method::PUT;
            let body = request.into_body().collect_bytes().await.unwrap();
            if !is_write {
                let gone = br#"{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}"#;
                return Ok::<_, Infallible>(Response::builder().status(404).body(Body::from(gone.to_vec())).unwrap());
            }
            let mut written: Value = serde_json::from_slice(&body).unwrap();
            let mut version = stored.lock();
            *version += 1;
            written["metadata"]["resourceVersion"] = json!(version.to_string());
            Ok(Response::new(Body::from(written.to_string().into_bytes())))
        }
    });
    let index = Arc::new(Index::default());
    index.set_enabled(["ns".to_owned()].into());
    index.put_config(serde_json::from_value(config).unwrap());
    pods.for_each(|pod| index.put_pod(pod));
    for number in 1..=VERSIONS {
        let part = part(&number.to_string(), &format!("shop-{number}"), &uid(number));
        index.put_part(ConfigKey::parse("ns", "shop").unwrap(), part);
    }
    let controller = Arc::new(controller_over(Client::new(service, "ns"), index));
    controller.begin_to_lead();
    controller
}

/// Returns the processor time of the first reconcile, of the longest of the next reconciles that write, and of the
/// reconciles after them. `happens` changes something before each of these last reconciles.
async fn measure(controller: &Arc<Controller>, mut happens: impl FnMut(usize)) -> [Duration; 3] {
    let key = ConfigKey::parse("ns", "shop").unwrap();
    let reconcile = async || {
        let began = processor();
        let next = Box::pin(controller.reconcile(&key)).await.unwrap();
        (processor().saturating_sub(began), next)
    };
    let first = reconcile().await.0;
    let mut writing = Duration::ZERO;
    loop {
        let (time, next) = reconcile().await;
        writing = writing.max(time);
        if next != NextReconcile::Soon {
            break;
        }
    }
    let mut times = Vec::new();
    for number in 0..RECONCILES {
        happens(number);
        times.push(reconcile().await.0);
    }
    times.sort_unstable();
    [first, writing, times[RECONCILES / 2]]
}

#[tokio::test]
async fn a_reconcile_with_ten_thousand_pods_costs_a_few_passes_over_them() {
    let numbers = 0..PODS;
    let all = |apart| numbers.clone().map(move |number| pod(number, "1", apart));
    let pods: Vec<Arc<PodState>> = all(false).map(Arc::new).collect();
    let mut floors: Vec<Duration> = (0..RECONCILES)
        .map(|_| {
            let began = processor();
            let count = pods
                .iter()
                .filter(|pod| pod.is_ready() && pod.runs("shop").map(VersionName::as_str) == Some("1"))
                .count();
            assert_eq!(count, PODS);
            processor().saturating_sub(began)
        })
        .collect();
    floors.sort_unstable();
    let floor = floors[RECONCILES / 2];
    let mut table = format!("a bare pass over {PODS} pods: {floor:?}\n");
    let mut slow = Vec::new();
    let mut row = |what: &str, [first, writing, next]: [Duration; 3]| {
        writeln!(table, "{what}: first {first:?}, with writes {writing:?}, then {next:?}").unwrap();
        if writing.max(next) > floor * MAX_PASSES {
            slow.push(what.to_owned());
        }
    };
    let still = controller(config(false), all(false));
    row("at rest", measure(&still, |_| ()).await);
    let moving = controller(config(true), all(false));
    row("moving", measure(&moving, |_| ()).await);
    // Each reports 2, and later 1 again.
    let report = |round: usize| {
        (0..100)
            .for_each(|at| moving.index.put_pod(pod(at * 100 + round % 7, if round < 7 { "2" } else { "1" }, false)));
    };
    row("moving, 100 pods have reported", measure(&moving, report).await);
    let harm = |round: usize| {
        (0..100).for_each(|at| {
            let fallen = pod(at * 100 + round, "1", false);
            moving.index.put_pod(PodState {
                containers_ready: false,
                readiness: Readiness::Lost { since: 0 },
                node: None,
                ..fallen
            });
        });
    };
    row("moving, 100 pods more are unready each time", measure(&moving, harm).await);
    // Each pod uses another config too. Its node is known, so events of other pods there matter.
    let shared = |number| {
        let pod = pod(number, "1", false);
        PodState { configs: ["shop", "keys"].map(|name| ConfigName::new(name).unwrap()).to_vec(), ..pod }
    };
    let neighbours = controller(config(true), numbers.clone().map(shared));
    let fall = |round: usize| {
        (0..100).for_each(|at| {
            let fallen = PodState { containers_ready: false, readiness: Readiness::Never, ..shared(at * 100 + round) };
            neighbours.index.put_pod(fallen);
        });
    };
    row("moving, 100 pods more are unready on their nodes", measure(&neighbours, fall).await);
    // New pods that do not start, each of its own workload.
    let born = |number| PodState {
        readiness: Readiness::Never,
        containers_ready: false,
        restarts: RestartSums { crashes: 1, ..RestartSums::default() }.into(),
        ..pod(number, "1", true)
    };
    let groups = controller(config(true), numbers.map(born));
    row("10,000 workloads of one new pod", measure(&groups, |_| ()).await);
    std::io::Write::write_all(&mut std::io::stderr(), table.as_bytes()).unwrap();
    assert!(slow.is_empty(), "more than {MAX_PASSES} bare passes: {slow:?}\n{table}");
}
