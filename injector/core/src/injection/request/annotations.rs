//! The names of a pod's labels and annotations.

use nudge_protocol::{labels, pod};

/// The annotation or label with the value `"true"` that opts a pod in.
pub use nudge_protocol::labels::INJECT;

/// The annotation for the configs that the pod gets, separated by commas; if two have the same key, the later one wins.
pub const CONFIGS: &str = "nudge.dev/configs";
/// The annotation for how containers take another version; with a dot and a name, for how that container does.
pub const NOTIFY: &str = "nudge.dev/notify";
/// The annotation for the URL of a container's webhook, which ends with a dot and the container's name.
pub const WEBHOOK: &str = "nudge.dev/webhook";
/// The annotation for the URL that answers whether a container takes a version. Its name ends with a dot and the
/// container's name.
pub const CHECK: &str = "nudge.dev/check";
/// The annotation for what a container must show after its notification, which ends with a dot and the container's
/// name.
pub const VERIFY: &str = "nudge.dev/verify";
/// The annotation for the keys that become a container's variables, separated by commas, which ends with a dot and the
/// container's name.
pub const VARIABLES: &str = "nudge.dev/env";
/// The annotation for the patterns of the keys that a container reads, separated by commas, which ends with a dot and
/// the container's name. The container is notified only if such a key changes.
pub const KEYS: &str = "nudge.dev/keys";
/// The annotation for the addresses outside of the pod that webhooks, checks and pages of `verify` may have.
pub const WEBHOOK_ALLOW: &str = "nudge.dev/webhook-allow";
/// The annotation for the mount path of the values' files.
pub const MOUNT_PATH: &str = "nudge.dev/mount-path";
/// The annotation that says which event counts as an acknowledgement.
pub const ACK: &str = "nudge.dev/ack";
/// The annotation for the containers that get variables and mounts.
pub const CONTAINERS: &str = "nudge.dev/containers";
/// The annotation for the port of the agent's endpoint.
pub const AGENT_PORT: &str = "nudge.dev/agent-port";
/// The annotation for the agent's user.
pub const AGENT_RUN_AS_USER: &str = "nudge.dev/agent-run-as-user";
/// The annotation for the agent's CPU request.
pub const AGENT_CPU: &str = "nudge.dev/agent-cpu";
/// The annotation for the agent's memory request and limit.
pub const AGENT_MEMORY: &str = "nudge.dev/agent-memory";
/// The annotation for the time that the start of the pod waits for the first dictionary.
pub const AGENT_START_TIMEOUT: &str = "nudge.dev/agent-start-timeout";
/// The annotation of a pod without agent: with `never`, no version is a reason to restart its workload. A pod with an
/// agent is refused for it.
pub const RESTART: &str = "nudge.dev/restart";

/// The annotations that users may set on a pod with an agent.
pub(super) const WITH_AGENT: [&str; 17] = [
    INJECT,
    CONFIGS,
    NOTIFY,
    WEBHOOK,
    CHECK,
    VERIFY,
    VARIABLES,
    KEYS,
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

/// The annotations that may end with a dot and a container's name.
pub(super) const OF_CONTAINERS: [&str; 6] = [NOTIFY, WEBHOOK, CHECK, VERIFY, VARIABLES, KEYS];

/// The annotations that must end with a dot and a container's name.
pub(super) const ONLY_OF_CONTAINERS: [&str; 5] = [WEBHOOK, CHECK, VERIFY, VARIABLES, KEYS];

/// The annotations that Nudge itself writes on pods, their templates and their workloads. `restarted-at` is from a
/// command of earlier versions, and stays in templates.
pub(super) const WRITTEN_BY_NUDGE: [&str; 5] = [
    "nudge.dev/config-digest",
    "nudge.dev/restarted",
    "nudge.dev/restarted-at",
    labels::WARNINGS,
    labels::BIRTH_LABELS,
];

/// The labels that a pod may have.
pub(super) const LABELS: [&str; 2] = [INJECT, labels::AGENT];

/// Returns the container's name at the end of an annotation `<base>.<name>`. The agent's container does not count.
pub(super) fn of_container<'a>(annotation: &'a str, base: &str) -> Option<&'a str> {
    annotation.strip_prefix(base)?.strip_prefix('.').filter(|name| *name != pod::AGENT_CONTAINER)
}
