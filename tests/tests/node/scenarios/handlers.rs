//! Applications in four languages and an unchanged nginx take new versions in place. How long it takes from the moment
//! when the API server has the new `spec.version` until the application's handler is through. If this scenario runs
//! alone, beside what there is without Nudge: the kubelet's refresh of a ConfigMap volume, which takes a minute, and a
//! rolling restart.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use time::OffsetDateTime;

use crate::report::seconds;
use crate::space::{LONG_WAIT_TIMEOUT, ScenarioNamespace, WAIT_TIMEOUT, assert_untouched, is_ready};
use crate::suite::Suite;
use nudge_tests::eventually;

const SHOPS: [&str; 4] = ["python", "node", "shell", "rust"];
/// Activations, there and back.
const ROUNDS: usize = 6;
const TITLE: &str = "From spec.version to the application's handler";

pub(crate) async fn run(suite: &Suite) -> Result<()> {
    let home = ScenarioNamespace::enabled(suite, "handlers").await?;
    home.apply_examples(&["shop", "web", "python", "node", "shell", "rust", "nginx"])?;
    let alone = suite.is_alone();
    if alone {
        home.apply(&plain(&home))?;
    }
    for config in ["shop", "web"] {
        home.at_once(config).await?;
    }
    let mut pods = Vec::new();
    for name in SHOPS {
        let pod = home.ready_pod(&format!("app.kubernetes.io/name=example-{name}")).await?;
        let log = home.follow(&pod).await?;
        log.line(OffsetDateTime::UNIX_EPOCH, WAIT_TIMEOUT, "shop=1.0.0 greeting=hello lives=3").await?;
        pods.push((name, pod, log));
    }
    let nginx = home.ready_pod("app.kubernetes.io/name=example-nginx").await?;
    wait_until_served(&home, &nginx, "hello\n").await?;
    for config in ["shop", "web"] {
        home.wait_until_current(config, "1.0.0").await?;
    }

    let mut times = vec![Vec::new(); SHOPS.len() + 1];
    for round in 0..ROUNDS {
        let (version, line, page) = [
            ("1.0.1", "shop=1.0.1 greeting=welcome lives=5", "welcome\n"),
            ("1.0.0", "shop=1.0.0 greeting=hello lives=3", "hello\n"),
        ][round % 2];
        // Kubernetes' and the node's clocks are one only on a node of our own; on others a skew is in these times.
        let before = OffsetDateTime::now_utc();
        home.activate("shop", version).await?;
        let activated = OffsetDateTime::now_utc();
        for ((name, _, log), times) in pods.iter().zip(&mut times) {
            let line = log.line(before, WAIT_TIMEOUT, line).await.with_context(|| format!("{name}, {version}"))?;
            times.push(Duration::try_from(line.at - activated).unwrap_or_default());
        }
        home.activate("web", version).await?;
        let activated = OffsetDateTime::now_utc();
        wait_until_served(&home, &nginx, page).await?;
        times[SHOPS.len()].push(Duration::try_from(OffsetDateTime::now_utc() - activated)?);
        for config in ["shop", "web"] {
            home.wait_until_current(config, version).await?;
        }
    }
    let all = pods.iter().map(|(name, pod, _)| (*name, pod)).chain([("nginx (SIGHUP, files)", &nginx)]);
    suite.report.row(TITLE, &["", "median", "worst", "of"].map(str::to_owned));
    for ((name, pod), mut times) in all.zip(times) {
        assert_untouched(&home, pod).await?;
        times.sort();
        let (median, worst) = (times[times.len() / 2], times[times.len() - 1]);
        suite.report.row(TITLE, &[name.to_owned(), seconds(median), seconds(worst), times.len().to_string()]);
    }
    for (name, _, log) in &pods {
        let lines = log.lines();
        let first = lines.first().and_then(|line| line.text.split_once(':')).map(|(pid, _)| pid.to_owned());
        ensure!(first.is_some_and(|pid| lines.iter().all(|line| line.text.starts_with(&pid))), "{name}: {lines:?}");
    }

    if alone { without_nudge(suite, &home).await } else { Ok(()) }
}

/// What takes its place.
async fn without_nudge(suite: &Suite, home: &ScenarioNamespace<'_>) -> Result<()> {
    let volume_log = home.follow(&home.ready_pod("app=plain").await?).await?;
    let (up, gone) = rolling_restart(home).await?;
    suite.report.row(TITLE, &["rolling restart of python: ready".to_owned(), seconds(up)]);
    suite.report.row(TITLE, &["rolling restart of python: complete".to_owned(), seconds(gone)]);
    // Not earlier: a kubelet looks at a pod that has just started several times, and only then takes its usual rounds.
    let plain = Patch::Merge(json!({"data": {"greeting": "welcome"}}));
    home.space.api::<ConfigMap>().patch("plain", &PatchParams::default(), &plain).await?;
    let refreshed = OffsetDateTime::now_utc();
    let line = volume_log.line(refreshed, LONG_WAIT_TIMEOUT, "greeting=welcome").await?;
    let refresh = Duration::try_from(line.at - refreshed)?;
    suite.report.row(TITLE, &["kubelet's refresh of a plain volume".to_owned(), seconds(refresh)]);
    Ok(())
}

/// Returns a ConfigMap that belongs to no config, and a pod that shows its files as the kubelet makes them.
fn plain(home: &ScenarioNamespace<'_>) -> String {
    let script = "while true; do now=$(cat /config/greeting); [ \"$now\" = \"$was\" ] || echo \"greeting=$now\"; was=$now; sleep 0.2; done";
    let container = json!({
        "name": "app", "image": home.place.image("nudge-example-shell:0.1.0"), "command": ["sh", "-c", script],
        "volumeMounts": [{"name": "config", "mountPath": "/config"}],
    });
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "plain", "labels": {"app": "plain"}},
        "spec": {
            "terminationGracePeriodSeconds": 0, "containers": [container],
            "volumes": [{"name": "config", "configMap": {"name": "plain"}}],
        },
    });
    let map =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "plain"}, "data": {"greeting": "hello"}});
    json!({"apiVersion": "v1", "kind": "List", "items": [map, pod]}).to_string()
}

/// Waits until the pod's web server answers this. It is asked through the API server, by a way that is there on every
/// cluster.
async fn wait_until_served(home: &ScenarioNamespace<'_>, pod: &Pod, page: &str) -> Result<()> {
    let path = format!("/api/v1/namespaces/{}/pods/{}:8080/proxy/", home.space.name, pod.name_any());
    nudge_tests::eventually(WAIT_TIMEOUT, &format!("nginx answers {page:?}"), async || {
        let request = hyper::Request::get(&path).body(Vec::new()).ok()?;
        (home.space.client.request_text(request).await.ok()? == page).then_some(())
    })
    .await
}

/// Until the new pod is ready, and until the old one is gone as well.
async fn rolling_restart(home: &ScenarioNamespace<'_>) -> Result<(Duration, Duration)> {
    let annotation =
        json!({"kubectl.kubernetes.io/restartedAt": OffsetDateTime::now_utc().unix_timestamp().to_string()});
    let patch = Patch::Merge(json!({"spec": {"template": {"metadata": {"annotations": annotation}}}}));
    let label = "app.kubernetes.io/name=example-python";
    let old = home.ready_pod(label).await?.name_any();
    home.space.api::<Deployment>().patch("example-python", &PatchParams::default(), &patch).await?;
    let began = OffsetDateTime::now_utc();
    let pods = home.space.api::<Pod>();
    let list = kube::api::ListParams::default().labels(label);
    eventually(WAIT_TIMEOUT, "the new pod is ready", async || {
        let listed_pods = pods.list(&list).await.ok()?.items;
        listed_pods.iter().any(|pod| pod.name_any() != old && is_ready(pod)).then_some(())
    })
    .await?;
    let up = OffsetDateTime::now_utc();
    eventually(LONG_WAIT_TIMEOUT, "the old pod is gone", async || {
        pods.get_opt(&old).await.ok()?.is_none().then_some(())
    })
    .await?;
    Ok((Duration::try_from(up - began)?, Duration::try_from(OffsetDateTime::now_utc() - began)?))
}
