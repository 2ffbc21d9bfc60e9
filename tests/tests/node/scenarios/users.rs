//! Applications of all kinds of users are notified, and none of them can look into the agent.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use serde_json::{Value, json};
use time::OffsetDateTime;

use crate::install;
use crate::log::Log;
use crate::space::{LONG_WAIT_TIMEOUT, ScenarioNamespace, WAIT_TIMEOUT, assert_untouched};
use crate::suite::Suite;
use nudge_tests::eventually;

/// The user of the examples' images.
const APP: i64 = 10001;
/// The agent's user if that is not the application's.
const AGENT: i64 = 65532;

/// Root that becomes the application.
const DROP: [&str; 6] = ["setpriv", "--reuid=10001", "--regid=10001", "--clear-groups", "sh", "/app.sh"];

/// What distinguishes the cases: a name, the application's security context, its command if it is not the image's, and
/// the agent's user.
struct Case {
    name: &'static str,
    security: Value,
    command: Option<&'static [&'static str]>,
    agent: i64,
}

pub(crate) async fn run(suite: &Suite) -> Result<()> {
    let home = ScenarioNamespace::enabled(suite, "users").await?;
    home.apply_examples(&["shop"])?;
    home.at_once("shop").await?;
    let cases = [
        Case { name: "same-user", security: json!({"runAsUser": APP, "runAsGroup": APP}), command: None, agent: APP },
        Case { name: "other-user", security: json!({}), command: None, agent: AGENT },
        Case { name: "root", security: json!({"runAsUser": 0}), command: None, agent: AGENT },
        Case { name: "dropped", security: json!({"runAsUser": 0}), command: Some(&DROP), agent: AGENT },
    ];
    for case in &cases {
        home.apply(&pod(&home, case, "shop").to_string())?;
    }
    let mut pods = Vec::new();
    for case in &cases {
        let pod = home.ready_pod(&format!("app={}", case.name)).await?;
        ensure!(agent_user(&pod)? == case.agent, "{}: the agent's user is {}", case.name, agent_user(&pod)?);
        let log = home.follow(&pod).await?;
        log.line(OffsetDateTime::UNIX_EPOCH, WAIT_TIMEOUT, "shop=1.0.0").await.with_context(|| case.name)?;
        pods.push((case.name, pod, log));
    }
    home.activate("shop", "1.0.1").await?;
    for (name, pod, log) in &pods {
        log.line(OffsetDateTime::UNIX_EPOCH, WAIT_TIMEOUT, "shop=1.0.1").await.with_context(|| *name)?;
        assert_untouched(&home, pod).await?;
    }
    home.wait_until_current("shop", "1.0.1").await?;
    keeps_its_secrets(&home, &pods[0].1)?;
    without_handler(&home).await?;
    if install::minor(&home.space.client).await? >= 25 {
        pod_security(suite).await?;
    }
    Ok(())
}

/// Returns a pod of the shell example, opted in.
fn pod(home: &ScenarioNamespace<'_>, case: &Case, config: &str) -> Value {
    let mut container = json!({
        "name": "app", "image": home.place.image("nudge-example-shell:0.1.0"), "securityContext": case.security,
    });
    if let Some(command) = case.command {
        container["command"] = json!(command);
    }
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": case.name, "labels": {"app": case.name, "nudge.dev/inject": "true"},
            "annotations": {"nudge.dev/configs": config, "nudge.dev/notify": "SIGUSR1"},
        },
        "spec": {"automountServiceAccountToken": false, "terminationGracePeriodSeconds": 1, "containers": [container]},
    })
}

/// Whom the agent's container runs as.
fn agent_user(pod: &Pod) -> Result<i64> {
    let spec = pod.spec.as_ref().context("no spec")?;
    let all = spec.init_containers.iter().flatten().chain(&spec.containers);
    let agent = all.into_iter().find(|container| container.name == "nudge-agent").context("no agent")?;
    agent.security_context.as_ref().and_then(|context| context.run_as_user).context("the agent has no user")
}

/// An application of the agent's own user, in the same process namespace, reads neither its memory nor its files: not
/// the token of the service account, and not the private key.
fn keeps_its_secrets(home: &ScenarioNamespace<'_>, pod: &Pod) -> Result<()> {
    // Says what could be read. What it can read of itself shows that it would.
    let script = r#"
        for process in /proc/[0-9]*; do
            case $(cat "$process/comm" 2>/dev/null) in nudge-agent) agent=$process ;; esac
        done
        echo "user $(id -u) beside $(sed -n 's/^Uid:\t\([0-9]*\).*/\1/p' "$agent/status")"
        for process in /proc/self "$agent"; do
            for part in environ maps root/ cwd/ fd/ root/run/nudge/state/ root/var/run/secrets/kubernetes.io/serviceaccount/token; do
                case $part in */) ls "$process/$part" ;; *) cat "$process/$part" ;; esac >/dev/null 2>&1 && echo "$process/$part"
            done
        done
        ls -d /run/nudge/state /var/run/secrets/kubernetes.io 2>/dev/null
        true"#;
    let output = home.kubectl(&["exec", &pod.name_any(), "-c", "app", "--", "sh", "-c", script])?;
    let mut lines = output.lines();
    let users = lines.next().unwrap_or_default();
    ensure!(users == format!("user {APP} beside {APP}"), "{output}");
    let (own, others): (Vec<_>, Vec<_>) = lines.partition(|line| line.starts_with("/proc/self/"));
    for part in ["environ", "maps", "root/", "fd/"] {
        ensure!(own.contains(&format!("/proc/self/{part}").as_str()), "it can't even read its own {part}: {output}");
    }
    ensure!(others.is_empty(), "the application reads {others:?}");
    Ok(())
}

/// An application that handles no signal gets none, which would end it, and its pod says why it does not take the
/// version.
async fn without_handler(home: &ScenarioNamespace<'_>) -> Result<()> {
    home.apply(&two_versions("quiet"))?;
    home.at_once("quiet").await?;
    let command: &[&str] = &["sleep", "86400"];
    let security = json!({"runAsUser": APP, "runAsGroup": APP});
    let case = Case { name: "no-handler", security, command: Some(command), agent: APP };
    home.apply(&pod(home, &case, "quiet").to_string())?;
    let pod = home.ready_pod("app=no-handler").await?;
    home.wait_until_current("quiet", "1").await?;
    home.activate("quiet", "2").await?;
    let pods = home.space.api::<Pod>();
    eventually(LONG_WAIT_TIMEOUT, "the pod says NoHandler", async || {
        let status = pods.get(&pod.name_any()).await.ok()?.status?;
        let mut conditions = status.conditions?.into_iter();
        let condition = conditions.find(|condition| condition.type_ == "nudge.dev/ConfigCurrent")?;
        (condition.status == "False" && condition.reason.as_deref() == Some("NoHandler")).then_some(())
    })
    .await?;
    assert_untouched(home, &pod).await
}

fn two_versions(config: &str) -> String {
    let version = |version: &str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "immutable": true, "data": {"greeting": version},
            "metadata": {
                "name": format!("{config}-{version}"), "labels": {"nudge.dev/config": config, "nudge.dev/version": version},
            },
        })
    };
    let object = json!({
        "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": config}, "spec": {"version": "1"},
    });
    json!({"apiVersion": "v1", "kind": "List", "items": [version("1"), version("2"), object]}).to_string()
}

/// Under `restricted` the examples run and are notified. An application that another user notifies needs `baseline`,
/// and is refused otherwise.
async fn pod_security(suite: &Suite) -> Result<()> {
    for level in ["restricted", "baseline"] {
        let home = ScenarioNamespace::enabled(suite, level).await?;
        let label = format!("pod-security.kubernetes.io/enforce={level}");
        home.kubectl(&["label", "namespace", &home.space.name, &label])?;
        home.apply_examples(&["shop", "python"])?;
        home.at_once("shop").await?;
        let pod = home.ready_pod("app.kubernetes.io/name=example-python").await?;
        let log = home.follow(&pod).await?;
        let other = Case { name: "other-user", security: json!({}), command: None, agent: AGENT };
        let applied = home.apply(&self::pod(&home, &other, "shop").to_string());
        let mut logs: Vec<(Pod, Log)> = vec![(pod, log)];
        if level == "restricted" {
            ensure!(applied.is_err_and(|error| error.to_string().contains("PodSecurity")), "restricted lets KILL in");
        } else {
            applied?;
            let pod = home.ready_pod("app=other-user").await?;
            let log = home.follow(&pod).await?;
            logs.push((pod, log));
        }
        for (_, log) in &logs {
            log.line(OffsetDateTime::UNIX_EPOCH, WAIT_TIMEOUT, "shop=1.0.0").await?;
        }
        home.activate("shop", "1.0.1").await?;
        for (pod, log) in &logs {
            log.line(OffsetDateTime::UNIX_EPOCH, WAIT_TIMEOUT, "shop=1.0.1").await.context(level)?;
            assert_untouched(&home, pod).await?;
        }
    }
    Ok(())
}
