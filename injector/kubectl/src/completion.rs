//! Completion: kubectl runs `kubectl_complete-nudge` with the words so far and reads candidates in the format of Cobra.

use std::time::Duration;

use clap::{ArgAction, CommandFactory as _};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use kube::api::ListParams;
use kube::{Api, Resource};
use nudge_protocol::labels;

use super::arguments::Arguments;
use super::failure::Failure;
use super::output::Output;
use super::session::{Connection, Session};

/// What `kubectl nudge completion` prints; a link of this name to the program does the same.
pub(super) const SCRIPT: &str = "#!/bin/sh
# Put this into a folder of $PATH as kubectl_complete-nudge, executable: kubectl then completes `kubectl nudge`.
exec kubectl nudge __complete -- \"$@\"
";

/// Whoever presses a key does not wait for longer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Cobra's directives: files are offered, or not.
const FILES: &str = ":0\n";
const NO_FILES: &str = ":4\n";

/// What fits at the place of the last word.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Desired {
    /// These words, with what they mean.
    Words(Vec<(String, String)>),
    Configs,
    /// Of this config.
    Versions(String),
    Namespaces,
    ConfigMaps,
    Workloads,
    PodsAndConfigs,
    Files,
    Nothing,
}

/// What is to be completed. Pure.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    desired: Desired,
    /// What stands there already.
    begun: String,
    /// What stands before a value that is joined to its flag: `--output=`.
    joined: String,
    namespace: Option<String>,
    context: Option<String>,
    kubeconfig: Option<String>,
}

fn place(words: &[String]) -> Place {
    let root = Arguments::command();
    let mut place = Place {
        desired: Desired::Nothing,
        begun: String::new(),
        joined: String::new(),
        namespace: None,
        context: None,
        kubeconfig: None,
    };
    let Some((last, before)) = words.split_last() else { return place };
    let mut command = &root;
    let mut positionals: Vec<&str> = Vec::new();
    let mut pending: Option<&clap::Arg> = None;
    for word in before {
        if let Some(flag) = pending.take() {
            place.remember(flag, word);
        } else if let Some((flag, value)) = flag(&root, command, word) {
            match value {
                Some(value) => place.remember(flag, value),
                None if takes_value(flag) => pending = Some(flag),
                None => {}
            }
        } else if command.get_name() == root.get_name() {
            match root
                .get_subcommands()
                .find(|sub| sub.get_name() == word || sub.get_all_aliases().any(|alias| alias == word))
            {
                Some(sub) => command = sub,
                None => return place,
            }
        } else if !word.starts_with('-') {
            positionals.push(word);
        }
    }
    place.begun.clone_from(last);
    let at_root = command.get_name() == root.get_name();
    place.desired = if let Some(flag) = pending {
        of_flag(flag)
    } else if let Some((flag, Some(value))) = flag(&root, command, last) {
        last[..last.len() - value.len()].clone_into(&mut place.joined);
        value.clone_into(&mut place.begun);
        of_flag(flag)
    } else if last.starts_with('-') {
        let own = command.get_arguments();
        let global = root.get_arguments().filter(|_| !at_root);
        let flags =
            own.chain(global).filter_map(|flag| Some((format!("--{}", flag.get_long()?), help(flag.get_help()))));
        Desired::Words(flags.collect())
    } else if at_root {
        let subs = root.get_subcommands().filter(|sub| !sub.is_hide_set());
        Desired::Words(subs.map(|sub| (sub.get_name().to_owned(), help(sub.get_about()))).collect())
    } else {
        let next = command.get_positionals().nth(positionals.len());
        match next.map(|argument| argument.get_id().as_str()) {
            Some("config") => Desired::Configs,
            Some("version" | "old" | "new") if command.get_name() != "create" => {
                Desired::Versions(positionals.first().map(|&config| config.to_owned()).unwrap_or_default())
            }
            Some("name") if command.get_name() == "enable" => Desired::Namespaces,
            Some("workload") => Desired::Workloads,
            Some("name") if command.get_name() == "get" => Desired::PodsAndConfigs,
            Some("name") => Desired::ConfigMaps,
            _ => Desired::Nothing,
        }
    };
    place
}

fn help(text: Option<&clap::builder::StyledStr>) -> String {
    text.map(|text| text.to_string().lines().next().unwrap_or_default().to_owned()).unwrap_or_default()
}

fn takes_value(flag: &clap::Arg) -> bool {
    matches!(flag.get_action(), ArgAction::Set | ArgAction::Append) && !flag.is_require_equals_set()
}

/// The flag that the word is, with its value where that is joined to it.
fn flag<'a, 'w>(
    root: &'a clap::Command,
    command: &'a clap::Command,
    word: &'w str,
) -> Option<(&'a clap::Arg, Option<&'w str>)> {
    let (name, value) = match word.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (word, None),
    };
    let mut all = command.get_arguments().chain(root.get_arguments());
    let is = |argument: &&clap::Arg| match name.strip_prefix("--") {
        Some(long) => argument.get_long() == Some(long),
        None => {
            name.strip_prefix('-').is_some_and(|short| argument.get_short().is_some_and(|it| short == it.to_string()))
        }
    };
    all.find(is).map(|flag| (flag, value))
}

fn of_flag(flag: &clap::Arg) -> Desired {
    match flag.get_id().as_str() {
        "namespace" => Desired::Namespaces,
        id if id.contains("from_") && !id.contains("literal") => Desired::Files,
        "kubeconfig" => Desired::Files,
        _ => {
            let values = flag.get_possible_values();
            Desired::Words(values.iter().map(|value| (value.get_name().to_owned(), help(value.get_help()))).collect())
        }
    }
}

impl Place {
    fn remember(&mut self, flag: &clap::Arg, value: &str) {
        let into = match flag.get_id().as_str() {
            "namespace" => &mut self.namespace,
            "context" => &mut self.context,
            "kubeconfig" => &mut self.kubeconfig,
            _ => return,
        };
        *into = Some(value.to_owned());
    }

    /// The lines for kubectl.
    fn lines(&self, candidates: &[(String, String)]) -> String {
        let fitting = candidates.iter().filter(|(word, _)| word.starts_with(&self.begun));
        let lines = fitting.map(|(word, help)| {
            let joined = &self.joined;
            if help.is_empty() { format!("{joined}{word}\n") } else { format!("{joined}{word}\t{help}\n") }
        });
        let directive = if self.desired == Desired::Files { FILES } else { NO_FILES };
        lines.chain([directive.to_owned()]).collect::<Vec<_>>().concat()
    }
}

/// Prints what fits behind these words.
pub(super) async fn run(out: Output, words: Vec<String>) -> Result<(), Failure> {
    let place = place(&words);
    let candidates = match &place.desired {
        Desired::Words(words) => words.clone(),
        Desired::Files | Desired::Nothing => Vec::new(),
        // Without an answer nothing is offered; an error would stand in the middle of what the user types.
        _ => tokio::time::timeout(PATIENCE, ask(&place, out)).await.ok().and_then(Result::ok).unwrap_or_default(),
    };
    out.print(&place.lines(&candidates))
}

async fn ask(place: &Place, out: Output) -> Result<Vec<(String, String)>, Failure> {
    let connection = Connection {
        namespace: place.namespace.clone(),
        context: place.context.clone(),
        kubeconfig: place.kubeconfig.as_ref().map(Into::into),
    };
    let session = Session::connect(&connection, out).await?;
    let names = match &place.desired {
        Desired::Configs => names(session.api::<nudge_api::VersionedConfig>(), None).await,
        Desired::Namespaces => names(Api::<Namespace>::all(session.client.clone()), None).await,
        Desired::ConfigMaps => names(session.api::<ConfigMap>(), None).await,
        Desired::Versions(config) => {
            let versions = session.config(config).await?.status.map(|status| status.versions).unwrap_or_default();
            return Ok(versions.into_iter().rev().map(|it| (it.version, format!("{:?}", it.state))).collect());
        }
        Desired::PodsAndConfigs => {
            let pods = names(session.api::<Pod>(), Some(labels::AGENT)).await;
            [names(session.api::<nudge_api::VersionedConfig>(), None).await, pods].concat()
        }
        Desired::Workloads => {
            let of =
                |kind: &'static str, names: Vec<String>| names.into_iter().map(move |name| format!("{kind}/{name}"));
            of("deployment", names(session.api::<Deployment>(), None).await)
                .chain(of("statefulset", names(session.api::<StatefulSet>(), None).await))
                .chain(of("daemonset", names(session.api::<DaemonSet>(), None).await))
                .collect()
        }
        Desired::Words(_) | Desired::Files | Desired::Nothing => Vec::new(),
    };
    Ok(names.into_iter().map(|name| (name, String::new())).collect())
}

async fn names<K>(api: Api<K>, label: Option<&str>) -> Vec<String>
where
    K: Resource + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let params = label.map_or_else(ListParams::default, |label| ListParams::default().labels(label));
    let listed = api.list_metadata(&params).await.map(|list| list.items).unwrap_or_default();
    listed.into_iter().filter_map(|object| object.metadata.name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(line: &str) -> Place {
        place(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    fn words(line: &str) -> Vec<String> {
        let place = at(line);
        let Desired::Words(words) = &place.desired else { panic!("{:?}", place.desired) };
        let lines = place.lines(words);
        lines.lines().map(|line| line.split('\t').next().unwrap().to_owned()).collect()
    }

    #[test]
    fn every_place_has_its_candidates() {
        assert_eq!(words("ver"), ["versions", ":4"]);
        assert!(words("").contains(&"rollback".to_owned()) && !words("").contains(&"__complete".to_owned()));
        assert_eq!(words("use game 1 --wa"), ["--wait", ":4"]);
        assert_eq!(words("status -o j"), ["json", ":4"]);
        assert_eq!(words("status --output=y"), ["--output=yaml", ":4"]);
        assert_eq!(words("pause game --dry-run=s"), ["--dry-run=server", ":4"]);
        for (line, desired) in [
            ("use ", Desired::Configs),
            ("use game ", Desired::Versions("game".into())),
            ("diff game 1 ", Desired::Versions("game".into())),
            ("create game ", Desired::Nothing),
            ("enable ", Desired::Namespaces),
            ("use -n ", Desired::Namespaces),
            ("restart ", Desired::Workloads),
            ("get ", Desired::PodsAndConfigs),
            ("baseline ", Desired::ConfigMaps),
            ("create game 1 --from-file=", Desired::Files),
            ("nonsense ", Desired::Nothing),
            ("use game 1 2 ", Desired::Nothing),
        ] {
            assert_eq!(at(line).desired, desired, "{line}");
        }
    }

    #[test]
    fn the_namespace_before_is_remembered() {
        let place = at("-n shop use --context=dev ga");
        assert_eq!((place.namespace.as_deref(), place.context.as_deref()), (Some("shop"), Some("dev")));
        assert_eq!((place.desired, place.begun.as_str()), (Desired::Configs, "ga"));
    }
}
