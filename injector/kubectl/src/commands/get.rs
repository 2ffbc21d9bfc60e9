//! `kubectl nudge get`: prints the dictionary that a pod sees, or the dictionary of a config.

use clap::Args;
use k8s_openapi::api::core::v1::Pod;
use nudge_api::{VersionStatus, VersionedConfig};
use nudge_core::identity::Identity;
use nudge_core::pods::{PodState, pod_state};
use nudge_core::rollout::assigned_version;
use nudge_protocol::VersionName;
use nudge_protocol::names::CURRENT;

use crate::failure::{Failure, doing};
use crate::output::Format;
use crate::session::Session;
use crate::version::dictionary::{DictionarySource, dictionary};
use crate::version::stored::{ContentsByKind, contents, readable_contents, sealed};

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  kubectl nudge get web-7d4b9c-x2x7p
  kubectl nudge get game
  kubectl nudge get config/game --version 1.0.0 -o json")]
pub(crate) struct Get {
    /// A config, or a pod with an agent; pod/NAME or config/NAME if both exist
    #[arg(value_name = "POD|CONFIG")]
    pub(crate) name: String,
    /// A version of the config, instead of the current one
    #[arg(long, value_name = "VERSION")]
    pub(crate) version: Option<VersionName>,
    /// Print the values of Secrets too
    #[arg(long)]
    pub(crate) show_secrets: bool,
    /// The output format; by default YAML
    #[arg(short, long, value_enum)]
    pub(crate) output: Option<Format>,
}

/// An object that the argument names.
enum NamedObject {
    Pod(Box<Pod>),
    Config(Box<VersionedConfig>),
}

/// Finds the object that the argument names.
async fn find_subject(session: &Session, name: &str) -> Result<NamedObject, Failure> {
    let pod = async |name: &str| session.api::<Pod>().get_opt(name).await.map_err(doing(format!("reading pod {name}")));
    let namespace = &session.namespace;
    match name.split_once('/') {
        Some(("pod" | "pods" | "po", name)) => match pod(name).await? {
            Some(pod) => Ok(NamedObject::Pod(Box::new(pod))),
            None => Err(Failure::new(format!("there is no pod {name} in namespace {namespace}; see kubectl get pods"))),
        },
        Some(("config" | "vcfg" | "versionedconfig", name)) => {
            Ok(NamedObject::Config(Box::new(session.config(name).await?)))
        }
        Some((kind, _)) => {
            Err(Failure::usage(format!("{kind} is not a kind that get knows; write pod/NAME or config/NAME")))
        }
        None => match (session.find_config(name).await?, pod(name).await) {
            // A user who names a config needs no right on pods.
            (Some(config), Err(failure)) if failure.status == 403 => Ok(NamedObject::Config(Box::new(config))),
            (_, Err(failure)) => Err(failure),
            (Some(config), Ok(None)) => Ok(NamedObject::Config(Box::new(config))),
            (None, Ok(Some(pod))) => Ok(NamedObject::Pod(Box::new(pod))),
            (Some(_), Ok(Some(_))) => Err(Failure::usage(format!(
                "there is a config {name} and a pod {name}; write config/{name} or pod/{name}"
            ))),
            (None, Ok(None)) => {
                let see = "see kubectl nudge status and kubectl get pods";
                Err(Failure::new(format!("there is neither a config nor a pod {name} in namespace {namespace}; {see}")))
            }
        },
    }
}

pub(crate) async fn run(session: &Session, command: &Get) -> Result<(), Failure> {
    let sources = match find_subject(session, &command.name).await? {
        NamedObject::Config(config) => {
            let version = command.version.as_ref().map_or(CURRENT, |version| version.as_str());
            let version = sealed(&config, version)?;
            let name = config.metadata.name.clone().unwrap_or_default();
            let parts = parts(session, version, command.show_secrets).await?;
            vec![DictionarySource { config: name, version: Some(version.version.clone()), parts }]
        }
        NamedObject::Pod(_) if command.version.is_some() => {
            return Err(Failure::usage("--version needs a config; the versions of a pod are assigned by the rollout"));
        }
        NamedObject::Pod(pod) => {
            let name = &command.name;
            let no_agent = || {
                Failure::new(format!("pod {name} has no agent; see the annotation nudge.dev/inject on its template"))
            };
            pod_sources(session, &pod_state(&pod).ok_or_else(no_agent)?, command.show_secrets).await?
        }
    };
    let merged = dictionary(sources, command.show_secrets);
    match command.output {
        Some(Format::Name) => session.out.lines(merged.into_keys()),
        format => session.out.document(&merged, format.unwrap_or(Format::Yaml)),
    }
}

/// Reads the content of a version. A user who does not request the values of Secrets need not be allowed to read them.
async fn parts(session: &Session, version: &VersionStatus, show_secrets: bool) -> Result<ContentsByKind, Failure> {
    if show_secrets { contents(session, version).await } else { readable_contents(session, version).await }
}

/// Reads the content of the versions that are assigned to the pod, in the order of its configs.
async fn pod_sources(session: &Session, pod: &PodState, show_secrets: bool) -> Result<Vec<DictionarySource>, Failure> {
    let mut sources = Vec::new();
    for name in &pod.configs {
        let mut source = DictionarySource { config: name.to_string(), version: None, parts: ContentsByKind::new() };
        let config = session.find_config(name.as_str()).await?;
        let assigned = |config: &VersionedConfig| {
            assigned_version(config.status.as_ref()?, Identity::of(config), pod).map(str::to_owned)
        };
        // A pod that takes versions by a restart keeps the one that it started with.
        let started_with = pod.runs(name.as_str()).filter(|_| pod.is_by_restart());
        let version = started_with.map(ToString::to_string).or_else(|| config.as_ref().and_then(assigned));
        match (&config, version) {
            (Some(config), Some(version)) => {
                let version = sealed(config, &version)?;
                source.parts = parts(session, version, show_secrets).await?;
                source.version = Some(version.version.clone());
            }
            (Some(_), None) => {
                session.out.warn(&format!("config {name} has no current version yet, so the pod has no keys of it"));
            }
            (None, _) => session.out.warn(&format!("there is no config {name}, so the pod has no keys of it")),
        }
        sources.push(source);
    }
    Ok(sources)
}
