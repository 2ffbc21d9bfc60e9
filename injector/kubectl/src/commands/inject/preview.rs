//! A pod of the template, created in a dry run of the API server: what Nudge's webhook makes of it.

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{ApiResource, DynamicObject};
use nudge_core::owners::WorkloadKind;
use nudge_protocol::labels::AGENT;
use serde_json::{Value, json};

use super::workload::Workload;
use crate::dry_run::DryRun;
use crate::failure::{Failure, doing};
use crate::session::{Session, creating};

/// The end of the names of the owner of the pod, and the hash of its template.
const HASH: &str = "preview";

/// Returns a pod as the workload's controller would create it.
fn pod_of(workload: &Workload, stored: &Value, template: &Value) -> Value {
    let mut pod = template.clone();
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    pod["metadata"]["generateName"] = json!(format!("{}-", workload.name));
    let (kind, name) = match workload.kind {
        // The name of a ReplicaSet ends with the hash, which its pods have as a label.
        WorkloadKind::Deployment => {
            pod["metadata"]["labels"]["pod-template-hash"] = json!(HASH);
            ("ReplicaSet".to_owned(), format!("{}-{HASH}", workload.name))
        }
        kind => (kind.to_string(), workload.name.clone()),
    };
    let owner = json!({
        "apiVersion": "apps/v1", "kind": kind, "name": name, "uid": stored["metadata"]["uid"], "controller": true,
    });
    pod["metadata"]["ownerReferences"] = json!([owner]);
    let claims = stored["spec"]["volumeClaimTemplates"].as_array().into_iter().flatten();
    for name in claims.filter_map(|claim| claim["metadata"]["name"].as_str()) {
        let claim = format!("{name}-{}-0", workload.name);
        let volume = json!({"name": name, "persistentVolumeClaim": {"claimName": claim}});
        match pod["spec"]["volumes"].as_array_mut() {
            Some(volumes) => volumes.push(volume),
            None => pod["spec"]["volumes"] = json!([volume]),
        }
    }
    pod
}

/// Returns the pod that the template becomes, with the agent. Nothing is stored.
pub(super) async fn injected_pod(
    session: &Session,
    workload: &Workload,
    stored: &Value,
    template: &Value,
) -> Result<Pod, Failure> {
    let unusable = |_| Failure::new(format!("the template of {} is not one of pods", workload.title()));
    let pod: DynamicObject = serde_json::from_value(pod_of(workload, stored, template)).map_err(unusable)?;
    let api: Api<DynamicObject> =
        Api::namespaced_with(session.client.clone(), &session.namespace, &ApiResource::erase::<Pod>(&()));
    let created = api.create(&creating(DryRun::Server), &pod).await;
    let created = created.map_err(doing(format!("creating a pod of {} in a dry run", workload.title())))?;
    let pod: Pod = created.try_parse().map_err(|_| Failure::new("the pod of the dry run can't be read"))?;
    if pod.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(AGENT)) {
        return Ok(pod);
    }
    Err(Failure::new(format!(
        "the pod would get no agent, because Nudge's webhook is not asked about namespace {0}; enable it with kubectl nudge enable {0}",
        session.namespace
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(workload: &str, stored: &Value) -> Value {
        let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "app"}]}});
        pod_of(&Workload::parse(workload).unwrap(), stored, &template)
    }

    #[test]
    fn a_pod_has_the_owner_that_its_controller_gives_it() {
        let stored = json!({"metadata": {"name": "web", "uid": "u"}, "spec": {"volumeClaimTemplates": [{"metadata": {"name": "disk"}}]}});
        let web: Pod = serde_json::from_value(pod("deploy/web", &stored)).unwrap();
        let id = nudge_core::owners::WorkloadId::of(&web.metadata).unwrap();
        assert_eq!((id.to_string().as_str(), web.metadata.generate_name.as_deref()), ("Deployment/web", Some("web-")));
        let db = pod("sts/web", &stored);
        assert_eq!(db["metadata"]["ownerReferences"][0]["kind"], "StatefulSet");
        assert_eq!(db["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"], "disk-web-0");
        assert_eq!(db["metadata"]["labels"], json!({"app": "web"}));
    }
}
