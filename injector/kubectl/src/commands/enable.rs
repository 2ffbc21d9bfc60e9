//! `kubectl nudge enable`: creates the RoleBindings, then sets the label that makes Nudge watch the namespace.

use clap::Args;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::{RoleBinding, RoleRef, Subject};
use kube::Api;
use kube::api::{ObjectMeta, Patch, PatchParams};
use nudge_protocol::labels;
use serde_json::json;

use crate::dry_run::{Dry, DryRun};
use crate::failure::{Failure, doing};
use crate::session::{Session, patching};

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  kubectl nudge enable shop
  kubectl nudge enable shop --secrets --restart")]
pub(crate) struct Enable {
    /// The namespace
    #[arg(value_name = "NAMESPACE")]
    pub(crate) name: String,
    /// Let Nudge read and prune the namespace's Secrets, so that versions can have Secret parts
    #[arg(long)]
    pub(crate) secrets: bool,
    /// Let Nudge restart workloads that take a version by a restart
    #[arg(long)]
    pub(crate) restart: bool,
    /// The service account of Nudge
    #[arg(long, default_value = "nudge-system:nudge-injector", value_name = "NAMESPACE:NAME")]
    pub(crate) service_account: String,
    #[command(flatten)]
    pub(crate) dry: Dry,
}

/// The ClusterRoles to bind.
fn roles(command: &Enable) -> Vec<&'static str> {
    let roles = [(true, "nudge-namespace"), (command.secrets, "nudge-secrets"), (command.restart, "nudge-restart")];
    roles.into_iter().filter(|(bound, _)| *bound).map(|(_, role)| role).collect()
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

pub(crate) async fn run(session: &Session, command: &Enable) -> Result<(), Failure> {
    let account =
        command.service_account.split_once(':').filter(|(namespace, name)| !namespace.is_empty() && !name.is_empty());
    let Some(account) = account else {
        let given = &command.service_account;
        return Err(Failure::usage(format!(
            "--service-account {given} is not NAMESPACE:NAME; an example is nudge-system:nudge-injector"
        )));
    };
    let (namespace, dry) = (command.name.as_str(), command.dry.dry_run);
    let namespaces: Api<Namespace> = Api::all(session.client.clone());
    if namespaces.get_opt(namespace).await.map_err(doing(format!("reading namespace {namespace}")))?.is_none() {
        return Err(Failure::new(format!(
            "there is no namespace {namespace}; create it with kubectl create namespace {namespace}"
        )));
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

    #[test]
    fn only_the_requested_roles_are_bound() {
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
