//! The known name that the user probably meant.

use nudge_protocol::labels::PREFIX;
use nudge_protocol::pod::AGENT_CONTAINER;

use super::annotations::{
    AGENT_CPU, AGENT_MEMORY, AGENT_PORT, AGENT_RUN_AS_USER, AGENT_START_TIMEOUT, NOTIFY, OF_CONTAINERS,
    ONLY_OF_CONTAINERS, WITH_AGENT,
};

/// Longest name that is compared. Kubernetes bounds names, but checks them later than this.
const MAX_BYTES: usize = 63;

/// What the names of annotations about the agent begin with.
const AGENT: &str = "agent-";

/// Words of other names, and what a user who writes them probably means.
const WORDS: [(&str, &str); 10] = [
    ("cpu", AGENT_CPU),
    ("memory", AGENT_MEMORY),
    ("port", AGENT_PORT),
    ("reload", NOTIFY),
    ("restart", NOTIFY),
    ("restarts", NOTIFY),
    ("rollout", NOTIFY),
    ("signal", NOTIFY),
    ("timeout", AGENT_START_TIMEOUT),
    ("user", AGENT_RUN_AS_USER),
];

/// The most similar annotation of a pod with an agent, unless even that differs too much. With the container's name where it takes one.
pub(super) fn suggestion(key: &str) -> Option<String> {
    let name = key.strip_prefix(PREFIX).filter(|name| name.len() <= MAX_BYTES)?;
    let (base, container) = name.split_once('.').map_or((name, None), |(base, end)| (base, Some(end)));
    let known = nearest(base).or_else(|| nearest(name)).or_else(|| by_word(name))?;
    let container = container.filter(|container| *container != AGENT_CONTAINER && OF_CONTAINERS.contains(&known));
    let container = container.or_else(|| ONLY_OF_CONTAINERS.contains(&known).then_some("CONTAINER"));
    Some(container.map_or_else(|| known.to_owned(), |container| format!("{known}.{container}")))
}

/// The annotation whose name takes the fewest edits, the prefix `agent-` left out or not.
fn nearest(name: &str) -> Option<&'static str> {
    let spelled = WITH_AGENT.into_iter().flat_map(|known| spellings(known).map(move |spelling| (known, spelling)));
    let near = spelled.filter_map(|(known, spelling)| {
        let distance = strsim::levenshtein(name, spelling);
        (distance <= 1 + spelling.len() / 4).then_some((distance, known))
    });
    near.min().map(|(_, known)| known)
}

/// How users may write a name: as it is, and without saying that it is about the agent.
fn spellings(known: &'static str) -> impl Iterator<Item = &'static str> {
    let whole = known.strip_prefix(PREFIX).unwrap_or(known);
    [Some(whole), whole.strip_prefix(AGENT)].into_iter().flatten()
}

/// The annotation that one of the words of a name means.
fn by_word(name: &str) -> Option<&'static str> {
    let words = || name.split(['-', '.', '_']);
    WORDS.into_iter().find(|(word, _)| words().any(|own| own == *word)).map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_finds_the_known_one_that_it_means() {
        for (name, known) in [
            ("notfy", Some("notify")),
            ("notfy.app", Some("notify.app")),
            ("notify.nudge-agent", Some("notify")),
            ("Notify", Some("notify")),
            ("config", Some("configs")),
            ("configs.app", Some("configs")),
            ("webhook", Some("webhook.CONTAINER")),
            ("envs.app", Some("env.app")),
            ("envs", Some("env.CONTAINER")),
            ("mount.path", Some("mount-path")),
            ("mountpath", Some("mount-path")),
            ("agent-prot", Some("agent-port")),
            // Without saying that it is about the agent.
            ("cpu", Some("agent-cpu")),
            ("memory", Some("agent-memory")),
            ("Port", Some("agent-port")),
            ("port.app", Some("agent-port")),
            ("start-timeout", Some("agent-start-timeout")),
            ("run-as-user", Some("agent-run-as-user")),
            ("runasuser", Some("agent-run-as-user")),
            // By a word of it.
            ("config-restarts", Some("notify")), // words: allow
            ("reload-signal", Some("notify")),
            ("restart.app", Some("notify.app")),
            ("cpu-request", Some("agent-cpu")),
            ("memory-limit", Some("agent-memory")),
            ("sidecar-port", Some("agent-port")),
            ("something-else", None),
            ("sidecar", None),
            ("a", None),
            ("", None),
            (&"a".repeat(64), None),
        ] {
            let expected = known.map(|known| format!("nudge.dev/{known}"));
            assert_eq!(suggestion(&format!("nudge.dev/{name}")), expected, "{name}");
        }
        assert_eq!(suggestion("example.com/notify"), None);
    }
}
