//! The contract between the injector, which writes a pod's specification, and the agent, which runs in it.

/// The name of the agent's container.
pub const AGENT_CONTAINER: &str = "nudge-agent";
/// The audience of the agent's service-account token.
pub const TOKEN_AUDIENCE: &str = "nudge";
/// The type of the pod condition that the hub writes.
pub const CONDITION: &str = "nudge.dev/ConfigCurrent";

/// The agent's exit code that makes the kubelet restart all containers of the pod in place. The agent's container has a
/// rule for it.
pub const RESTART_EXIT_CODE: u8 = 88;

/// The folder of the files `token`, `ca.crt` and `env`, which containers read.
pub const CONTAINER_PATH: &str = "/run/nudge";
/// The folder with the agent's token for the hub (`token`). Otherwise Kubernetes would mount a token of the pod's
/// account for the API server there, and the agent has no use for that.
pub const HUB_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The end of the name of a mounted part that is a Secret.
pub const SECRET_SUFFIX: &str = ".secret";
/// The text after the number of a part that is a ConfigMap, in the name of its folder. The first 48 hex digits of the
/// SHA-256 of its content follow, as the status of the config has them.
pub const DIGEST_SUFFIX: &str = ".sha256-";

/// Environment variables of the agent's container. A pod's environment can't be changed, so the agent can't be given
/// other configs later.
pub mod env {
    /// The pod's configs in the order of merging, with commas: `shop,shop-keys`.
    pub const CONFIGS: &str = "NUDGE_CONFIGS";
    /// The way to notify each container: `app=SIGUSR1,web=webhook`.
    pub const NOTIFY: &str = "NUDGE_NOTIFY";
    /// Keys that become variables of containers: `app=GREETING,app=LIVES`.
    pub const VARIABLES: &str = "NUDGE_VARIABLES";
    /// The agent's own memory volume, with a file of variables for each container, named after it. The kubelet reads
    /// these files.
    pub const VARIABLES_DIR: &str = "NUDGE_VARIABLES_DIR";
    /// Patterns of the keys that containers read: `app=db.*,app=tls.*`. Other containers read all keys.
    pub const KEYS: &str = "NUDGE_KEYS";
    /// The event that counts as an acknowledgement: `delivered` (the default) or `fetched`.
    pub const ACK: &str = "NUDGE_ACK";
    /// The webhooks that exist from the start: `app=http://127.0.0.1:8080/changed`, with commas.
    pub const WEBHOOKS: &str = "NUDGE_WEBHOOKS";
    /// The URLs that ask containers whether they take a version: `app=http://127.0.0.1:8080/config-check`, separated by
    /// commas.
    pub const CHECKS: &str = "NUDGE_CHECKS";
    /// What containers must show after a notification: `app=workers`, separated by commas.
    pub const VERIFY: &str = "NUDGE_VERIFY";
    /// Other targets of webhooks and checks: `10.0.0.9:8080`, with commas.
    pub const WEBHOOK_ALLOW: &str = "NUDGE_WEBHOOK_ALLOW";
    /// The endpoint's port.
    pub const PORT: &str = "NUDGE_PORT";
    /// The folder into which files are projected.
    pub const MOUNT_PATH: &str = "NUDGE_MOUNT_PATH";
    /// The volumes that the agent keeps, as [`crate::volumes`] writes them.
    pub const VOLUMES: &str = "NUDGE_VOLUMES";
    /// The hub: `https://nudge-hub.nudge-system.svc`.
    pub const HUB: &str = "NUDGE_HUB";
    /// The CA bundle (PEM) that the agent trusts the hub by, for as long as the pod lives: later authorities are
    /// cross-signed.
    pub const HUB_CA: &str = "NUDGE_HUB_CA";
    /// The file with the projected service-account token.
    pub const HUB_TOKEN_FILE: &str = "NUDGE_HUB_TOKEN_FILE";
    /// The folder of the mounted versions: `<folder>/<config>/<version>/<part>/<key>`. A part without any key is
    /// missing.
    pub const BOOTSTRAP_DIR: &str = "NUDGE_BOOTSTRAP_DIR";
    /// The agent's own memory volume: keys, and the last good contents.
    pub const STATE_DIR: &str = "NUDGE_STATE_DIR";
    /// The memory volume shared with the containers: token, certificate, env file.
    pub const SHARE_DIR: &str = "NUDGE_SHARE_DIR";
    /// The pod's addresses, with commas (`status.podIPs` by the downward API).
    pub const POD_IPS: &str = "NUDGE_POD_IPS";
    /// `true` if the agent ends when the hub says that the pod's other containers have ended and will not start
    /// again. If the agent is an ordinary container, its pod would otherwise never end.
    pub const END_WITH_CONTAINERS: &str = "NUDGE_END_WITH_CONTAINERS";
    /// The time that `wait-ready` waits, such as `30s`.
    pub const START_TIMEOUT: &str = "NUDGE_START_TIMEOUT";
}
