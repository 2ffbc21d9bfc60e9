//! The contract between the injector, which writes a pod's specification, and the agent, which runs in it.

use crate::names::{ConfigName, VersionName};

/// Name of the agent's container.
pub const AGENT_CONTAINER: &str = "nudge-agent";
/// Audience of the agent's service-account token.
pub const TOKEN_AUDIENCE: &str = "nudge";
/// Type of the pod condition that the hub writes.
pub const CONDITION: &str = "nudge.dev/ConfigCurrent";

/// Message of the pod condition: what the pod runs, for programs, such as `shop=1.0.1,shop-keys=7` (nothing after `=` where no version
/// is served), then `; ` and the sentence where there is one. The sentence alone where nothing is known.
pub fn condition_message<'a>(
    runs: impl IntoIterator<Item = (&'a ConfigName, Option<&'a VersionName>)>,
    message: &str,
) -> String {
    let runs = runs.into_iter().map(|(name, version)| format!("{name}={}", version.map_or("", VersionName::as_str)));
    let runs = runs.collect::<Vec<_>>().join(",");
    match (runs.is_empty(), message.is_empty()) {
        (_, true) => runs,
        (true, false) => message.to_owned(),
        (false, false) => format!("{runs}; {message}"),
    }
}

/// What the pod runs by its [`condition_message`]; nothing where that is no such list.
pub fn parse_condition_message(message: &str) -> Vec<(ConfigName, Option<VersionName>)> {
    let list = message.split_once("; ").map_or(message, |(list, _)| list);
    let pair = |pair: &str| {
        let (name, version) = pair.split_once('=')?;
        let version = if version.is_empty() { None } else { Some(VersionName::new(version).ok()?) };
        Some((ConfigName::new(name).ok()?, version))
    };
    list.split(',').map(pair).collect::<Option<_>>().unwrap_or_default()
}

/// Volumes that the injector adds to a pod begin with this.
pub const VOLUME_PREFIX: &str = "nudge-";
/// Where containers find `token`, `ca.crt` and `env`.
pub const CONTAINER_PATH: &str = "/run/nudge";
/// Where the agent finds its token for the hub (`token`) and the hub's CA bundle (`ca.crt`): the place at which Kubernetes would
/// otherwise mount a token of the pod's account for the API server, which the agent has no use for.
pub const HUB_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// The ConfigMap with the hub's CA bundle, in every enabled namespace, under the key `ca.crt`.
pub const HUB_CA_MAP: &str = "nudge-hub-ca";

/// Environment variables of the agent's container. A pod's environment can't be changed, so neither can what it may read.
pub mod env {
    /// The pod's configs in the order of merging, with commas: `shop,shop-keys`.
    pub const CONFIGS: &str = "NUDGE_CONFIGS";
    /// How containers are told: `app=SIGUSR1,web=webhook`.
    pub const NOTIFY: &str = "NUDGE_NOTIFY";
    /// What counts as an acknowledgement: `delivered` (the default) or `fetched`.
    pub const ACK: &str = "NUDGE_ACK";
    /// Webhooks that are there from the start: `app=http://127.0.0.1:8080/changed`, with commas.
    pub const WEBHOOKS: &str = "NUDGE_WEBHOOKS";
    /// Other targets of webhooks: `10.0.0.9:8080`, with commas.
    pub const WEBHOOK_ALLOW: &str = "NUDGE_WEBHOOK_ALLOW";
    /// The endpoint's port.
    pub const PORT: &str = "NUDGE_PORT";
    /// Where files are projected.
    pub const MOUNT_PATH: &str = "NUDGE_MOUNT_PATH";
    /// The hub: `https://nudge-hub.nudge-system.svc`.
    pub const HUB: &str = "NUDGE_HUB";
    /// File with the hub's CA bundle (PEM), kept up to date by the kubelet.
    pub const HUB_CA_FILE: &str = "NUDGE_HUB_CA_FILE";
    /// The bundle at admission (PEM), where the file is not there.
    pub const HUB_CA: &str = "NUDGE_HUB_CA";
    /// File with the projected service-account token.
    pub const HUB_TOKEN_FILE: &str = "NUDGE_HUB_TOKEN_FILE";
    /// Folder of the mounted versions: `<folder>/<config>/<version>/<part>/<key>`. A part without any key is not there.
    pub const BOOTSTRAP_DIR: &str = "NUDGE_BOOTSTRAP_DIR";
    /// The agent's own memory volume: keys, and the last good contents.
    pub const STATE_DIR: &str = "NUDGE_STATE_DIR";
    /// The memory volume shared with the containers: token, certificate, env file.
    pub const SHARE_DIR: &str = "NUDGE_SHARE_DIR";
    /// The pod's addresses, with commas (`status.podIPs` by the downward API).
    pub const POD_IPS: &str = "NUDGE_POD_IPS";
    /// `true`: the agent ends when the hub says that the pod's other containers have ended and will not start again. Where the agent is an
    /// ordinary container, its pod would else never end.
    pub const END_WITH_CONTAINERS: &str = "NUDGE_END_WITH_CONTAINERS";
    /// How long `wait-ready` waits: `30s`.
    pub const START_TIMEOUT: &str = "NUDGE_START_TIMEOUT";
}

/// Reasons of [`CONDITION`] with which a pod counts as failed: what it was told did not work out there.
pub const FAILED_REASONS: [&str; 4] = ["TooLarge", "NoHandler", "PermissionDenied", "Failed"];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_sentence_alone_says_nothing_of_versions() {
        let shop = ConfigName::new("shop").unwrap();
        let version = VersionName::new("1.0.1").unwrap();
        assert_eq!(condition_message([(&shop, Some(&version))], ""), "shop=1.0.1");
        assert_eq!(condition_message([(&shop, None)], "it is large"), "shop=; it is large");
        for other in ["", "the agent has not reported; see a=b", "a=b=c", "shop", "shop=1,"] {
            assert_eq!(parse_condition_message(other), [], "{other}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            runs in proptest::collection::vec(("[a-z][a-z0-9]{0,9}", proptest::option::of("[a-z0-9][a-z0-9._-]{0,9}[a-z0-9]")), 1..5),
            message in "([a-z]([ a-z;=,]{0,30}))?",
        ) {
            let runs: Vec<(ConfigName, Option<VersionName>)> = runs
                .into_iter()
                .filter_map(|(name, version)| {
                    let version = version.map(|version| VersionName::new(&version)).transpose().ok()?;
                    Some((ConfigName::new(&name).ok()?, version))
                })
                .collect();
            prop_assume!(!runs.is_empty());
            let message = condition_message(runs.iter().map(|(name, version)| (name, version.as_ref())), &message);
            prop_assert_eq!(parse_condition_message(&message), runs);
        }

        #[test]
        fn nothing_makes_the_reader_panic(message in "\\PC{0,60}") {
            let _ = parse_condition_message(&message);
        }
    }
}
