//! `kubectl nudge restart`: changes a workload's template, so that its own rolling update restarts its pods.

use std::str::FromStr;

use clap::Args;
use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use kube::Resource;
use kube::api::Patch;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::dry_run::{Dry, DryRun};
use crate::failure::{Failure, doing};
use crate::session::{Session, patching};

/// The annotation of the template that changes with every restart.
const RESTARTED: &str = "nudge.dev/restarted-at";

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  kubectl nudge restart deployment/web
  kubectl nudge restart sts/db")]
pub(crate) struct Restart {
    /// deployment/NAME, statefulset/NAME or daemonset/NAME
    #[arg(value_name = "KIND/NAME")]
    pub(crate) workload: Workload,
    #[command(flatten)]
    pub(crate) dry: Dry,
}

/// A workload that restarts its pods by a rolling update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Workload {
    kind: Kind,
    name: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Deployment,
    StatefulSet,
    DaemonSet,
}

impl FromStr for Workload {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refuse =
            || format!("{text:?} is not a workload; write deployment/NAME, statefulset/NAME or daemonset/NAME");
        let (kind, name) =
            text.split_once('/').filter(|(_, name)| !name.is_empty() && !name.contains('/')).ok_or_else(refuse)?;
        let kind = kind.to_ascii_lowercase();
        let kind = match kind.strip_suffix(".apps").unwrap_or(&kind) {
            "deployment" | "deployments" | "deploy" => Kind::Deployment,
            "statefulset" | "statefulsets" | "sts" => Kind::StatefulSet,
            "daemonset" | "daemonsets" | "ds" => Kind::DaemonSet,
            _ => return Err(refuse()),
        };
        Ok(Self { kind, name: name.to_owned() })
    }
}

pub(crate) async fn run(session: &Session, command: &Restart) -> Result<(), Failure> {
    let Workload { kind, name } = &command.workload;
    match kind {
        Kind::Deployment => restart::<Deployment>(session, "deployment", name, command.dry.dry_run).await,
        Kind::StatefulSet => restart::<StatefulSet>(session, "statefulset", name, command.dry.dry_run).await,
        Kind::DaemonSet => restart::<DaemonSet>(session, "daemonset", name, command.dry.dry_run).await,
    }
}

/// Why the workload would not restart: an error, or a warning.
fn preflight(kind: &str, name: &str, spec: &Value) -> (Option<String>, Option<String>) {
    let paused = spec["paused"] == true;
    let on_delete = spec["updateStrategy"]["type"] == "OnDelete";
    (
        paused.then(|| format!("{kind} {name} is paused; run kubectl rollout resume {kind}/{name} first")),
        on_delete.then(|| format!("{kind} {name} has the update strategy OnDelete; delete its pods to restart them")),
    )
}

async fn restart<K>(session: &Session, kind: &str, name: &str, dry: DryRun) -> Result<(), Failure>
where
    K: Resource<Scope = NamespaceResourceScope> + Clone + DeserializeOwned + serde::Serialize + std::fmt::Debug,
    K::DynamicType: Default,
{
    let api = session.api::<K>();
    let missing = || {
        let namespace = &session.namespace;
        Failure::new(format!("there is no {kind} {name} in namespace {namespace}; see kubectl get {kind}s"))
    };
    let workload = api.get_opt(name).await.map_err(doing(format!("reading {kind} {name}")))?.ok_or_else(missing)?;
    let workload = serde_json::to_value(&workload).map_err(|error| Failure::new(format!("{kind} {name}: {error}")))?;
    let (error, warning) = preflight(kind, name, &workload["spec"]);
    if let Some(error) = error {
        return Err(Failure::new(error));
    }
    if let Some(warning) = warning {
        session.out.warn(&warning);
    }
    if dry != DryRun::Client {
        let patch =
            json!({"spec": {"template": {"metadata": {"annotations": {RESTARTED: Timestamp::now().to_string()}}}}});
        let patched = api.patch(name, &patching(dry), &Patch::Merge(&patch)).await;
        patched.map_err(doing(format!("restarting {kind} {name}")))?;
    }
    session.out.line(&format!("{kind}.apps/{name} restarted{}", dry.suffix()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_called_as_kubectl_calls_them() {
        for (text, kind) in [
            ("deploy/web", Kind::Deployment),
            ("Deployment/web", Kind::Deployment),
            ("deployment.apps/web", Kind::Deployment),
            ("sts/web", Kind::StatefulSet),
            ("daemonsets/web", Kind::DaemonSet),
        ] {
            assert_eq!(text.parse(), Ok(Workload { kind, name: "web".into() }), "{text}");
        }
        for bad in ["web", "pod/web", "deploy/", "/web", "deploy/a/b", "job/x"] {
            assert!(bad.parse::<Workload>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_workload_that_would_not_restart_is_reported() {
        assert!(preflight("deployment", "web", &json!({"paused": true})).0.unwrap().contains("kubectl rollout resume"));
        assert!(preflight("daemonset", "x", &json!({"updateStrategy": {"type": "OnDelete"}})).1.is_some());
        assert_eq!(preflight("deployment", "web", &json!({})), (None, None));
    }
}
