//! `kubectl nudge get`: the dictionary that a pod, or any pod of a config, would see.

use k8s_openapi::api::core::v1::Pod;
use nudge_api::VersionedConfig;
use nudge_core::pods::{PodState, pod_state};
use nudge_core::rollout::told;

use super::arguments::Get;
use super::dictionary::{Source, dictionary};
use super::failure::{Failure, doing};
use super::output::Format;
use super::session::Session;
use super::stored::{contents, sealed};

/// What is asked for.
enum Subject {
    Pod(Box<Pod>),
    Config(Box<VersionedConfig>),
}

async fn subject(session: &Session, name: &str) -> Result<Subject, Failure> {
    let pod = async |name: &str| session.api::<Pod>().get_opt(name).await.map_err(doing(format!("reading pod {name}")));
    let namespace = &session.namespace;
    match name.split_once('/') {
        Some(("pod" | "pods" | "po", name)) => match pod(name).await? {
            Some(pod) => Ok(Subject::Pod(Box::new(pod))),
            None => Err(Failure::new(format!("there is no pod {name} in namespace {namespace}; see kubectl get pods"))),
        },
        Some(("config" | "vcfg" | "versionedconfig", name)) => {
            Ok(Subject::Config(Box::new(session.config(name).await?)))
        }
        Some((kind, _)) => {
            Err(Failure::usage(format!("{kind} is neither pod nor config; write pod/NAME or config/NAME")))
        }
        None => match (session.find_config(name).await?, pod(name).await?) {
            (Some(config), None) => Ok(Subject::Config(Box::new(config))),
            (None, Some(pod)) => Ok(Subject::Pod(Box::new(pod))),
            (Some(_), Some(_)) => Err(Failure::usage(format!(
                "there is a config {name} and a pod {name}; write config/{name} or pod/{name}"
            ))),
            (None, None) => {
                let see = "see kubectl nudge status and kubectl get pods";
                Err(Failure::new(format!("there is neither a config nor a pod {name} in namespace {namespace}; {see}")))
            }
        },
    }
}

pub(super) async fn run(session: &Session, command: &Get) -> Result<(), Failure> {
    let sources = match subject(session, &command.name).await? {
        Subject::Config(config) => {
            let desired = command.version.as_ref().map_or(nudge_protocol::names::CURRENT, |version| version.as_str());
            let version = sealed(&config, desired)?;
            let name = config.metadata.name.clone().unwrap_or_default();
            let parts = contents(session, version).await?;
            vec![Source { config: name, version: Some(version.version.clone()), parts }]
        }
        Subject::Pod(_) if command.version.is_some() => {
            return Err(Failure::usage("--version goes with a config; a pod has the versions that it is told"));
        }
        Subject::Pod(pod) => {
            let name = &command.name;
            let none = || format!("pod {name} has no agent; see the annotation nudge.dev/inject on its template");
            of_pod(session, &pod_state(&pod).ok_or_else(|| Failure::new(none()))?).await?
        }
    };
    let all = dictionary(sources, command.show_secrets);
    match command.output {
        Some(Format::Name) => session.out.lines(all.into_keys()),
        other => session.out.document(&all, other.unwrap_or(Format::Yaml)),
    }
}

/// What the pod is told, config by config in its own order.
async fn of_pod(session: &Session, pod: &PodState) -> Result<Vec<Source>, Failure> {
    let mut sources = Vec::new();
    for name in &pod.configs {
        let mut source = Source { config: name.to_string(), version: None, parts: Vec::new() };
        let config = session.find_config(name.as_str()).await?;
        let uid = config.as_ref().and_then(|config| config.metadata.uid.clone()).unwrap_or_default();
        let status = config.as_ref().and_then(|config| config.status.as_ref());
        // What it was born with stays.
        let born = pod.runs(name.as_str()).filter(|_| pod.by_restart);
        let version = born.as_deref().or_else(|| status.and_then(|status| told(status, &uid, pod)));
        match (&config, version) {
            (Some(config), Some(version)) => {
                let version = sealed(config, version)?;
                source.parts = contents(session, version).await?;
                source.version = Some(version.version.clone());
            }
            (Some(_), None) => {
                session.out.warn(&format!("config {name} has no current version yet; the pod has nothing of it"));
            }
            (None, _) => session.out.warn(&format!("there is no config {name}; the pod has nothing of it")),
        }
        sources.push(source);
    }
    Ok(sources)
}
