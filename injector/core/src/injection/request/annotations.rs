//! The names of a pod's annotations.

use nudge_protocol::labels;

/// Restart the containers instead of notifying them.
pub use nudge_protocol::labels::CONFIG_RESTARTS;
/// Whether the pod opts in: `"true"`. Also as a label.
pub use nudge_protocol::labels::INJECT;

/// The configs that the pod gets, separated by commas; where two have the same key the later one wins.
pub const CONFIGS: &str = "nudge.dev/configs";
/// How containers are notified; with a dot and a name, how that container is.
pub const NOTIFY: &str = "nudge.dev/notify";
/// With a dot and a container's name: the URL of its webhook.
pub const WEBHOOK: &str = "nudge.dev/webhook";
/// With a dot and a container's name: the URL at which it says whether it takes a version.
pub const CHECK: &str = "nudge.dev/check";
/// With a dot and a container's name: the keys that become its variables, separated by commas.
pub const VARIABLES: &str = "nudge.dev/env";
/// Addresses outside of the pod that webhooks and checks may have.
pub const WEBHOOK_ALLOW: &str = "nudge.dev/webhook-allow";
/// The endpoint's port.
pub const PORT: &str = "nudge.dev/port";
/// Where the values are mounted as files.
pub const MOUNT_PATH: &str = "nudge.dev/mount-path";
/// What counts as an acknowledgement.
pub const ACK: &str = "nudge.dev/ack";
/// The containers that get variables and mounts.
pub const CONTAINERS: &str = "nudge.dev/containers";
/// The agent's user.
pub const RUN_AS_USER: &str = "nudge.dev/run-as-user";
/// The agent's CPU request.
pub const CPU: &str = "nudge.dev/cpu";
/// The agent's memory request and limit.
pub const MEMORY: &str = "nudge.dev/memory";
/// How long the start of the pod waits for the first dictionary.
pub const START_TIMEOUT: &str = "nudge.dev/start-timeout";
/// The pod has no agent, but the kubelet refreshes its volumes at once.
pub const REFRESH: &str = "nudge.dev/refresh";

/// All that users may set on a pod.
pub(super) const KNOWN: [&str; 17] = [
    INJECT,
    CONFIGS,
    CONFIG_RESTARTS,
    NOTIFY,
    WEBHOOK,
    CHECK,
    VARIABLES,
    WEBHOOK_ALLOW,
    PORT,
    MOUNT_PATH,
    ACK,
    CONTAINERS,
    RUN_AS_USER,
    CPU,
    MEMORY,
    START_TIMEOUT,
    REFRESH,
];

/// Annotations that Nudge itself writes on pods and their templates.
pub(super) const OURS: [&str; 5] = [
    "nudge.dev/config-digest",
    "nudge.dev/refreshed",
    "nudge.dev/restarted-at",
    labels::WARNINGS,
    labels::BIRTH_LABELS,
];
