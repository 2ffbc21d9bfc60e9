use nudge_protocol::env::DEFAULT_PORT;
use nudge_protocol::settings::{write_list, write_pair};
use nudge_protocol::{Ack, ConfigName, pod};
use serde_json::{Value, json};

use super::volumes::{BOOTSTRAP_DIR, FILES_DIR, SHARE_DIR, STATE_DIR, VARIABLES_DIR, Volumes};
use crate::injection::facts::InjectionFacts;
use crate::injection::moved_mounts::MovedMounts;
use crate::injection::request::PodRequest;
use crate::injection::resources::AgentResources;
use crate::injection::settings::InjectionSettings;
use crate::injection::start_gate::Gate;
use crate::injection::targets::{NOBODY_UID, RunAsUser, Targets};

/// The facts that determine the agent's container.
pub(in crate::injection) struct AgentContainer<'a> {
    pub(in crate::injection) configs: &'a [ConfigName],
    pub(in crate::injection) request: &'a PodRequest,
    pub(in crate::injection) targets: &'a Targets<'a>,
    pub(in crate::injection) run_as_user: &'a RunAsUser,
    pub(in crate::injection) moved: &'a MovedMounts,
    pub(in crate::injection) resources: Option<AgentResources>,
    pub(in crate::injection) volumes: &'a Volumes,
    pub(in crate::injection) facts: &'a InjectionFacts,
    pub(in crate::injection) settings: &'a InjectionSettings,
    pub(in crate::injection) gate: Gate,
    /// Whether the agent is one of the main containers, so that it must end when the others have ended.
    pub(in crate::injection) end_with_containers: bool,
    /// Whether the pod uses the node's network.
    pub(in crate::injection) host_network: bool,
}

pub(in crate::injection) fn port(request: &PodRequest, settings: &InjectionSettings) -> u16 {
    request.port.or(settings.agent_defaults.port).unwrap_or(DEFAULT_PORT)
}

/// Returns the container as JSON.
pub(in crate::injection) fn agent_container(container: &AgentContainer<'_>) -> Value {
    let (settings, run_as_user) = (container.settings, container.run_as_user);
    let image = if run_as_user.has_kill { &settings.agent_kill_image } else { &settings.agent_image };
    let capabilities =
        if run_as_user.has_kill { json!({"drop": ["ALL"], "add": ["KILL"]}) } else { json!({"drop": ["ALL"]}) };
    let mut agent = json!({
        "name": pod::AGENT_CONTAINER,
        "image": image,
        "command": ["/nudge-agent"],
        "args": ["run"],
        "env": environment(container),
        "volumeMounts": container.volumes.mounts,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "capabilities": capabilities,
            "readOnlyRootFilesystem": true,
            "runAsNonRoot": true,
            "runAsUser": container.moved.agent_user.unwrap_or(NOBODY_UID),
            // The default is the group of the pod or the image, which may be root.
            "runAsGroup": NOBODY_UID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    });
    container.gate.add_to(&mut agent);
    if let Some(policy) = &settings.image_pull_policy {
        agent["imagePullPolicy"] = json!(policy);
    }
    if let Some(resources) = &container.resources {
        agent["resources"] = resources.json();
    }
    if container.facts.features.native_sidecars {
        agent["restartPolicy"] = json!("Always");
    }
    if container.targets.restarted().next().is_some() {
        agent["restartPolicyRules"] = json!([{
            "action": "RestartAllContainers",
            "exitCodes": {"operator": "In", "values": [pod::RESTART_EXIT_CODE]},
        }]);
    }
    if container.host_network {
        // The scheduler then puts no two pods with the same port on a node.
        let agent_port = port(container.request, settings);
        agent["ports"] = json!([{"containerPort": agent_port, "hostPort": agent_port, "protocol": "TCP"}]);
    }
    agent
}

fn environment(container: &AgentContainer<'_>) -> Vec<Value> {
    let request = container.request;
    let notify = container.targets.notified.iter().map(|(name, notify)| write_pair(name, notify));
    let webhooks = request.webhooks.iter().map(|(name, url)| write_pair(name, url));
    let checks = request.checks.iter().map(|(name, url)| write_pair(name, url));
    let variable_keys =
        request.variables.iter().flat_map(|(name, keys)| keys.iter().map(move |key| write_pair(name, key)));
    let read_keys =
        request.keys.iter().flat_map(|(name, patterns)| patterns.iter().map(move |key| write_pair(name, key)));
    let verify = request.verify.iter().map(|(name, expectation)| write_pair(name, expectation));
    let ack = match request.ack {
        Some(Ack::Fetched) => "fetched",
        Some(Ack::Delivered) => "delivered",
        None => "",
    };
    let start_timeout = request.start_timeout.as_ref().or(container.settings.agent_defaults.start_timeout.as_ref());
    let start_timeout = start_timeout.filter(|_| container.gate == Gate::Hook);
    let only_if = |is_used: bool, value: &str| if is_used { value.to_owned() } else { String::new() };
    let variables = [
        (pod::env::CONFIGS, write_list(container.configs)),
        (pod::env::NOTIFY, write_list(notify)),
        (pod::env::VARIABLES, write_list(variable_keys)),
        (pod::env::VARIABLES_DIR, only_if(!request.variables.is_empty(), VARIABLES_DIR)),
        (pod::env::KEYS, write_list(read_keys)),
        (pod::env::ACK, ack.to_owned()),
        (pod::env::WEBHOOKS, write_list(webhooks)),
        (pod::env::CHECKS, write_list(checks)),
        (pod::env::VERIFY, write_list(verify)),
        (pod::env::WEBHOOK_ALLOW, write_list(&request.webhook_allow)),
        (pod::env::PORT, port(request, container.settings).to_string()),
        (pod::env::MOUNT_PATH, only_if(request.mount_path.is_some(), FILES_DIR)),
        (pod::env::VOLUMES, container.moved.setting()),
        (pod::env::HUB, container.settings.hub.clone()),
        (pod::env::HUB_CA, container.facts.hub_ca.clone()),
        (pod::env::HUB_TOKEN_FILE, format!("{}/token", pod::HUB_PATH)),
        (pod::env::BOOTSTRAP_DIR, only_if(container.volumes.has_bootstrap, BOOTSTRAP_DIR)),
        (pod::env::STATE_DIR, STATE_DIR.to_owned()),
        (pod::env::SHARE_DIR, SHARE_DIR.to_owned()),
        (pod::env::START_TIMEOUT, start_timeout.cloned().unwrap_or_default()),
        (pod::env::END_WITH_CONTAINERS, only_if(container.end_with_containers, "true")),
    ];
    let set = variables.into_iter().filter(|(_, value)| !value.is_empty());
    let mut environment: Vec<Value> = set.map(|(name, value)| variable(name, &value)).collect();
    environment.push(json!({"name": pod::env::POD_IPS, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIPs"}}}));
    environment
}

/// Returns a variable with exactly this value: Kubernetes replaces `$(NAME)` in values, and reads `$$` as `$`.
fn variable(name: &str, value: &str) -> Value {
    json!({"name": name, "value": value.replace('$', "$$")})
}
