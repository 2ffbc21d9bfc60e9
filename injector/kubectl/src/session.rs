//! The API server, the namespace, and where results go.

use std::time::Duration;

use clap::Args;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::core::Status;
use kube::{Api, Client, Config, Resource};
use nudge_api::VersionedConfig;
use nudge_cluster::kubeconfig::{no_client, none_found, unusable};
use tokio::time::timeout;

use super::arguments::DryRun;
use super::failure::Failure;
use super::output::Output;

/// In the name of whom fields are written. Not `kubectl…`: Flux drops fields of managers that are called so.
pub(super) const FIELD_MANAGER: &str = "nudge-cli";

/// How long the search for the reason of a failure may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// Which cluster and namespace: kubectl's own flags.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct Connection {
    /// The namespace; by default the context's
    #[arg(short, long, global = true, value_name = "NAMESPACE", help_heading = "Cluster")]
    pub(super) namespace: Option<String>,
    /// The context of the kubeconfig; by default its current one
    #[arg(long, global = true, value_name = "NAME", help_heading = "Cluster")]
    pub(super) context: Option<String>,
    /// The kubeconfig file; by default $KUBECONFIG, then ~/.kube/config, then the pod's own account
    #[arg(long, global = true, value_name = "FILE", help_heading = "Cluster")]
    pub(super) kubeconfig: Option<std::path::PathBuf>,
}

/// See the module's text.
pub(super) struct Session {
    pub(super) client: Client,
    pub(super) namespace: String,
    pub(super) out: Output,
}

impl Session {
    /// Reads the kubeconfig. Nothing is asked yet.
    pub(super) async fn connect(connection: &Connection, out: Output) -> Result<Self, Failure> {
        let known = "see kubectl config get-contexts";
        let options = KubeConfigOptions { context: connection.context.clone(), ..KubeConfigOptions::default() };
        let config = match &connection.kubeconfig {
            Some(file) => {
                let fault = |error: &KubeconfigError| {
                    Failure::new(format!("--kubeconfig {}: {}", file.display(), unusable(error)))
                };
                let read = Kubeconfig::read_from(file).map_err(|error| fault(&error))?;
                Config::from_custom_kubeconfig(read, &options).await.map_err(|error| fault(&error))?
            }
            None if connection.context.is_some() => Config::from_kubeconfig(&options)
                .await
                .map_err(|error| Failure::new(format!("--context: {}; {known}", unusable(&error))))?,
            None => Config::infer().await.map_err(|error| {
                let why = none_found(&error);
                Failure::new(format!("{why}; name a kubeconfig file with --kubeconfig or $KUBECONFIG"))
            })?,
        };
        let namespace = connection.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let client = Client::try_from(config)
            .map_err(|error| Failure::new(format!("preparing to ask the API server: {}", no_client(&error))))?;
        Ok(Self { client, namespace, out })
    }

    /// The objects of a kind in the namespace.
    pub(super) fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The config of this name, or nothing.
    pub(super) async fn find_config(&self, name: &str) -> Result<Option<VersionedConfig>, Failure> {
        match self.api::<VersionedConfig>().get(name).await {
            Ok(config) => Ok(Some(config)),
            // Only an answer about an object names it: a cluster without Nudge says 404 too.
            Err(kube::Error::Api(status)) if status.code == 404 && names_an_object(&status) => Ok(None),
            Err(error) => Err(Failure::of(&format!("reading config {name}"), &error)),
        }
    }

    /// That there is no such namespace, if the API server says so: it explains whatever else has failed.
    pub(super) async fn without_namespace(&self) -> Option<Failure> {
        let namespaces = Api::<Namespace>::all(self.client.clone());
        let asked = timeout(PATIENCE, namespaces.get_opt(&self.namespace)).await;
        let message = format!(
            "there is no namespace {}; choose one of kubectl get namespaces with -n, or create it",
            self.namespace
        );
        matches!(asked, Ok(Ok(None))).then(|| Failure::new(message))
    }

    /// The config of this name.
    pub(super) async fn config(&self, name: &str) -> Result<VersionedConfig, Failure> {
        self.find_config(name).await?.ok_or_else(|| {
            Failure::new(format!(
                "there is no config {name} in namespace {}; see kubectl nudge status, or make it with kubectl nudge create",
                self.namespace
            ))
        })
    }
}

fn names_an_object(status: &Status) -> bool {
    status.details.as_ref().is_some_and(|details| !details.name.is_empty())
}

/// For creation.
pub(super) fn creating(dry: DryRun) -> PostParams {
    PostParams { dry_run: dry == DryRun::Server, field_manager: Some(FIELD_MANAGER.to_owned()) }
}

/// For patches.
pub(super) fn patching(dry: DryRun) -> PatchParams {
    PatchParams {
        dry_run: dry == DryRun::Server,
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

/// For deletion.
pub(super) fn deleting(dry: DryRun) -> DeleteParams {
    DeleteParams { dry_run: dry == DryRun::Server, ..DeleteParams::default() }
}
