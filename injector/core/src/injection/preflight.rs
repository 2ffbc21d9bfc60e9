//! Checks of a pod before injection: what keeps the agent from working is refused, what may keep it is a warning.

use k8s_openapi::api::core::v1::{ContainerPort, PodSpec};
use nudge_protocol::env::DEFAULT_PORT;

use super::patch::port;
use super::refusal::Refusal;
use super::request::PodRequest;
use super::request::annotations::{INJECT, NOTIFY, PORT};
use super::targets::Targets;
use super::user_pod::{Member, UserPod};

/// Refuses a pod in which the agent can't work. Returns warnings about what may not work.
pub(super) fn check(
    user: &UserPod,
    request: &PodRequest,
    targets: &Targets<'_>,
    sidecar: bool,
) -> Result<Vec<String>, Refusal> {
    let refuse = |message: String| Err(Refusal::Pod(message));
    let spec = &user.spec;
    if is_windows(spec) {
        return refuse(format!("Nudge's agent runs on Linux only, and this pod asks for Windows; remove {INJECT}"));
    }
    if !sidecar && user.owners.iter().any(|kind| kind == "Job") {
        return refuse(format!(
            "this pod belongs to a Job, which could not end beside the agent: this cluster has no native sidecars (Kubernetes 1.29); remove \
             {INJECT}"
        ));
    }
    let host_network = spec.host_network == Some(true);
    if host_network && request.port.is_none() {
        return refuse(format!(
            "this pod uses its node's network, where port {DEFAULT_PORT} may be taken; set annotation {PORT} to a port that is free on the nodes"
        ));
    }
    if let Some(name) = declares_port(user, port(request)) {
        return refuse(format!(
            "container {name} declares port {0}, on which the agent would listen; choose another with annotation {PORT}",
            port(request)
        ));
    }
    if spec.share_process_namespace == Some(false)
        && spec.host_pid != Some(true)
        && let Some(name) = targets.signalled().next()
    {
        return refuse(format!(
            "container {name} is notified by a signal, and this pod has shareProcessNamespace: false; remove that, or notify the container \
             by webhook with {NOTIFY}.{name}: webhook"
        ));
    }
    let policy = spec.dns_policy.as_deref().unwrap_or("ClusterFirst");
    Ok(match policy {
        "ClusterFirstWithHostNet" => Vec::new(),
        "ClusterFirst" if !host_network => Vec::new(),
        "ClusterFirst" => vec![
            "this pod uses its node's network and DNS, so the agent may not find the hub; set dnsPolicy: ClusterFirstWithHostNet".to_owned(),
        ],
        other => vec![format!("with dnsPolicy: {other} the agent may not find the hub by its name in the cluster; set ClusterFirst")],
    })
}

fn is_windows(spec: &PodSpec) -> bool {
    let selected = |label: &str| spec.node_selector.as_ref().and_then(|labels| labels.get(label));
    let selected = ["kubernetes.io/os", "beta.kubernetes.io/os"].into_iter().filter_map(selected);
    spec.os.as_ref().map(|os| &os.name).into_iter().chain(selected).any(|os| os == "windows")
}

/// A container that declares the port.
fn declares_port(user: &UserPod, port: u16) -> Option<&str> {
    let declares = |declared: &ContainerPort| {
        declared.container_port == i32::from(port) && declared.protocol.as_deref().unwrap_or("TCP") == "TCP"
    };
    let mut members = user.members.iter();
    members.find(|member| member.container.ports.iter().flatten().any(declares)).map(Member::name)
}
