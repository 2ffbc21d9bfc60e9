//! The agent's container.

use nudge_protocol::env::DEFAULT_PORT;
use nudge_protocol::settings::{write_list, write_pair};
use nudge_protocol::{Ack, ConfigName, pod};
use serde_json::{Value, json};

use super::facts::Facts;
use super::pod_request::PodRequest;
use super::resources::Amounts;
use super::run_as_user::{NOBODY, RunAsUser};
use super::settings::InjectionSettings;
use super::targets::Targets;
use super::volumes::{BOOTSTRAP_DIR, FILES_DIR, SHARE_DIR, STATE_DIR, Volumes};

/// What the container is made of.
pub(super) struct Parts<'a> {
    pub(super) configs: &'a [ConfigName],
    pub(super) request: &'a PodRequest,
    pub(super) targets: &'a Targets<'a>,
    pub(super) run_as_user: &'a RunAsUser,
    pub(super) amounts: Option<Amounts>,
    pub(super) volumes: &'a Volumes,
    pub(super) facts: &'a Facts,
    pub(super) settings: &'a InjectionSettings,
    /// The pod ends when its containers have ended, and the agent is one of them.
    pub(super) ends: bool,
    /// It listens on the node's own addresses.
    pub(super) on_node: bool,
}

pub(super) fn port(request: &PodRequest) -> u16 {
    request.port.unwrap_or(DEFAULT_PORT)
}

/// The container as it stands in the pod.
pub(super) fn container(parts: &Parts<'_>) -> Value {
    let (settings, run_as_user) = (parts.settings, parts.run_as_user);
    let image = if run_as_user.kill { &settings.agent_kill_image } else { &settings.agent_image };
    let capabilities =
        if run_as_user.kill { json!({"drop": ["ALL"], "add": ["KILL"]}) } else { json!({"drop": ["ALL"]}) };
    let mut agent = json!({
        "name": pod::AGENT_CONTAINER,
        "image": image,
        "command": ["/nudge-agent"],
        "args": ["run"],
        "env": environment(parts),
        "volumeMounts": parts.volumes.mounts,
        "lifecycle": {"postStart": {"exec": {"command": ["/nudge-agent", "wait-ready"]}}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "capabilities": capabilities,
            "readOnlyRootFilesystem": true,
            "runAsNonRoot": true,
            "runAsUser": run_as_user.uid,
            // Else the group would be the image's or the pod's, and root's where neither says one.
            "runAsGroup": NOBODY,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    });
    if let Some(policy) = &settings.image_pull_policy {
        agent["imagePullPolicy"] = json!(policy);
    }
    if let Some(amounts) = &parts.amounts {
        agent["resources"] = amounts.json();
    }
    if parts.facts.features.native_sidecars {
        agent["restartPolicy"] = json!("Always");
    }
    if parts.on_node {
        // So that no node gets two pods whose agents listen on the same port. Elsewhere it would tell nobody anything.
        let port = port(parts.request);
        agent["ports"] = json!([{"containerPort": port, "hostPort": port, "protocol": "TCP"}]);
    }
    agent
}

fn environment(parts: &Parts<'_>) -> Vec<Value> {
    let request = parts.request;
    let notify = parts.targets.told.iter().map(|(name, way)| write_pair(name, way));
    let webhooks = request.webhooks.iter().map(|(name, url)| write_pair(name, url));
    let ack = match request.ack {
        Some(Ack::Fetched) => "fetched",
        Some(Ack::Delivered) => "delivered",
        None => "",
    };
    let folder = |used: bool, path: &str| if used { path.to_owned() } else { String::new() };
    let variables = [
        (pod::env::CONFIGS, write_list(parts.configs)),
        (pod::env::NOTIFY, write_list(notify)),
        (pod::env::ACK, ack.to_owned()),
        (pod::env::WEBHOOKS, write_list(webhooks)),
        (pod::env::WEBHOOK_ALLOW, write_list(&request.webhook_allow)),
        (pod::env::PORT, port(request).to_string()),
        (pod::env::MOUNT_PATH, folder(request.mount_path.is_some(), FILES_DIR)),
        (pod::env::HUB, parts.settings.hub.clone()),
        (pod::env::HUB_CA_FILE, format!("{}/ca.crt", pod::HUB_PATH)),
        (pod::env::HUB_CA, parts.facts.hub_ca.clone()),
        (pod::env::HUB_TOKEN_FILE, format!("{}/token", pod::HUB_PATH)),
        (pod::env::BOOTSTRAP_DIR, folder(parts.volumes.bootstrap, BOOTSTRAP_DIR)),
        (pod::env::STATE_DIR, STATE_DIR.to_owned()),
        (pod::env::SHARE_DIR, SHARE_DIR.to_owned()),
        (pod::env::START_TIMEOUT, request.start_timeout.clone().unwrap_or_default()),
        (pod::env::END_WITH_CONTAINERS, folder(parts.ends, "true")),
    ];
    let said = variables.into_iter().filter(|(_, value)| !value.is_empty());
    let mut all: Vec<Value> = said.map(|(name, value)| variable(name, &value)).collect();
    all.push(json!({"name": pod::env::POD_IPS, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIPs"}}}));
    all
}

/// A variable with exactly this value: Kubernetes would replace `$(NAME)` in it, and makes one `$` of two.
fn variable(name: &str, value: &str) -> Value {
    json!({"name": name, "value": value.replace('$', "$$")})
}
