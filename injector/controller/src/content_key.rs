//! The key of digests of Secrets: in a Secret of Nudge's own namespace, created by the first replica.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;
use kube::{Api, Client};
use nudge_cluster::call::{CallError, call};
use rand::TryRng;
use ring::hmac;
use zeroize::Zeroizing;

/// Key in the Secret's data.
const KEY: &str = "key";
const BYTES: usize = 32;

/// Why the key can't be read.
#[derive(Debug, thiserror::Error)]
pub enum ContentKeyError {
    /// The API server refused or could not be reached.
    #[error(transparent)]
    Call(#[from] CallError),
    /// It is damaged. It is not replaced: the digests of all versions with Secrets were made with it.
    #[error(
        "Secret {namespace}/{name} does not hold a key of {BYTES} bytes; restore it, or delete it: versions with Secret parts must then be created anew"
    )]
    Damaged {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// No randomness.
    #[error("the operating system gives no random bytes")]
    Random(#[source] rand::rngs::SysError),
}

/// Reads the key, or creates it.
pub async fn content_key(client: Client, namespace: &str, name: &str) -> Result<hmac::Key, ContentKeyError> {
    let api: Api<Secret> = Api::namespaced(client, namespace);
    let what = |verb: &str| format!("{verb} Secret {namespace}/{name}");
    let mut found = call(|| what("reading"), api.get_opt(name)).await?;
    if found.is_none() {
        let mut bytes = Zeroizing::new([0; BYTES]);
        rand::rngs::SysRng.try_fill_bytes(&mut *bytes).map_err(ContentKeyError::Random)?;
        let mut secret = Secret { immutable: Some(true), ..Secret::default() };
        secret.metadata.name = Some(name.to_owned());
        secret.metadata.labels = Some([("app.kubernetes.io/name".to_owned(), "nudge".to_owned())].into());
        secret.data = Some([(KEY.to_owned(), ByteString(bytes.to_vec()))].into());
        found = match call(|| what("creating"), api.create(&PostParams::default(), &secret)).await {
            Ok(made) => Some(made),
            Err(error) if error.code() == 409 => call(|| what("reading"), api.get_opt(name)).await?,
            Err(error) => return Err(error.into()),
        };
    }
    let data = found.and_then(|secret| secret.data).and_then(|mut data| data.remove(KEY));
    let bytes = Zeroizing::new(data.map(|data| data.0).unwrap_or_default());
    if bytes.len() != BYTES {
        return Err(ContentKeyError::Damaged { namespace: namespace.to_owned(), name: name.to_owned() });
    }
    Ok(hmac::Key::new(hmac::HMAC_SHA256, &bytes))
}
