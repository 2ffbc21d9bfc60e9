//! The suggestion of the known annotation that the user probably meant.

use nudge_protocol::labels::PREFIX;
use nudge_protocol::pod::AGENT_CONTAINER;

use super::annotations::{
    AGENT_CPU, AGENT_MEMORY, AGENT_PORT, AGENT_RUN_AS_USER, AGENT_START_TIMEOUT, NOTIFY, OF_CONTAINERS,
    ONLY_OF_CONTAINERS, WITH_AGENT,
};

/// The maximum length of a name that is compared. Kubernetes checks the length later than this.
const MAX_BYTES: usize = 63;

/// The prefix of the names of annotations about the agent.
const AGENT_PREFIX: &str = "agent-";

/// The words of other names, each with the annotation that a user who writes it probably means.
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

/// Returns the most similar annotation of a pod with an agent, unless even that differs too much. If the annotation
/// takes a container's name, the result has the name.
pub(super) fn suggestion(key: &str) -> Option<String> {
    let name = key.strip_prefix(PREFIX).filter(|name| name.len() <= MAX_BYTES)?;
    let (base, container) = name.split_once('.').map_or((name, None), |(base, end)| (base, Some(end)));
    let annotation = nearest(base).or_else(|| nearest(name)).or_else(|| by_word(name))?;
    let container = container.filter(|container| *container != AGENT_CONTAINER && OF_CONTAINERS.contains(&annotation));
    let container = container.or_else(|| ONLY_OF_CONTAINERS.contains(&annotation).then_some("CONTAINER"));
    Some(container.map_or_else(|| annotation.to_owned(), |container| format!("{annotation}.{container}")))
}

/// Returns the annotation whose name takes the fewest edits, the prefix `agent-` left out or not.
fn nearest(name: &str) -> Option<&'static str> {
    let spelled =
        WITH_AGENT.into_iter().flat_map(|annotation| spellings(annotation).map(move |spelling| (annotation, spelling)));
    let near = spelled.filter_map(|(annotation, spelling)| {
        let distance = strsim::levenshtein(name, spelling);
        (distance <= 1 + spelling.len() / 4).then_some((distance, annotation))
    });
    near.min().map(|(_, annotation)| annotation)
}

/// Returns how users may write a name: as it is, and without the prefix for the agent.
fn spellings(annotation: &'static str) -> impl Iterator<Item = &'static str> {
    let whole = annotation.strip_prefix(PREFIX).unwrap_or(annotation);
    [Some(whole), whole.strip_prefix(AGENT_PREFIX)].into_iter().flatten()
}

/// Returns the annotation that one of the words of a name means.
fn by_word(name: &str) -> Option<&'static str> {
    let words = || name.split(['-', '.', '_']);
    WORDS.into_iter().find(|(word, _)| words().any(|part| part == *word)).map(|(_, annotation)| annotation)
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
            // Names without the prefix `agent-`.
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
