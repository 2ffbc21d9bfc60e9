//! `kubectl nudge completion`, and the completions themselves: kubectl runs `kubectl_complete-nudge` with the words of
//! the command line, and reads candidates in the format of Cobra.

use std::fmt::Debug;
use std::time::Duration;

use clap::{ArgAction, CommandFactory as _};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use kube::api::ListParams;
use kube::{Api, Resource};
use nudge_protocol::labels;
use serde::de::DeserializeOwned;

use crate::commands::arguments::Arguments;
use crate::failure::Failure;
use crate::output::Output;
use crate::session::{ConnectionOptions, Session};

/// The output of `kubectl nudge completion`. A link of this name to the program does the same.
pub(crate) const SCRIPT: &str = "#!/bin/sh
# Save this as the executable kubectl_complete-nudge in a directory of $PATH. kubectl then completes `kubectl nudge`.
exec kubectl nudge __complete -- \"$@\"
";

/// The time that the user waits for completions.
const COMPLETION_TIMEOUT: Duration = Duration::from_secs(2);

/// The directive of Cobra that turns the completion of file names on.
const FILES_DIRECTIVE: &str = ":0\n";
/// The directive of Cobra that turns the completion of file names off.
const NO_FILES_DIRECTIVE: &str = ":4\n";

/// The candidates for the last word.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Candidates {
    /// Words with their help.
    Words(Vec<(String, String)>),
    Configs,
    /// The versions of this config.
    Versions(String),
    Namespaces,
    ConfigMaps,
    Sources,
    PodsAndConfigs,
    Workloads,
    Files,
    #[default]
    Nothing,
}

/// The last word, with the flags and the command before it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Position {
    candidates: Candidates,
    /// The beginning of the word.
    prefix: String,
    /// The flag before a value in the same word: `--output=`.
    flag: String,
    namespace: Option<String>,
    context: Option<String>,
    kubeconfig: Option<String>,
}

fn position(words: &[String]) -> Position {
    let root = Arguments::command();
    let mut position = Position::default();
    let Some((last, before)) = words.split_last() else { return position };
    let mut command = &root;
    let mut positionals: Vec<&str> = Vec::new();
    let mut pending_flag: Option<&clap::Arg> = None;
    for word in before {
        if let Some(flag) = pending_flag.take() {
            position.remember(flag, word);
        } else if let Some((flag, value)) = flag(&root, command, word) {
            match value {
                Some(value) => position.remember(flag, value),
                None if takes_value(flag) => pending_flag = Some(flag),
                None => {}
            }
        } else if command.has_subcommands() {
            match command
                .get_subcommands()
                .find(|sub| sub.get_name() == word || sub.get_all_aliases().any(|alias| alias == word))
            {
                Some(sub) => command = sub,
                None => return position,
            }
        } else if !word.starts_with('-') {
            positionals.push(word);
        }
    }
    position.prefix.clone_from(last);
    let is_at_root = command.get_name() == root.get_name();
    position.candidates = if let Some(flag) = pending_flag {
        flag_candidates(flag)
    } else if let Some((flag, Some(value))) = flag(&root, command, last) {
        last[..last.len() - value.len()].clone_into(&mut position.flag);
        value.clone_into(&mut position.prefix);
        flag_candidates(flag)
    } else if last.starts_with('-') {
        let local = command.get_arguments();
        let global = root.get_arguments().filter(|_| !is_at_root);
        let flags =
            local.chain(global).filter_map(|flag| Some((format!("--{}", flag.get_long()?), help(flag.get_help()))));
        Candidates::Words(flags.collect())
    } else if command.has_subcommands() {
        let subcommands = command.get_subcommands().filter(|sub| !sub.is_hide_set());
        Candidates::Words(subcommands.map(|sub| (sub.get_name().to_owned(), help(sub.get_about()))).collect())
    } else {
        let next = command.get_positionals().nth(positionals.len());
        match next.map(|argument| argument.get_id().as_str()) {
            Some("config") => Candidates::Configs,
            Some("version" | "old" | "new") if command.get_name() != "create" => {
                Candidates::Versions(positionals.first().map(|&config| config.to_owned()).unwrap_or_default())
            }
            Some("name") if ["enable", "disable"].contains(&command.get_name()) => Candidates::Namespaces,
            Some("what") => Candidates::Files,
            Some("workload") => Candidates::Workloads,
            Some("source") => Candidates::Sources,
            Some("name") if command.get_name() == "get" => Candidates::PodsAndConfigs,
            Some("name") => Candidates::ConfigMaps,
            _ => Candidates::Nothing,
        }
    };
    position
}

fn help(text: Option<&clap::builder::StyledStr>) -> String {
    text.map(|text| text.to_string().lines().next().unwrap_or_default().to_owned()).unwrap_or_default()
}

fn takes_value(flag: &clap::Arg) -> bool {
    matches!(flag.get_action(), ArgAction::Set | ArgAction::Append) && !flag.is_require_equals_set()
}

/// Finds the flag of the word, with its value if that is in the same word.
fn flag<'a, 'w>(
    root: &'a clap::Command,
    command: &'a clap::Command,
    text: &'w str,
) -> Option<(&'a clap::Arg, Option<&'w str>)> {
    let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
    let mut flags = command.get_arguments().chain(root.get_arguments());
    let is_named = |argument: &&clap::Arg| match name.strip_prefix("--") {
        Some(long) => argument.get_long() == Some(long),
        None => name
            .strip_prefix('-')
            .is_some_and(|short| argument.get_short().is_some_and(|letter| short == letter.to_string())),
    };
    flags.find(is_named).map(|flag| (flag, value))
}

fn flag_candidates(flag: &clap::Arg) -> Candidates {
    match flag.get_id().as_str() {
        "namespace" => Candidates::Namespaces,
        "from_oci" => Candidates::Nothing,
        id if id.contains("from_") && !id.contains("literal") => Candidates::Files,
        "kubeconfig" | "rules" | "docker_config" | "filename" | "identity" => Candidates::Files,
        _ => {
            let values = flag.get_possible_values();
            Candidates::Words(
                values.iter().map(|value| (value.get_name().to_owned(), help(value.get_help()))).collect(),
            )
        }
    }
}

impl Position {
    fn remember(&mut self, flag: &clap::Arg, value: &str) {
        let field = match flag.get_id().as_str() {
            "namespace" => &mut self.namespace,
            "context" => &mut self.context,
            "kubeconfig" => &mut self.kubeconfig,
            _ => return,
        };
        *field = Some(value.to_owned());
    }

    /// Returns the lines for kubectl.
    fn lines(&self, candidates: &[(String, String)]) -> String {
        let matching_words = candidates.iter().filter(|(word, _)| word.starts_with(&self.prefix));
        let lines = matching_words.map(|(word, help)| {
            let flag = &self.flag;
            if help.is_empty() { format!("{flag}{word}\n") } else { format!("{flag}{word}\t{help}\n") }
        });
        let directive = if self.candidates == Candidates::Files { FILES_DIRECTIVE } else { NO_FILES_DIRECTIVE };
        lines.chain([directive.to_owned()]).collect::<Vec<_>>().concat()
    }
}

/// Prints the candidates for the last of these words.
pub(crate) async fn complete(out: Output, words: Vec<String>) -> Result<(), Failure> {
    let cursor = position(&words);
    let candidates = match &cursor.candidates {
        Candidates::Words(words) => words.clone(),
        Candidates::Files | Candidates::Nothing => Vec::new(),
        // An error would appear in the middle of the command line, so it is dropped.
        _ => tokio::time::timeout(COMPLETION_TIMEOUT, fetch_candidates(&cursor, out.clone()))
            .await
            .ok()
            .and_then(Result::ok)
            .unwrap_or_default(),
    };
    out.print(&cursor.lines(&candidates))
}

/// Fetches the candidates from the API server.
async fn fetch_candidates(position: &Position, out: Output) -> Result<Vec<(String, String)>, Failure> {
    let connection = ConnectionOptions {
        namespace: position.namespace.clone(),
        context: position.context.clone(),
        kubeconfig: position.kubeconfig.as_ref().map(Into::into),
    };
    let session = Session::connect(&connection, out)?;
    let names = match &position.candidates {
        Candidates::Configs => names(session.api::<nudge_api::VersionedConfig>(), "").await,
        Candidates::Namespaces => names(Api::<Namespace>::all(session.client.clone()), "").await,
        Candidates::ConfigMaps => names(session.api::<ConfigMap>(), "").await,
        Candidates::Versions(config) => {
            let versions = session.config(config).await?.status.map(|status| status.versions).unwrap_or_default();
            return Ok(versions
                .into_iter()
                .rev()
                .map(|version| (version.version, format!("{:?}", version.state)))
                .collect());
        }
        Candidates::PodsAndConfigs => {
            let pods = names(session.api::<Pod>(), labels::AGENT).await;
            [names(session.api::<nudge_api::VersionedConfig>(), "").await, pods].concat()
        }
        Candidates::Sources => names(session.api::<nudge_api::ConfigSource>(), "").await,
        Candidates::Workloads => workloads(&session).await,
        Candidates::Words(_) | Candidates::Files | Candidates::Nothing => Vec::new(),
    };
    Ok(names.into_iter().map(|name| (name, String::new())).collect())
}

/// Returns the workloads that can be injected, as `TYPE/NAME`.
async fn workloads(session: &Session) -> Vec<String> {
    let kinds = [
        ("deployment", names(session.api::<Deployment>(), "").await),
        ("statefulset", names(session.api::<StatefulSet>(), "").await),
        ("daemonset", names(session.api::<DaemonSet>(), "").await),
    ];
    kinds.into_iter().flat_map(|(kind, names)| names.into_iter().map(move |name| format!("{kind}/{name}"))).collect()
}

async fn names<K: Resource + Clone + DeserializeOwned + Debug>(api: Api<K>, label: &str) -> Vec<String> {
    let objects =
        api.list_metadata(&ListParams::default().labels(label)).await.map(|list| list.items).unwrap_or_default();
    objects.into_iter().filter_map(|object| object.metadata.name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(line: &str) -> Position {
        position(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    fn words(line: &str) -> Vec<String> {
        let position = at(line);
        let Candidates::Words(words) = &position.candidates else { panic!("{:?}", position.candidates) };
        let lines = position.lines(words);
        lines.lines().map(|line| line.split('\t').next().unwrap().to_owned()).collect()
    }

    #[test]
    fn every_position_has_its_candidates() {
        assert_eq!(words("ver"), ["versions", ":4"]);
        assert!(words("").contains(&"rollback".to_owned()) && !words("").contains(&"__complete".to_owned()));
        assert_eq!(words("history game --di"), ["--diff", ":4"]);
        assert_eq!(words("use game 1 --wa"), ["--wait", ":4"]);
        assert_eq!(words("status -o j"), ["json", ":4"]);
        assert_eq!(words("status --output=y"), ["--output=yaml", ":4"]);
        assert_eq!(words("inject deployment/web --notify SIGU"), ["SIGUSR1", "SIGUSR2", ":4"]);
        assert_eq!(words("unhold game --dry-run=s"), ["--dry-run=server", ":4"]);
        for (line, expected) in [
            ("use ", Candidates::Configs),
            ("follow ", Candidates::Configs),
            ("edit ", Candidates::Configs),
            ("set ", Candidates::Configs),
            ("set game ", Candidates::Nothing),
            ("set game --secret-from-file=", Candidates::Files),
            ("use game ", Candidates::Versions("game".into())),
            ("plan ", Candidates::Configs),
            ("plan game ", Candidates::Versions("game".into())),
            ("plan game -f ", Candidates::Files),
            ("history ", Candidates::Configs),
            ("diff game 1 ", Candidates::Versions("game".into())),
            ("create game ", Candidates::Nothing),
            ("source sync ", Candidates::Sources),
            ("enable ", Candidates::Namespaces),
            ("use -n ", Candidates::Namespaces),
            ("get ", Candidates::PodsAndConfigs),
            ("baseline ", Candidates::ConfigMaps),
            ("create game 1 --from-file=", Candidates::Files),
            ("create game 1 --from-oci=", Candidates::Nothing),
            ("push ", Candidates::Files),
            ("inject ", Candidates::Workloads),
            ("inject -f ", Candidates::Files),
            ("export -A -f ", Candidates::Files),
            ("export --filename=", Candidates::Files),
            ("import -f ", Candidates::Files),
            ("import -f nudge.yaml --identity ", Candidates::Files),
            ("import ", Candidates::Nothing),
            ("approve game ", Candidates::Versions("game".into())),
            ("approve game 1 --digest=", Candidates::Words(Vec::new())),
            ("push config/ --docker-config=", Candidates::Files),
            ("nonsense ", Candidates::Nothing),
            ("use game 1 2 ", Candidates::Nothing),
        ] {
            assert_eq!(at(line).candidates, expected, "{line}");
        }
    }

    #[test]
    fn flags_before_the_word_are_used() {
        let position = at("-n shop use --context=dev ga");
        assert_eq!((position.namespace.as_deref(), position.context.as_deref()), (Some("shop"), Some("dev")));
        assert_eq!((position.candidates, position.prefix.as_str()), (Candidates::Configs, "ga"));
    }
}
