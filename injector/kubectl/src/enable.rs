//! `kubectl nudge enable`: the rights first, then the label that makes Nudge look at the namespace.

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::{RoleBinding, RoleRef, Subject};
use kube::Api;
use kube::api::{ObjectMeta, Patch, PatchParams};
use nudge_protocol::labels;
use serde_json::json;

use super::arguments::{DryRun, Enable};
use super::failure::{Failure, doing};
use super::session::{Session, patching};

/// The ClusterRoles that the command's flags ask for.
fn roles(command: &Enable) -> Vec<&'static str> {
    let asked = [(true, "nudge-namespace"), (command.secrets, "nudge-secrets"), (command.restart, "nudge-restart")];
    asked.into_iter().filter(|(asked, _)| *asked).map(|(_, role)| role).collect()
}

fn binding(role: &str, namespace: &str, account: (&str, &str)) -> RoleBinding {
    RoleBinding {
        metadata: ObjectMeta {
            name: Some(role.to_owned()),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        },
        role_ref: RoleRef {
            api_group: "rbac.authorization.k8s.io".to_owned(),
            kind: "ClusterRole".to_owned(),
            name: role.to_owned(),
        },
        subjects: Some(vec![Subject {
            kind: "ServiceAccount".to_owned(),
            namespace: Some(account.0.to_owned()),
            name: account.1.to_owned(),
            ..Subject::default()
        }]),
    }
}

pub(super) async fn run(session: &Session, command: &Enable) -> Result<(), Failure> {
    let account =
        command.service_account.split_once(':').filter(|(namespace, name)| !namespace.is_empty() && !name.is_empty());
    let Some(account) = account else {
        let given = &command.service_account;
        return Err(Failure::usage(format!(
            "--service-account {given}: it must be NAMESPACE:NAME, such as nudge-system:nudge-injector"
        )));
    };
    let (namespace, dry) = (command.name.as_str(), command.dry.dry_run);
    let namespaces: Api<Namespace> = Api::all(session.client.clone());
    if namespaces.get_opt(namespace).await.map_err(doing(format!("reading namespace {namespace}")))?.is_none() {
        return Err(Failure::new(format!("there is no namespace {namespace}; kubectl create namespace {namespace}")));
    }
    let bindings: Api<RoleBinding> = Api::namespaced(session.client.clone(), namespace);
    for role in roles(command) {
        if dry != DryRun::Client {
            let how = PatchParams { force: true, ..patching(dry) };
            let applied = bindings.patch(role, &how, &Patch::Apply(&binding(role, namespace, account))).await;
            applied.map_err(doing(format!("binding ClusterRole {role} in namespace {namespace}")))?;
        }
        session.out.line(&format!("rolebinding.rbac.authorization.k8s.io/{role} applied{}", dry.suffix()))?;
    }
    if dry != DryRun::Client {
        let patch = json!({"metadata": {"labels": {labels::ENABLED: "true"}}});
        let labelled = namespaces.patch(namespace, &patching(dry), &Patch::Merge(&patch)).await;
        labelled.map_err(doing(format!("labelling namespace {namespace}")))?;
    }
    session.out.line(&format!("namespace/{namespace} enabled{}", dry.suffix()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::Dry;

    #[test]
    fn only_what_was_asked_for_is_bound() {
        let command = |secrets, restart| Enable {
            name: "shop".into(),
            secrets,
            restart,
            service_account: String::new(),
            dry: Dry::default(),
        };
        assert_eq!(roles(&command(false, false)), ["nudge-namespace"]);
        assert_eq!(roles(&command(true, true)), ["nudge-namespace", "nudge-secrets", "nudge-restart"]);
        let subjects = binding("nudge-secrets", "shop", ("system", "nudge")).subjects.unwrap();
        assert_eq!((subjects[0].namespace.as_deref(), subjects[0].name.as_str()), (Some("system"), "nudge"));
    }
}
