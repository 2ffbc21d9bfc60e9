//! The connection to the API server, the namespace, and the output.

use std::fmt::Debug;
use std::time::Duration;

use clap::Args;
use hyper::Response;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::client::ClientBuilder;
use kube::core::{DynamicObject, Status};
use kube::{Api, Client, Resource};
use nudge_api::{PartKind, VersionedConfig};
use nudge_cluster::kubeconfig::client_fault;
use nudge_cluster::part_objects::{part_resource, read_part};
use nudge_core::publish::PublishedObject;
use nudge_core::versions::object_name;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::timeout;
use tower::util::MapResponseLayer;

use crate::cluster;
use crate::dry_run::DryRun;
use crate::failure::{Failure, doing};
use crate::output::Output;
use crate::warnings::warnings;

/// The field manager of all writes. It does not begin with `kubectl`, because Flux drops the fields of such managers.
pub(crate) const FIELD_MANAGER: &str = "nudge-cli";

/// The time that the check for a missing namespace may take after a failure.
const NAMESPACE_CHECK_TIMEOUT: Duration = Duration::from_secs(2);

/// A kind of objects that have a namespace.
pub(crate) trait NamespacedKind:
    Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static
{
}

impl<K> NamespacedKind for K where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static
{
}

/// The flags of kubectl that choose the cluster and the namespace.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ConnectionOptions {
    /// The namespace; by default the namespace of the context
    #[arg(short, long, global = true, value_name = "NAMESPACE", help_heading = "Cluster")]
    pub(crate) namespace: Option<String>,
    /// The context of the kubeconfig; by default the current context
    #[arg(long, global = true, value_name = "NAME", help_heading = "Cluster")]
    pub(crate) context: Option<String>,
    /// The kubeconfig file; by default $KUBECONFIG, then ~/.kube/config, then the pod's own account
    #[arg(long, global = true, value_name = "FILE", help_heading = "Cluster")]
    pub(crate) kubeconfig: Option<std::path::PathBuf>,
}

/// The connection and the output of a command.
#[derive(Clone)]
pub(crate) struct Session {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) out: Output,
}

impl Session {
    /// Reads the kubeconfig. Sends no request yet.
    pub(crate) fn connect(connection: &ConnectionOptions, out: Output) -> Result<Self, Failure> {
        let config = cluster::config(connection.kubeconfig.as_deref(), connection.context.as_deref())?;
        let namespace = connection.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let warnings_out = out.clone();
        let client = ClientBuilder::try_from(config)
            .map_err(|error| Failure::new(format!("connecting to the API server: {}", client_fault(&error))))?
            .with_layer(&MapResponseLayer::new(move |response: Response<_>| {
                for text in warnings(response.headers()) {
                    warnings_out.warn(&text);
                }
                response
            }))
            .build();
        Ok(Self { client, namespace, out })
    }

    /// Returns the API for the objects of a kind in the namespace.
    pub(crate) fn api<K: NamespacedKind>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Returns the API for the objects of a kind of parts in the namespace, whatever they hold.
    pub(crate) fn parts(&self, kind: PartKind) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, &part_resource(kind))
    }

    /// Reads a ConfigMap or Secret with its content, if it exists.
    pub(crate) async fn read_part(&self, kind: PartKind, name: &str) -> Result<Option<PublishedObject>, Failure> {
        let object = read_part::<ConfigMap, Secret>(&self.client, &self.namespace, kind, name).await;
        object.map_err(doing(format!("reading {}", object_name(kind, name))))
    }

    /// Lists the objects of a kind in the namespace; messages call them `plural`.
    pub(crate) async fn list<K: NamespacedKind>(&self, plural: &str) -> Result<Vec<K>, Failure> {
        let list = self.api::<K>().list(&ListParams::default()).await;
        Ok(list.map_err(doing(format!("listing {plural}")))?.items)
    }

    /// Changes an object by a merge patch, unless this is a dry run on the client. `context` names the attempt.
    pub(crate) async fn merge<K: NamespacedKind>(
        &self,
        name: &str,
        patch: &Value,
        dry: DryRun,
        context: String,
    ) -> Result<(), Failure> {
        if dry != DryRun::Client {
            self.api::<K>().patch(name, &patching(dry), &Patch::Merge(patch)).await.map_err(doing(context))?;
        }
        Ok(())
    }

    /// Reads the config, if it exists.
    pub(crate) async fn find_config(&self, name: &str) -> Result<Option<VersionedConfig>, Failure> {
        match self.api::<VersionedConfig>().get(name).await {
            Ok(config) => Ok(Some(config)),
            // A cluster without Nudge answers 404 too, but names no object.
            Err(kube::Error::Api(status)) if status.code == 404 && names_an_object(&status) => Ok(None),
            Err(error) => Err(Failure::of(&format!("reading config {name}"), &error)),
        }
    }

    /// Returns the failure for a namespace that does not exist, if the API server confirms it.
    pub(crate) async fn missing_namespace(&self) -> Option<Failure> {
        let namespaces = Api::<Namespace>::all(self.client.clone());
        let answer = timeout(NAMESPACE_CHECK_TIMEOUT, namespaces.get_opt(&self.namespace)).await;
        let message = format!(
            "there is no namespace {}; choose another one with -n (see kubectl get namespaces), or create it",
            self.namespace
        );
        matches!(answer, Ok(Ok(None))).then(|| Failure::new(message))
    }

    /// Reads the config, which must exist.
    pub(crate) async fn config(&self, name: &str) -> Result<VersionedConfig, Failure> {
        self.find_config(name).await?.ok_or_else(|| {
            Failure::new(format!(
                "there is no config {name} in namespace {}; see kubectl nudge status, or create it with kubectl nudge create",
                self.namespace
            ))
        })
    }
}

/// Returns whether the status concerns an object, and not a kind that the cluster does not know.
pub(crate) fn names_an_object(status: &Status) -> bool {
    status.details.as_ref().is_some_and(|details| !details.name.is_empty())
}

/// Returns the parameters of a create request.
pub(crate) fn creating(dry: DryRun) -> PostParams {
    PostParams { dry_run: dry == DryRun::Server, field_manager: Some(FIELD_MANAGER.to_owned()) }
}

/// Returns the parameters of a patch request.
pub(crate) fn patching(dry: DryRun) -> PatchParams {
    PatchParams {
        dry_run: dry == DryRun::Server,
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

/// Returns the parameters of a delete request.
pub(crate) fn deleting(dry: DryRun) -> DeleteParams {
    DeleteParams { dry_run: dry == DryRun::Server, ..DeleteParams::default() }
}
