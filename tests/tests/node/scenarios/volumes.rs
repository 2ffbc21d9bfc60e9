//! The files of moved mounts beside the kubelet's: one ConfigMap and one Secret in twelve kinds of volumes, read by six
//! kinds of users, in a pod with an agent and in one without. Both have the same paths, types, links and bytes. Who can
//! read the kubelet's files can read the agent's; the only other reader is the user of the container that mounts them.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use nudge_tests::eventually;
use serde_json::{Value, json};

use super::exposure::ready;
use super::mounted::{moved_pods, moves_mounts, serve_secrets};
use crate::objects::{deployment, list, opted_in, plain, shell, template};
use crate::space::{LONG_WAIT_TIMEOUT, ScenarioNamespace};
use crate::suite::Suite;

const TITLE: &str = "Files of twelve kinds of volumes, as the kubelet writes them and as the agent does";
/// Says of each file below /volumes its path, type, mode, link and checksum, or `-` for what can't be read. Times in
/// names are left out.
const APP: &str = r#"
    cd /volumes
    for path in $(find . -mindepth 1 2>/dev/null | sort); do
        link=-; content=-
        if [ -L "$path" ]; then link=$(readlink "$path"); fi
        if [ -f "$path" ] && cat "$path" >/tmp/content 2>/dev/null; then content=$(md5sum </tmp/content | cut -d' ' -f1); fi
        echo "$path|$(stat -c '%F|%a' "$path")|$link|$content"
    done | sed -E 's/\.\.[0-9]{4}_[0-9_]+\.[0-9A-Za-z]+/..time/g'
    echo end
    trap 'exit 0' TERM; while :; do sleep 0.1; done"#;

/// A security context of the pod, and those of its containers.
struct User {
    name: &'static str,
    pod: Value,
    containers: Vec<Value>,
}

fn users() -> [User; 6] {
    let one = |name, pod: Value| User { name, pod, containers: vec![json!({})] };
    [
        one("root", json!({"runAsUser": 0})),
        one("no-group", json!({"runAsUser": 10001})),
        one("group", json!({"runAsUser": 10001, "runAsGroup": 10001})),
        one("volume-group", json!({"runAsUser": 10001, "runAsGroup": 10001, "fsGroup": 2000})),
        one("more-groups", json!({"runAsUser": 10001, "runAsGroup": 10001, "supplementalGroups": [3000]})),
        User {
            name: "two-users",
            pod: json!({"fsGroup": 2000}),
            containers: vec![
                json!({"runAsUser": 10001, "runAsGroup": 10001}),
                json!({"runAsUser": 10002, "runAsGroup": 10002}),
            ],
        },
    ]
}

pub(crate) async fn run(suite: &Suite) -> Result<()> {
    let home = ScenarioNamespace::enabled(suite, "volumes").await?;
    if !moves_mounts(&home).await? {
        return Ok(());
    }
    serve_secrets(&home)?;
    home.apply(&list(objects()))?;
    home.wait_until_current("files", "1.0.0").await?;
    let users = users();
    let templates = users.iter().flat_map(|user| [true, false].map(|has_agent| pod_template(&home, user, has_agent)));
    home.apply(&list(templates.map(|template| deployment(&template, 1))))?;
    for user in &users {
        let ours = moved_pods(&home, &format!("{}-agent", user.name), 1).await?.pop().context("no pod")?;
        let theirs = ready(&home, user.name, 1).await?.pop().context("no pod")?;
        for (index, _) in user.containers.iter().enumerate() {
            let (ours, theirs) = (files(&home, &ours, index).await?, files(&home, &theirs, index).await?);
            let (same, more) = compare(&ours, &theirs).with_context(|| format!("{}, container {index}", user.name))?;
            let counts = [
                format!("{}, container {index}", user.name),
                format!("{same} files read by both"),
                format!("{more} by the agent's alone"),
            ];
            suite.report.row(TITLE, &counts);
        }
    }
    Ok(())
}

/// What a container says of a file.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    kind: String,
    mode: u32,
    link: String,
    content: Option<String>,
}

/// Returns what a container says of its files, by path.
async fn files(home: &ScenarioNamespace<'_>, pod: &Pod, index: usize) -> Result<BTreeMap<String, Seen>> {
    let container = format!("app{index}");
    let log = eventually(LONG_WAIT_TIMEOUT, &format!("{} has read its files", pod.name_any()), async || {
        let log = home.kubectl(&["logs", &pod.name_any(), "-c", &container]).ok()?;
        log.lines().any(|line| line == "end").then_some(log)
    })
    .await?;
    let lines = log.lines().take_while(|line| *line != "end");
    lines
        .map(|line| {
            let fields: Vec<&str> = line.split('|').collect();
            let [path, kind, mode, link, content] = fields[..] else { anyhow::bail!("{line}") };
            let content = (content != "-").then(|| content.to_owned());
            let mode = u32::from_str_radix(mode, 8)?;
            Ok((path.to_owned(), Seen { kind: kind.to_owned(), mode, link: link.to_owned(), content }))
        })
        .collect()
}

/// Compares the agent's files with the kubelet's. Returns how many files are read in both pods, and in the agent's
/// alone.
fn compare(ours: &BTreeMap<String, Seen>, theirs: &BTreeMap<String, Seen>) -> Result<(usize, usize)> {
    let (mut same, mut more) = (0, 0);
    for (path, kubelet) in theirs {
        let agent = ours.get(path).with_context(|| format!("the agent has no {path}"))?;
        let alike = (&agent.kind, &agent.link) == (&kubelet.kind, &kubelet.link);
        ensure!(alike, "{path} is {agent:?}, and the kubelet's is {kubelet:?}");
        let is_file = kubelet.kind == "regular file";
        if is_file {
            let more = agent.mode & !kubelet.mode & 0o077;
            ensure!(
                more == 0,
                "others may do more with the agent's {path}: {agent:?}, and the kubelet's is {kubelet:?}"
            );
        }
        if is_file && !path.contains("secret") && !path.contains("pin") && kubelet.mode & 0o004 != 0 {
            ensure!(agent.mode == kubelet.mode, "{path} is {agent:?}, and the kubelet's is {kubelet:?}");
        }
        match (&agent.content, &kubelet.content) {
            (agent, None) => more += usize::from(agent.is_some()),
            (agent, kubelet) => {
                ensure!(agent == kubelet, "{path} has the checksum {agent:?}, and the kubelet's {kubelet:?}");
                same += 1;
            }
        }
    }
    let missing: Vec<_> = ours.keys().filter(|path| !theirs.contains_key(*path)).collect();
    ensure!(missing.is_empty(), "the kubelet has no {missing:?}");
    ensure!(same > 0, "no file was compared");
    Ok((same, more))
}

/// A ConfigMap, a Secret, and a config that follows them.
fn objects() -> [Value; 3] {
    let mut map = plain("files", &json!({"mode": "one", "text": "line\n"}));
    map["binaryData"] = json!({"data": "AAEC/w=="});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "files"}, "stringData": {"pin": "first-Vq4tW9"}});
    let config = json!({
        "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": "files"},
        "spec": {"objects": ["ConfigMap", "Secret"]},
    });
    [map, secret, config]
}

fn pod_template(home: &ScenarioNamespace<'_>, user: &User, has_agent: bool) -> Value {
    let app = shell(home, APP);
    let mut template = if has_agent {
        opted_in(&format!("{}-agent", user.name), &app, &[("configs", "files"), ("notify", "none")])
    } else {
        template(user.name, &app)
    };
    let mounts = volumes().into_iter().map(|(name, _)| {
        let path = format!("/volumes/{name}");
        if name == "one-file" {
            json!({"name": name, "mountPath": path, "subPath": "mode"})
        } else {
            json!({"name": name, "mountPath": path})
        }
    });
    let mounts: Vec<_> = mounts.collect();
    let containers = user.containers.iter().enumerate().map(|(index, security)| {
        let mut container = app.clone();
        container["name"] = format!("app{index}").into();
        container["securityContext"] = security.clone();
        container["volumeMounts"] = mounts.clone().into();
        container
    });
    template["spec"]["containers"] = containers.collect();
    template["spec"]["securityContext"] = user.pod.clone();
    let volumes = volumes().into_iter().map(|(name, mut volume)| {
        volume["name"] = name.into();
        volume
    });
    template["spec"]["volumes"] = volumes.collect();
    template
}

/// Twelve volumes, by name. The last mounts one file.
fn volumes() -> Vec<(&'static str, Value)> {
    let nested = json!([{"key": "mode", "path": "conf.d/deep/mode"}, {"key": "data", "path": "data", "mode": 0o440}]);
    let absent = json!([{"key": "absent", "path": "absent"}, {"key": "mode", "path": "mode"}]);
    let pin = json!([{"key": "pin", "path": "conf.d/pin", "mode": 0o440}]);
    let map = json!({"configMap": {"name": "files"}});
    let secret = json!({"secret": {"name": "files"}});
    vec![
        ("map", json!({"configMap": {"name": "files"}})),
        ("map-items", json!({"configMap": {"name": "files", "items": nested}})),
        ("map-group", json!({"configMap": {"name": "files", "defaultMode": 0o640}})),
        ("map-strict", json!({"configMap": {"name": "files", "defaultMode": 0o400}})),
        ("map-executable", json!({"configMap": {"name": "files", "defaultMode": 0o755}})),
        ("map-optional", json!({"configMap": {"name": "files", "optional": true, "items": absent}})),
        ("secret", json!({"secret": {"secretName": "files"}})),
        ("secret-strict", json!({"secret": {"secretName": "files", "defaultMode": 0o400}})),
        ("secret-items", json!({"secret": {"secretName": "files", "items": pin}})),
        ("projected", json!({"projected": {"sources": [map, secret]}})),
        (
            "projected-strict",
            json!({"projected": {"defaultMode": 0o600, "sources": [secret, {"configMap": {"name": "files", "items": nested}}]}}),
        ),
        ("one-file", map),
    ]
}
