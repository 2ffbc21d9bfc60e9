//! The names of a pod's labels and annotations.

use nudge_protocol::{labels, pod};

/// Whether the pod opts in: `"true"`. Also as a label.
pub use nudge_protocol::labels::INJECT;

/// The configs that the pod gets, separated by commas; where two have the same key the later one wins.
pub const CONFIGS: &str = "nudge.dev/configs";
/// How containers take another version; with a dot and a name, how that container does.
pub const NOTIFY: &str = "nudge.dev/notify";
/// The annotation for the URL of a container's webhook, which ends with a dot and the container's name.
pub const WEBHOOK: &str = "nudge.dev/webhook";
/// The annotation for the URL at which a container says whether it takes a version, which ends with a dot and the container's name.
pub const CHECK: &str = "nudge.dev/check";
/// The annotation for the keys that become a container's variables, separated by commas, which ends with a dot and the container's name.
pub const VARIABLES: &str = "nudge.dev/env";
/// Addresses outside of the pod that webhooks and checks may have.
pub const WEBHOOK_ALLOW: &str = "nudge.dev/webhook-allow";
/// Where the values are mounted as files.
pub const MOUNT_PATH: &str = "nudge.dev/mount-path";
/// What counts as an acknowledgement.
pub const ACK: &str = "nudge.dev/ack";
/// The containers that get variables and mounts.
pub const CONTAINERS: &str = "nudge.dev/containers";
/// The port of the agent's endpoint.
pub const AGENT_PORT: &str = "nudge.dev/agent-port";
/// The agent's user.
pub const AGENT_RUN_AS_USER: &str = "nudge.dev/agent-run-as-user";
/// The agent's CPU request.
pub const AGENT_CPU: &str = "nudge.dev/agent-cpu";
/// The agent's memory request and limit.
pub const AGENT_MEMORY: &str = "nudge.dev/agent-memory";
/// How long the start of the pod waits for the first dictionary.
pub const AGENT_START_TIMEOUT: &str = "nudge.dev/agent-start-timeout";
/// The pod has no agent, and with `never` no version is a reason to restart its workload. With an agent it is refused.
pub const RESTART: &str = "nudge.dev/restart";

/// Annotations that users may set on a pod with an agent.
pub(super) const WITH_AGENT: [&str; 15] = [
    INJECT,
    CONFIGS,
    NOTIFY,
    WEBHOOK,
    CHECK,
    VARIABLES,
    WEBHOOK_ALLOW,
    MOUNT_PATH,
    ACK,
    CONTAINERS,
    AGENT_PORT,
    AGENT_RUN_AS_USER,
    AGENT_CPU,
    AGENT_MEMORY,
    AGENT_START_TIMEOUT,
];

/// Annotations that may end with a dot and a container's name.
pub(super) const OF_CONTAINERS: [&str; 4] = [NOTIFY, WEBHOOK, CHECK, VARIABLES];

/// Annotations that must end with a dot and a container's name.
pub(super) const ONLY_OF_CONTAINERS: [&str; 3] = [WEBHOOK, CHECK, VARIABLES];

/// Annotations that Nudge itself writes on pods, their templates and their workloads. `restarted-at` is from a command of earlier versions:
/// templates that it has changed keep it.
pub(super) const WRITTEN_BY_NUDGE: [&str; 5] = [
    "nudge.dev/config-digest",
    "nudge.dev/restarted",
    "nudge.dev/restarted-at",
    labels::WARNINGS,
    labels::BIRTH_LABELS,
];

/// Labels that a pod may have.
pub(super) const LABELS: [&str; 2] = [INJECT, labels::AGENT];

/// The container's name at the end of an annotation `<base>.<name>`. The agent's own does not count.
pub(super) fn of_container<'a>(annotation: &'a str, base: &str) -> Option<&'a str> {
    annotation.strip_prefix(base)?.strip_prefix('.').filter(|name| *name != pod::AGENT_CONTAINER)
}
