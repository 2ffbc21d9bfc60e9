//! The checks of a pod before injection: if the agent can't work in the pod, the pod is refused; if the agent may fail
//! to work, the pod gets a warning.

use k8s_openapi::api::core::v1::{ContainerPort, PodSpec};
use nudge_protocol::names::{is_dns_label, is_object_name};
use serde_json::Value;

use super::facts::Features;
use super::patch::port;
use super::refusal::{InjectionRefusal, shorten};
use super::request::PodRequest;
use super::request::annotations::{AGENT_PORT, INJECT, NOTIFY};
use super::settings::InjectionSettings;
use super::targets::Targets;
use super::user_pod::{LISTS, UserContainer, UserPod, is_agent, items};
use crate::owners::{OwnerKind, WorkloadId, WorkloadKind};

/// Refuses a pod if the agent can't work in it. Returns warnings about properties that may keep the agent from working.
pub(super) fn check(
    pod: &UserPod,
    request: &PodRequest,
    targets: &Targets<'_>,
    settings: &InjectionSettings,
    features: Features,
) -> Result<Vec<String>, InjectionRefusal> {
    let refuse = |message: String| Err(InjectionRefusal(message));
    let spec = &pod.spec;
    if is_windows(spec) {
        return refuse(format!("Nudge's agent runs on Linux only, and this pod requests Windows; remove {INJECT}"));
    }
    if !features.native_sidecars && pod.owners.iter().any(|kind| kind == "Job") {
        return refuse(format!(
            "this pod belongs to a Job, which would never complete while the agent runs: this cluster has no native sidecars (Kubernetes 1.29); remove \
             {INJECT}"
        ));
    }
    if let Some(name) = targets.restarted().next() {
        check_restart(pod, name, features)?;
    }
    let (host_network, port) = (spec.host_network == Some(true), port(request, settings));
    if host_network && request.port.is_none() {
        return refuse(format!(
            "this pod uses its node's network, where port {port} may be taken; set annotation {AGENT_PORT} to a port that is free on the nodes"
        ));
    }
    if let Some(name) = container_with_port(pod, port) {
        return refuse(format!(
            "container {} declares port {port}, on which the agent would listen; choose another with annotation {AGENT_PORT}",
            shorten(name)
        ));
    }
    if spec.share_process_namespace == Some(false)
        && spec.host_pid != Some(true)
        && let Some(name) = targets.signalled().next()
    {
        return refuse(format!(
            "container {0} is notified by a signal, and this pod has shareProcessNamespace: false; remove that, or notify the container \
             by webhook with {NOTIFY}.{0}: webhook",
            shorten(name)
        ));
    }
    let policy = spec.dns_policy.as_deref().unwrap_or("ClusterFirst");
    let dns = match policy {
        "ClusterFirstWithHostNet" => None,
        "ClusterFirst" if !host_network => None,
        "ClusterFirst" => Some(
            "this pod uses its node's network and DNS, so the agent may not find the hub; set dnsPolicy: ClusterFirstWithHostNet".to_owned(),
        ),
        other => Some(format!("with dnsPolicy: {} the agent may not find the hub by its name in the cluster; set ClusterFirst", shorten(other))),
    };
    Ok(dns.into_iter().chain(surge_warning(pod, port).filter(|_| host_network)).collect())
}

/// Returns a warning that a rolling update of the pod's Deployment may hang, for a pod with this port of its node.
fn surge_warning(pod: &UserPod, port: u16) -> Option<String> {
    let is_deployment = |id: &&WorkloadId| id.kind() == OwnerKind::Rolling(WorkloadKind::Deployment);
    let deployment = pod.workload.as_ref().filter(is_deployment)?.name();
    // The pod's creator may name any owner, and the command is pasted into a shell.
    let command = if is_object_name(deployment) && is_dns_label(&pod.namespace) {
        let strategy = r#"{"spec":{"strategy":{"rollingUpdate":{"maxSurge":0,"maxUnavailable":1}}}}"#;
        format!("run kubectl patch deployment {deployment} -n {} -p '{strategy}'", pod.namespace)
    } else {
        "set that and maxUnavailable 1 in the Deployment".to_owned()
    };
    Some(format!(
        "a new pod needs port {port} of its node, so it can't run beside an old pod: a rolling update may hang; unless maxSurge is 0, {command}"
    ))
}

/// Refuses a restart of all containers in place if it is not possible, or would change more than the version.
fn check_restart(pod: &UserPod, name: &str, features: Features) -> Result<(), InjectionRefusal> {
    let policy = pod.restart_policy();
    let reason = if pod.owners.iter().any(|kind| kind == "Job") {
        "and this pod belongs to a Job, whose work would begin again; remove the annotation: each new pod starts with the current version"
            .to_owned()
    } else if policy != "Always" {
        format!(
            "and this pod has restartPolicy: {policy}, so containers that have finished would run again; set Always, or remove the annotation"
        )
    } else if !features.restart_in_place {
        format!(
            "which needs Kubernetes 1.36 on the API server and on every node; set {NOTIFY}: rollout in place of it, which restarts the \
             workload by its own rolling update"
        )
    } else {
        return Ok(());
    };
    Err(InjectionRefusal(format!(
        "container {} takes another version by a restart in place ({NOTIFY}: in-place), {reason}",
        shorten(name)
    )))
}

/// Refuses a user's rule that restarts all containers: a crash would look like a restart that the agent commands.
pub(super) fn check_rules(raw: &Value) -> Result<(), InjectionRefusal> {
    let containers = LISTS.iter().flat_map(|list| items(&raw["spec"], list).map(|(_, container)| container));
    let has_rule = |container: &&Value| {
        items(container, "restartPolicyRules").any(|(_, rule)| rule["action"] == "RestartAllContainers")
    };
    let Some(container) = containers.filter(|container| !is_agent(container)).find(has_rule) else { return Ok(()) };
    Err(InjectionRefusal(format!(
        "container {} has a rule RestartAllContainers, and {NOTIFY}: in-place adds one to the agent; remove one of the two",
        shorten(container["name"].as_str().unwrap_or_default())
    )))
}

/// Refuses a main container whose own `restartPolicy` lets it end for good: every version would run it again.
pub(super) fn check_policies(raw: &Value) -> Result<(), InjectionRefusal> {
    let may_end = |container: &&Value| container["restartPolicy"].as_str().is_some_and(|policy| policy != "Always");
    let mut containers = items(&raw["spec"], "containers").map(|(_, container)| container);
    let Some(container) = containers.find(may_end) else { return Ok(()) };
    Err(InjectionRefusal(format!(
        "container {} has restartPolicy: {}, so it would run again each time that {NOTIFY}: in-place restarts the pod; remove one of the \
         two",
        shorten(container["name"].as_str().unwrap_or_default()),
        shorten(container["restartPolicy"].as_str().unwrap_or_default())
    )))
}

fn is_windows(spec: &PodSpec) -> bool {
    let selector = |label: &str| spec.node_selector.as_ref().and_then(|labels| labels.get(label));
    let selected = ["kubernetes.io/os", "beta.kubernetes.io/os"].into_iter().filter_map(selector);
    spec.os.as_ref().map(|os| &os.name).into_iter().chain(selected).any(|os| os == "windows")
}

/// Returns a container that declares the port.
fn container_with_port(pod: &UserPod, port: u16) -> Option<&str> {
    let declares_port = |declared: &ContainerPort| {
        declared.container_port == i32::from(port) && declared.protocol.as_deref().unwrap_or("TCP") == "TCP"
    };
    let mut members = pod.members.iter();
    members.find(|member| member.container.ports.iter().flatten().any(declares_port)).map(UserContainer::name)
}
