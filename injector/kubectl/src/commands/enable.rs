//! `kubectl nudge enable` and `disable`: the RoleBindings by which Nudge may work in a namespace, and the label that makes it do so.

use std::fmt::Debug;

use clap::Args;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject};
use kube::api::{ObjectMeta, Patch, PatchParams};
use kube::{Api, Resource};
use nudge_protocol::labels;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::dry_run::{Dry, DryRun};
use crate::failure::{Failure, doing};
use crate::session::{Session, deleting, patching};

/// The accounts of the roles of the control plane.
const CONTROL: &str = "nudge-injector";
const HUB: &str = "nudge-hub";
/// The Role and its binding for Secrets that were named.
const NAMED: &str = "nudge-secrets-named";
const RBAC: &str = "rbac.authorization.k8s.io";

#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Only an admin of the cluster can do this: the roles that are always bound have rights that an admin of a
namespace does not have, and the label is part of the Namespace.

Versions with Secret parts need --secrets without names, because RBAC can't select the Secrets of
versions. With names, Nudge may read these Secrets and no others: this is for sources of versions,
and nothing reads by it yet.

Examples:
  kubectl nudge enable shop
  kubectl nudge enable shop --secrets --restart
  kubectl nudge enable shop --secrets --publish-secrets
  kubectl nudge enable shop --secrets=shop-upstream"
)]
pub(crate) struct Enable {
    /// The namespace
    #[arg(value_name = "NAMESPACE")]
    pub(crate) name: String,
    /// Let Nudge read and prune all Secrets of the namespace, so that versions can have Secret parts; with names, let it read only
    /// these Secrets
    #[arg(long, num_args = 0..=1, require_equals = true, value_delimiter = ',', value_name = "NAMES")]
    pub(crate) secrets: Option<Vec<String>>,
    /// Let Nudge create and replace Secrets of the namespace, for configs with Secret in spec.publish; needs --secrets
    #[arg(long)]
    pub(crate) publish_secrets: bool,
    /// Let Nudge restart workloads that take a version by a restart
    #[arg(long)]
    pub(crate) restart: bool,
    /// The namespace of Nudge itself
    #[arg(long, default_value = "nudge-system", value_name = "NAMESPACE")]
    pub(crate) system_namespace: String,
    #[command(flatten)]
    pub(crate) dry: Dry,
}

#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Running pods keep the content that they have. VersionedConfigs and versions stay, and nothing acts on
them any more. If Nudge is installed for all namespaces, set the label nudge.dev/enabled=false instead.

Example:
  kubectl nudge disable shop"
)]
pub(crate) struct Disable {
    /// The namespace
    #[arg(value_name = "NAMESPACE")]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) dry: Dry,
}

/// All bindings that `enable` can make: of a ClusterRole, but for the last, to the account of a role of the control plane.
const BINDINGS: [(&str, &str); 7] = [
    ("nudge-namespace", CONTROL),
    ("nudge-namespace-hub", HUB),
    ("nudge-secrets", CONTROL),
    ("nudge-secrets-hub", HUB),
    ("nudge-publish-secrets", CONTROL),
    ("nudge-restart", CONTROL),
    (NAMED, CONTROL),
];

/// The bindings that these flags ask for.
fn bindings(command: &Enable) -> impl Iterator<Item = (&'static str, &'static str)> {
    let (all, named) = (command.secrets.as_ref().is_some_and(Vec::is_empty), !names(command).is_empty());
    let (publish, restart) = (command.publish_secrets, command.restart);
    BINDINGS.into_iter().filter(move |(role, _)| match *role {
        "nudge-secrets" | "nudge-secrets-hub" => all,
        "nudge-publish-secrets" => publish,
        "nudge-restart" => restart,
        NAMED => named,
        _ => true,
    })
}

/// The Secrets that were named.
fn names(command: &Enable) -> &[String] {
    command.secrets.as_deref().unwrap_or_default()
}

fn metadata(name: &str, namespace: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), namespace: Some(namespace.to_owned()), ..ObjectMeta::default() }
}

fn binding(role: &str, namespace: &str, account: (&str, &str)) -> RoleBinding {
    let kind = if role == NAMED { "Role" } else { "ClusterRole" };
    RoleBinding {
        metadata: metadata(role, namespace),
        role_ref: RoleRef { api_group: RBAC.to_owned(), kind: kind.to_owned(), name: role.to_owned() },
        subjects: Some(vec![Subject {
            kind: "ServiceAccount".to_owned(),
            namespace: Some(account.0.to_owned()),
            name: account.1.to_owned(),
            ..Subject::default()
        }]),
    }
}

/// The Role for the Secrets that were named.
fn named(namespace: &str, names: &[String]) -> Role {
    let rule = PolicyRule {
        api_groups: Some(vec![String::new()]),
        resources: Some(vec!["secrets".to_owned()]),
        resource_names: Some(names.to_vec()),
        verbs: vec!["get".to_owned()],
        ..PolicyRule::default()
    };
    Role { metadata: metadata(NAMED, namespace), rules: Some(vec![rule]) }
}

pub(crate) async fn enable(session: &Session, command: &Enable) -> Result<(), Failure> {
    let (namespace, dry) = (command.name.as_str(), command.dry.dry_run);
    if names(command).iter().any(String::is_empty) {
        return Err(Failure::usage("--secrets has an empty name; an example is --secrets=shop-upstream,shop-keys"));
    }
    if command.publish_secrets && command.secrets.as_ref().is_none_or(|names| !names.is_empty()) {
        return Err(Failure::usage(
            "--publish-secrets needs --secrets without names: what is published is read from the Secrets of versions",
        ));
    }
    exists(session, namespace).await?;
    // A user who may not set the label leaves nothing behind.
    if dry != DryRun::Client {
        label(session, namespace, json!("true"), DryRun::Server).await?;
    }
    if !names(command).is_empty() {
        let role = named(namespace, names(command));
        apply(session, namespace, NAMED, "role", &role, dry).await?;
    }
    for (role, account) in bindings(command) {
        let binding = binding(role, namespace, (&command.system_namespace, account));
        apply(session, namespace, role, "rolebinding", &binding, dry).await?;
    }
    if dry != DryRun::Client {
        label(session, namespace, json!("true"), dry).await?;
    }
    session.out.line(&format!("namespace/{namespace} enabled{}", dry.suffix()))
}

pub(crate) async fn disable(session: &Session, command: &Disable) -> Result<(), Failure> {
    let (namespace, dry) = (command.name.as_str(), command.dry.dry_run);
    exists(session, namespace).await?;
    // First, so that the API server asks Nudge nothing that it may no longer answer.
    if dry != DryRun::Client {
        label(session, namespace, Value::Null, dry).await?;
    }
    session.out.line(&format!("namespace/{namespace} disabled{}", dry.suffix()))?;
    for (role, _) in BINDINGS {
        delete::<RoleBinding>(session, namespace, role, "rolebinding", dry).await?;
    }
    delete::<Role>(session, namespace, NAMED, "role", dry).await
}

async fn exists(session: &Session, namespace: &str) -> Result<(), Failure> {
    let namespaces: Api<Namespace> = Api::all(session.client.clone());
    match namespaces.get_opt(namespace).await.map_err(doing(format!("reading namespace {namespace}")))? {
        Some(_) => Ok(()),
        None => Err(Failure::new(format!(
            "there is no namespace {namespace}; create it with kubectl create namespace {namespace}"
        ))),
    }
}

async fn label(session: &Session, namespace: &str, value: Value, dry: DryRun) -> Result<(), Failure> {
    let namespaces: Api<Namespace> = Api::all(session.client.clone());
    let patch = json!({"metadata": {"labels": {labels::ENABLED: value}}});
    let labelled = namespaces.patch(namespace, &patching(dry), &Patch::Merge(&patch)).await;
    labelled.map(drop).map_err(doing(format!("labelling namespace {namespace}")))
}

async fn apply<K>(
    session: &Session,
    namespace: &str,
    name: &str,
    kind: &str,
    object: &K,
    dry: DryRun,
) -> Result<(), Failure>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned + Serialize + Debug,
{
    if dry != DryRun::Client {
        let api: Api<K> = Api::namespaced(session.client.clone(), namespace);
        let how = PatchParams { force: true, ..patching(dry) };
        let applied = api.patch(name, &how, &Patch::Apply(object)).await;
        applied.map_err(doing(format!("applying {kind} {name} in namespace {namespace}")))?;
    }
    session.out.line(&format!("{kind}.{RBAC}/{name} applied{}", dry.suffix()))
}

async fn delete<K>(session: &Session, namespace: &str, name: &str, kind: &str, dry: DryRun) -> Result<(), Failure>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let api: Api<K> = Api::namespaced(session.client.clone(), namespace);
    let found = api.get_metadata_opt(name).await.map_err(doing(format!("reading {kind} {name}")))?;
    if found.is_none() {
        return Ok(());
    }
    if dry != DryRun::Client {
        let deleted = api.delete(name, &deleting(dry)).await;
        deleted.map_err(doing(format!("deleting {kind} {name} in namespace {namespace}")))?;
    }
    session.out.line(&format!("{kind}.{RBAC}/{name} deleted{}", dry.suffix()))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        command: Enable,
    }

    fn roles(line: &str) -> Vec<&'static str> {
        let command = Line::parse_from(line.split(' ')).command;
        bindings(&command).map(|(role, _)| role).collect()
    }

    #[test]
    fn only_the_requested_roles_are_bound() {
        let base = ["nudge-namespace", "nudge-namespace-hub"];
        assert_eq!(roles("enable shop"), base);
        let all = [&base[..], &["nudge-secrets", "nudge-secrets-hub", "nudge-restart"]].concat();
        assert_eq!(roles("enable shop --secrets --restart"), all);
        assert_eq!(roles("enable --secrets=a,b shop"), [&base[..], &["nudge-secrets-named"]].concat());
        let subjects = binding("nudge-secrets-hub", "shop", ("system", HUB)).subjects.unwrap();
        assert_eq!((subjects[0].namespace.as_deref(), subjects[0].name.as_str()), (Some("system"), "nudge-hub"));
    }

    #[test]
    fn named_secrets_are_read_and_no_others() {
        let role = named("shop", &["a".to_owned(), "b".to_owned()]);
        let rules = serde_json::to_value(role.rules).unwrap();
        let expected =
            json!([{"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["a", "b"], "verbs": ["get"]}]);
        assert_eq!(rules, expected);
        assert_eq!(binding(NAMED, "shop", ("system", CONTROL)).role_ref.kind, "Role");
    }
}
