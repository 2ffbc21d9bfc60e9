//! The agent's container.

use nudge_protocol::env::DEFAULT_PORT;
use nudge_protocol::settings::{write_list, write_pair};
use nudge_protocol::{Ack, ConfigName, pod};
use serde_json::{Value, json};

use super::volumes::{BOOTSTRAP_DIR, FILES_DIR, SHARE_DIR, STATE_DIR, VARIABLES_DIR, Volumes};
use crate::injection::facts::Facts;
use crate::injection::gate::Gate;
use crate::injection::moved_mounts::MovedMounts;
use crate::injection::request::PodRequest;
use crate::injection::resources::AgentResources;
use crate::injection::settings::InjectionSettings;
use crate::injection::targets::{NOBODY, RunAsUser, Targets};

/// What the container follows from.
pub(in crate::injection) struct AgentContainer<'a> {
    pub(in crate::injection) configs: &'a [ConfigName],
    pub(in crate::injection) request: &'a PodRequest,
    pub(in crate::injection) targets: &'a Targets<'a>,
    pub(in crate::injection) run_as_user: &'a RunAsUser,
    pub(in crate::injection) moved: &'a MovedMounts,
    pub(in crate::injection) resources: Option<AgentResources>,
    pub(in crate::injection) volumes: &'a Volumes,
    pub(in crate::injection) facts: &'a Facts,
    pub(in crate::injection) settings: &'a InjectionSettings,
    pub(in crate::injection) gate: Gate,
    /// The agent is one of the main containers, and the pod ends when these have ended.
    pub(in crate::injection) end_with_containers: bool,
    /// The pod uses the node's network.
    pub(in crate::injection) host_network: bool,
}

/// The port on which the agent listens.
pub(in crate::injection) fn port(request: &PodRequest, settings: &InjectionSettings) -> u16 {
    request.port.or(settings.agent_defaults.port).unwrap_or(DEFAULT_PORT)
}

/// The container as JSON.
pub(in crate::injection) fn agent_container(of: &AgentContainer<'_>) -> Value {
    let (settings, run_as_user) = (of.settings, of.run_as_user);
    let image = if run_as_user.kill { &settings.agent_kill_image } else { &settings.agent_image };
    let capabilities =
        if run_as_user.kill { json!({"drop": ["ALL"], "add": ["KILL"]}) } else { json!({"drop": ["ALL"]}) };
    let mut agent = json!({
        "name": pod::AGENT_CONTAINER,
        "image": image,
        "command": ["/nudge-agent"],
        "args": ["run"],
        "env": environment(of),
        "volumeMounts": of.volumes.mounts,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "capabilities": capabilities,
            "readOnlyRootFilesystem": true,
            "runAsNonRoot": true,
            "runAsUser": of.moved.agent_user.unwrap_or(NOBODY),
            // The default is the group of the pod or the image, which may be root.
            "runAsGroup": NOBODY,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    });
    of.gate.add_to(&mut agent);
    if let Some(policy) = &settings.image_pull_policy {
        agent["imagePullPolicy"] = json!(policy);
    }
    if let Some(resources) = &of.resources {
        agent["resources"] = resources.json();
    }
    if of.facts.features.native_sidecars {
        agent["restartPolicy"] = json!("Always");
    }
    if of.targets.restarted().next().is_some() {
        agent["restartPolicyRules"] = json!([{
            "action": "RestartAllContainers",
            "exitCodes": {"operator": "In", "values": [pod::RESTART_EXIT_CODE]},
        }]);
    }
    if of.host_network {
        // The scheduler then puts no two pods with the same port on a node.
        let port = port(of.request, settings);
        agent["ports"] = json!([{"containerPort": port, "hostPort": port, "protocol": "TCP"}]);
    }
    agent
}

fn environment(of: &AgentContainer<'_>) -> Vec<Value> {
    let request = of.request;
    let notify = of.targets.notified.iter().map(|(name, notify)| write_pair(name, notify));
    let webhooks = request.webhooks.iter().map(|(name, url)| write_pair(name, url));
    let checks = request.checks.iter().map(|(name, url)| write_pair(name, url));
    let keys = request.variables.iter().flat_map(|(name, keys)| keys.iter().map(move |key| write_pair(name, key)));
    let ack = match request.ack {
        Some(Ack::Fetched) => "fetched",
        Some(Ack::Delivered) => "delivered",
        None => "",
    };
    let start_timeout = request.start_timeout.as_ref().or(of.settings.agent_defaults.start_timeout.as_ref());
    let start_timeout = start_timeout.filter(|_| of.gate == Gate::Hook);
    let only_if = |used: bool, value: &str| if used { value.to_owned() } else { String::new() };
    let variables = [
        (pod::env::CONFIGS, write_list(of.configs)),
        (pod::env::NOTIFY, write_list(notify)),
        (pod::env::VARIABLES, write_list(keys)),
        (pod::env::VARIABLES_DIR, only_if(!request.variables.is_empty(), VARIABLES_DIR)),
        (pod::env::ACK, ack.to_owned()),
        (pod::env::WEBHOOKS, write_list(webhooks)),
        (pod::env::CHECKS, write_list(checks)),
        (pod::env::WEBHOOK_ALLOW, write_list(&request.webhook_allow)),
        (pod::env::PORT, port(request, of.settings).to_string()),
        (pod::env::MOUNT_PATH, only_if(request.mount_path.is_some(), FILES_DIR)),
        (pod::env::VOLUMES, of.moved.setting()),
        (pod::env::HUB, of.settings.hub.clone()),
        (pod::env::HUB_CA, of.facts.hub_ca.clone()),
        (pod::env::HUB_TOKEN_FILE, format!("{}/token", pod::HUB_PATH)),
        (pod::env::BOOTSTRAP_DIR, only_if(of.volumes.bootstrap, BOOTSTRAP_DIR)),
        (pod::env::STATE_DIR, STATE_DIR.to_owned()),
        (pod::env::SHARE_DIR, SHARE_DIR.to_owned()),
        (pod::env::START_TIMEOUT, start_timeout.cloned().unwrap_or_default()),
        (pod::env::END_WITH_CONTAINERS, only_if(of.end_with_containers, "true")),
    ];
    let set = variables.into_iter().filter(|(_, value)| !value.is_empty());
    let mut all: Vec<Value> = set.map(|(name, value)| variable(name, &value)).collect();
    all.push(json!({"name": pod::env::POD_IPS, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIPs"}}}));
    all
}

/// A variable with exactly this value: Kubernetes replaces `$(NAME)` in values, and reads `$$` as `$`.
fn variable(name: &str, value: &str) -> Value {
    json!({"name": name, "value": value.replace('$', "$$")})
}
