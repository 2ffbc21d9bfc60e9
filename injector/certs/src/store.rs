//! Reads and writes a Secret of the certificates, always with its resource version. Nudge never creates the Secret, so
//! it needs no right to do so.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;
use kube::core::ObjectMeta;
use kube::{Api, Client};
use nudge_cluster::call::{CallError, call};
use nudge_cluster::part_objects::WipedSecret;
use zeroize::Zeroizing;

use super::stored::Entries;

/// The type of Secrets with certificates of other programs.
const TLS_TYPE: &str = "kubernetes.io/tls";
/// The field manager of writes.
const FIELD_MANAGER: &str = "nudge-controller";

/// The reason why the Secret can't be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The API server refused the call or could not be reached.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The Secret does not exist.
    #[error(
        "Secret {0} does not exist, and Nudge may not create Secrets; apply deploy/base again, which has it without data"
    )]
    Missing(String),
    /// The Secret belongs to somebody else.
    #[error(
        "Secret {0} has type kubernetes.io/tls, so Nudge did not make it and leaves it alone; to use its certificate, mount it \
         and set NUDGE_CERTIFICATE_DIR"
    )]
    Foreign(String),
}

/// The Secret as it was read.
#[derive(Clone, Debug, Default)]
pub struct StoredSecret {
    /// The metadata, with the resource version.
    pub metadata: ObjectMeta,
    /// The entries by their names.
    pub entries: Entries,
}

/// The outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// The entries are stored.
    Done,
    /// Somebody else wrote first, so the Secret must be read again.
    Conflict,
}

/// A store of certificates.
pub trait SecretStore: Send + Sync + 'static {
    /// Reads the stored Secret.
    fn read(&self) -> impl Future<Output = Result<StoredSecret, StoreError>> + Send;

    /// Stores the entries if the store has not changed since it was read.
    fn replace(
        &self,
        previous: StoredSecret,
        entries: Entries,
    ) -> impl Future<Output = Result<WriteOutcome, StoreError>> + Send;
}

/// A Secret in the cluster.
#[derive(Clone)]
pub struct KubeSecret {
    api: Api<Secret>,
    namespace: String,
    name: String,
}

impl KubeSecret {
    /// Makes a store in the Secret of this name.
    pub fn new(client: Client, namespace: &str, name: &str) -> Self {
        let api = Api::namespaced(client, namespace);
        Self { api, namespace: namespace.to_owned(), name: name.to_owned() }
    }

    fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

impl SecretStore for KubeSecret {
    async fn read(&self) -> Result<StoredSecret, StoreError> {
        let reading = || format!("reading Secret {}", self.full_name());
        let secret = call(reading, self.api.get_opt(&self.name)).await?;
        let Some(secret) = secret else { return Err(StoreError::Missing(self.full_name())) };
        if secret.type_.as_deref() == Some(TLS_TYPE) {
            return Err(StoreError::Foreign(self.full_name()));
        }
        let entries = secret.data.unwrap_or_default().into_iter();
        let entries = entries.map(|(name, value)| (name, Zeroizing::new(value.0))).collect();
        Ok(StoredSecret { metadata: secret.metadata, entries })
    }

    async fn replace(&self, previous: StoredSecret, entries: Entries) -> Result<WriteOutcome, StoreError> {
        let data = entries.iter().map(|(name, value)| (name.clone(), ByteString(value.to_vec()))).collect();
        let (metadata, type_) = (previous.metadata, Some("Opaque".to_owned()));
        let secret = WipedSecret(Secret { metadata, data: Some(data), type_, ..Secret::default() });
        let parameters = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let replacing = || format!("replacing Secret {}", self.full_name());
        let result = call(replacing, self.api.replace(&self.name, &parameters, &secret.0)).await;
        // The buffers of the client are out of reach.
        match result.map(WipedSecret) {
            Ok(_) => Ok(WriteOutcome::Done),
            // The Secret was deleted meanwhile, if it is not there.
            Err(error) if error.is_conflict() || error.code() == Some(404) => Ok(WriteOutcome::Conflict),
            Err(error) => Err(error.into()),
        }
    }
}
