//! The workloads that `inject` changes.

use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch};
use nudge_core::owners::WorkloadKind;
use nudge_protocol::names::is_object_name;
use serde_json::Value;

use crate::dry_run::DryRun;
use crate::failure::{Failure, doing};
use crate::session::{Session, patching};

/// A workload, as `TYPE/NAME` names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Workload {
    pub(super) kind: WorkloadKind,
    pub(super) name: String,
}

impl Workload {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (kind, name) = text.split_once('/').ok_or("write TYPE/NAME, such as deployment/web")?;
        let kind = match kind.trim_end_matches(".apps") {
            "deployment" | "deployments" | "deploy" => WorkloadKind::Deployment,
            "statefulset" | "statefulsets" | "sts" => WorkloadKind::StatefulSet,
            "daemonset" | "daemonsets" | "ds" => WorkloadKind::DaemonSet,
            _ => return Err(format!("{kind} is none of deployment, statefulset and daemonset")),
        };
        if !is_object_name(name) {
            return Err(format!("{name:?} is not the name of an object"));
        }
        Ok(Self { kind, name: name.to_owned() })
    }

    /// Returns the name as kubectl writes it.
    pub(super) fn title(&self) -> String {
        format!("{}.apps/{}", self.kind.to_string().to_lowercase(), self.name)
    }
}

/// Returns the name of the kind's objects in paths of the API.
fn plural(kind: WorkloadKind) -> String {
    format!("{}s", kind.to_string().to_lowercase())
}

/// Returns the API of the workload's kind. Objects stay JSON, so that fields of an API newer than this release are
/// kept.
fn api(session: &Session, kind: WorkloadKind) -> Api<DynamicObject> {
    let version_kind = GroupVersionKind::gvk("apps", "v1", &kind.to_string());
    let resource = ApiResource::from_gvk_with_plural(&version_kind, &plural(kind));
    Api::namespaced_with(session.client.clone(), &session.namespace, &resource)
}

/// Reads the workload, which must exist.
pub(super) async fn read_workload(session: &Session, workload: &Workload) -> Result<Value, Failure> {
    let title = workload.title();
    let stored = api(session, workload.kind).get_opt(&workload.name).await;
    let stored = stored.map_err(doing(format!("reading {title}")))?.ok_or_else(|| {
        Failure::new(format!(
            "there is no {title} in namespace {}; see kubectl get {}",
            session.namespace,
            plural(workload.kind)
        ))
    })?;
    serde_json::to_value(stored).map_err(|_| Failure::new(format!("{title} can't be read")))
}

/// Changes the template of the workload.
pub(super) async fn patch_template(
    session: &Session,
    workload: &Workload,
    template: &Value,
    dry: DryRun,
) -> Result<(), Failure> {
    if dry == DryRun::Client {
        return Ok(());
    }
    let patch = serde_json::json!({"spec": {"template": template}});
    let patched = api(session, workload.kind).patch(&workload.name, &patching(dry), &Patch::Merge(&patch)).await;
    patched.map(drop).map_err(doing(format!("changing {}", workload.title())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workloads_have_the_names_of_kubectl() {
        for (text, title) in [
            ("deploy/web", "deployment.apps/web"),
            ("deployments.apps/web", "deployment.apps/web"),
            ("sts/db.0", "statefulset.apps/db.0"),
            ("daemonset/log", "daemonset.apps/log"),
        ] {
            assert_eq!(Workload::parse(text).map(|workload| workload.title()).as_deref(), Ok(title));
        }
        for bad in ["web", "pod/web", "deploy/", "deploy/a/b", "/web"] {
            assert!(Workload::parse(bad).is_err(), "{bad}");
        }
    }
}
