//! `kubectl nudge enable` and `disable`: the RoleBindings that allow Nudge to work in a namespace, and the label that
//! makes it work there.

use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::{RoleBinding, RoleRef, Subject};
use kube::Api;
use kube::api::{ObjectMeta, Patch, PatchParams};
use nudge_cluster::first_contact::{Contact, QuestionReply, QuestionScope, ask};
use nudge_protocol::labels;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::dry_run::{Dry, DryRun};
use crate::failure::{Failure, doing};
use crate::session::{Session, deleting, patching};

/// The accounts of the roles of the control plane.
const CONTROL: &str = "nudge-injector";
const HUB: &str = "nudge-hub";
const RBAC: &str = "rbac.authorization.k8s.io";
/// The time that the webhooks may take to answer.
const WEBHOOKS_TIMEOUT: Duration = Duration::from_mins(1);

#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Only an admin of the cluster can do this: the roles that are always bound have rights that an admin of a
namespace does not have, and the label is part of the Namespace.

At the end the command waits until the API server gets answers of Nudge's webhooks for the
namespace, at most a minute.

Versions with Secret parts need --secrets. It is for all Secrets of the namespace, because RBAC
can't select those of versions. With --baseline, a Secret that a pod reads becomes a config only
with --secrets and --publish-secrets.

At most 100 configs of a namespace are made by --baseline. Immutable objects, bundles of clusters
and meshes, tokens, releases of Helm, and names with more than 63 characters or with kustomize's
hash stay ordinary objects.

Examples:
  kubectl nudge enable shop
  kubectl nudge enable shop --baseline
  kubectl nudge enable shop --baseline=all
  kubectl nudge enable shop --baseline --secrets --publish-secrets
  kubectl nudge enable shop --secrets --publish-secrets"
)]
#[allow(clippy::struct_excessive_bools)] // each is one flag
pub(crate) struct Enable {
    /// The namespace
    #[arg(value_name = "NAMESPACE")]
    pub(crate) name: String,
    /// Let Nudge read and prune all Secrets of the namespace, so that versions can have Secret parts
    #[arg(long)]
    pub(crate) secrets: bool,
    /// Let Nudge create and replace Secrets of the namespace, for configs with Secret in spec.objects; needs --secrets
    #[arg(long)]
    pub(crate) publish_secrets: bool,
    /// Do not let Nudge restart workloads that take a version by a restart
    #[arg(long)]
    pub(crate) no_restart: bool,
    /// Make configs of existing objects, so that an edit of one is a version: those that a pod with an agent reads
    /// (mounted), or every ConfigMap too (all)
    #[arg(long, value_name = "mounted|all", num_args = 0..=1, require_equals = true, default_missing_value = "mounted")]
    pub(crate) baseline: Option<BaselineScope>,
    /// The namespace of Nudge itself
    #[arg(long, default_value = "nudge-system", value_name = "NAMESPACE")]
    pub(crate) system_namespace: String,
    #[command(flatten)]
    pub(crate) dry: Dry,
}

/// The objects of the namespace that become configs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BaselineScope {
    /// Each ConfigMap and Secret that a pod with an agent reads
    Mounted,
    /// The same objects, and every ConfigMap of the namespace
    All,
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

/// All bindings that `enable` can create: of a ClusterRole to the account of a role of the control plane.
const BINDINGS: [(&str, &str); 6] = [
    ("nudge-namespace", CONTROL),
    ("nudge-namespace-hub", HUB),
    ("nudge-secrets", CONTROL),
    ("nudge-secrets-hub", HUB),
    ("nudge-publish-secrets", CONTROL),
    ("nudge-restart", CONTROL),
];

/// Returns the bindings that the flags request.
fn bindings(command: &Enable) -> impl Iterator<Item = (&'static str, &'static str)> {
    let (secrets, publish, restart) = (command.secrets, command.publish_secrets, !command.no_restart);
    BINDINGS.into_iter().filter(move |(role, _)| match *role {
        "nudge-secrets" | "nudge-secrets-hub" => secrets,
        "nudge-publish-secrets" => publish,
        "nudge-restart" => restart,
        _ => true,
    })
}

fn binding(role: &str, namespace: &str, account: (&str, &str)) -> RoleBinding {
    RoleBinding {
        metadata: ObjectMeta {
            name: Some(role.to_owned()),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        },
        role_ref: RoleRef { api_group: RBAC.to_owned(), kind: "ClusterRole".to_owned(), name: role.to_owned() },
        subjects: Some(vec![Subject {
            kind: "ServiceAccount".to_owned(),
            namespace: Some(account.0.to_owned()),
            name: account.1.to_owned(),
            ..Subject::default()
        }]),
    }
}

pub(crate) async fn enable(session: &Session, command: &Enable) -> Result<(), Failure> {
    let (namespace, dry) = (command.name.as_str(), command.dry.dry_run);
    if command.publish_secrets && !command.secrets {
        return Err(Failure::usage(
            "--publish-secrets needs --secrets: what is published is read from the Secrets of versions",
        ));
    }
    check_exists(session, namespace).await?;
    // A user who may not set the label leaves nothing behind.
    if dry != DryRun::Client {
        set_labels(session, namespace, &labels_of(command), DryRun::Server).await?;
    }
    for (role, account) in bindings(command) {
        let role_binding = binding(role, namespace, (&command.system_namespace, account));
        apply(session, namespace, role, &role_binding, dry).await?;
    }
    if dry != DryRun::Client {
        set_labels(session, namespace, &labels_of(command), dry).await?;
    }
    session.out.line(&format!("namespace/{namespace} enabled{}", dry.suffix()))?;
    if dry == DryRun::None { wait_for_webhooks(session, command).await } else { Ok(()) }
}

/// Waits until the API server asks the webhooks about the namespace and trusts them, so that the next request there is
/// not refused for want of that.
async fn wait_for_webhooks(session: &Session, command: &Enable) -> Result<(), Failure> {
    let (began, mut contact) = (Instant::now(), Contact::default());
    loop {
        let reply = ask(session.client.clone(), &command.name, QuestionScope::Namespace).await;
        if let QuestionReply::NotAllowed(cause) = &reply {
            session.out.warn(&format!("you may not test whether the webhooks of Nudge answer: {cause}"));
            return Ok(());
        }
        contact = contact.after(reply);
        let Some(wait) = contact.wait() else { return Ok(()) };
        let remaining = WEBHOOKS_TIMEOUT.saturating_sub(began.elapsed());
        if remaining.is_zero() {
            let cause = contact.missing_cause().unwrap_or_default();
            return Err(Failure::new(format!(
                "the webhooks of Nudge did not answer the API server within {} s: {cause}; see kubectl -n {} get pods, and \
                 run the command again",
                WEBHOOKS_TIMEOUT.as_secs(),
                command.system_namespace
            )));
        }
        sleep(wait.min(remaining)).await;
    }
}

pub(crate) async fn disable(session: &Session, command: &Disable) -> Result<(), Failure> {
    let (namespace, dry) = (command.name.as_str(), command.dry.dry_run);
    check_exists(session, namespace).await?;
    // The label goes first, so that the API server asks Nudge nothing that it may no longer answer.
    if dry != DryRun::Client {
        set_labels(session, namespace, &json!({labels::ENABLED: null, labels::BASELINE: null}), dry).await?;
    }
    session.out.line(&format!("namespace/{namespace} disabled{}", dry.suffix()))?;
    for (role, _) in BINDINGS {
        delete(session, namespace, role, dry).await?;
    }
    Ok(())
}

async fn check_exists(session: &Session, namespace: &str) -> Result<(), Failure> {
    let namespaces: Api<Namespace> = Api::all(session.client.clone());
    match namespaces.get_opt(namespace).await.map_err(doing(format!("reading namespace {namespace}")))? {
        Some(_) => Ok(()),
        None => Err(Failure::new(format!(
            "there is no namespace {namespace}; create it with kubectl create namespace {namespace}"
        ))),
    }
}

/// Returns the labels that the flags request. A label that another run has set stays.
fn labels_of(command: &Enable) -> Value {
    let baseline = match command.baseline {
        Some(BaselineScope::Mounted) => "mounted",
        Some(BaselineScope::All) => "all",
        None => return json!({labels::ENABLED: "true"}),
    };
    json!({labels::ENABLED: "true", labels::BASELINE: baseline})
}

async fn set_labels(session: &Session, namespace: &str, labels: &Value, dry: DryRun) -> Result<(), Failure> {
    let namespaces: Api<Namespace> = Api::all(session.client.clone());
    let patch = json!({"metadata": {"labels": labels}});
    let result = namespaces.patch(namespace, &patching(dry), &Patch::Merge(&patch)).await;
    result.map(drop).map_err(doing(format!("labelling namespace {namespace}")))
}

async fn apply(
    session: &Session,
    namespace: &str,
    name: &str,
    binding: &RoleBinding,
    dry: DryRun,
) -> Result<(), Failure> {
    if dry != DryRun::Client {
        let api: Api<RoleBinding> = Api::namespaced(session.client.clone(), namespace);
        let params = PatchParams { force: true, ..patching(dry) };
        let result = api.patch(name, &params, &Patch::Apply(binding)).await;
        result.map_err(doing(format!("applying rolebinding {name} in namespace {namespace}")))?;
    }
    session.out.line(&format!("rolebinding.{RBAC}/{name} applied{}", dry.suffix()))
}

async fn delete(session: &Session, namespace: &str, name: &str, dry: DryRun) -> Result<(), Failure> {
    let api: Api<RoleBinding> = Api::namespaced(session.client.clone(), namespace);
    let existing = api.get_metadata_opt(name).await.map_err(doing(format!("reading rolebinding {name}")))?;
    if existing.is_none() {
        return Ok(());
    }
    if dry != DryRun::Client {
        let deleted = api.delete(name, &deleting(dry)).await;
        deleted.map_err(doing(format!("deleting rolebinding {name} in namespace {namespace}")))?;
    }
    session.out.line(&format!("rolebinding.{RBAC}/{name} deleted{}", dry.suffix()))
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
        assert_eq!(roles("enable shop --no-restart"), base);
        assert_eq!(roles("enable shop --baseline"), [&base[..], &["nudge-restart"]].concat());
        let expected = [&base[..], &["nudge-secrets", "nudge-secrets-hub"]].concat();
        assert_eq!(roles("enable shop --secrets --no-restart"), expected);
        let subjects = binding("nudge-secrets-hub", "shop", ("system", HUB)).subjects.unwrap();
        assert_eq!((subjects[0].namespace.as_deref(), subjects[0].name.as_str()), (Some("system"), "nudge-hub"));
        assert!(Line::try_parse_from(["enable", "shop", "--secrets=one"]).is_err(), "all or none");
    }
}
