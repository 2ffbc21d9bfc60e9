//! The key of digests of Secrets: made once by the role certs, in a Secret of Nudge's own namespace that the others mount.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;
use kube::{Api, Client};
use nudge_cluster::call::{CallError, call};
use nudge_protocol::error_chain::chain;
use rand::TryRng as _;
use ring::hmac;
use zeroize::{Zeroize as _, Zeroizing};

use super::options::{KeySource, Options};
use super::waiting::Waiting;

/// Key in the Secret's data.
const KEY: &str = "key";
const BYTES: usize = 32;

/// Why the key can't be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum ContentKeyError {
    /// It is damaged. It is not replaced: the digests of all versions with Secrets were made with it.
    #[error(
        "{place} does not hold a key of {BYTES} bytes; restore Secret nudge-content-key, or delete it and apply Nudge again: versions \
         with Secret parts must then be created again"
    )]
    Damaged {
        /// The Secret or file.
        place: String,
    },
    /// The file can't be read.
    #[error("can't read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// No randomness.
    #[error("the operating system gives no random bytes")]
    Random(#[source] rand::rngs::SysError),
}

/// Makes the key for others, who read it as a file. Certificates and their rotation do not depend on it, so nothing ends this.
pub(super) async fn keep(client: Client, options: Options) {
    until_usable(|| start(&client, &options)).await;
    std::future::pending::<()>().await;
}

async fn until_usable<F>(read: impl Fn() -> F)
where
    F: Future<Output = Result<hmac::Key, ContentKeyError>>,
{
    let mut waiting = Waiting::default();
    while let Err(error) = read().await {
        waiting.pause("the content key can't be used; trying again", &chain(&error)).await;
    }
}

/// Waits for the key, or makes it. Where nothing is keyed it never comes.
pub(super) async fn start(client: &Client, options: &Options) -> Result<hmac::Key, ContentKeyError> {
    match &options.content_key {
        Some(KeySource::File(path)) => from_file(path).await,
        Some(KeySource::Secret(name)) => kept(client, &options.namespace, name).await,
        None => std::future::pending().await,
    }
}

/// Reads the key as soon as it is there.
async fn from_file(path: &Path) -> Result<hmac::Key, ContentKeyError> {
    let mut waiting = Waiting::default();
    loop {
        match std::fs::read(path) {
            Ok(bytes) => return key(&Zeroizing::new(bytes), || path.display().to_string()),
            Err(source) => {
                let missing = source.kind() == io::ErrorKind::NotFound;
                let error = ContentKeyError::Read { path: path.to_owned(), source };
                if !missing {
                    return Err(error);
                }
                waiting.pause("waiting for the content key", &chain(&error)).await;
            }
        }
    }
}

/// Reads the key, and makes it where the Secret is empty. Retries for as long as the API server is away: a pod that starts before it
/// must not crash in a loop.
async fn kept(client: &Client, namespace: &str, name: &str) -> Result<hmac::Key, ContentKeyError> {
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let mut waiting = Waiting::default();
    loop {
        let error = match call(|| format!("reading Secret {namespace}/{name}"), api.get(name)).await {
            Ok(mut secret) => match secret.data.as_mut().and_then(|data| data.remove(KEY)) {
                Some(bytes) if !bytes.0.is_empty() => {
                    return key(&Zeroizing::new(bytes.0), || format!("Secret {namespace}/{name}"));
                }
                _ => fill(&api, secret, namespace).await?,
            },
            Err(error) => Some(error),
        };
        // Otherwise it is read again, as it is stored.
        if let Some(error) = error {
            waiting.pause("waiting for the Secret of the content key", &chain(&error)).await;
        }
    }
}

/// Writes a new key into the Secret as it was read. Gives the refusal where somebody else wrote first, or the API server is away.
async fn fill(api: &Api<Secret>, mut secret: Secret, namespace: &str) -> Result<Option<CallError>, ContentKeyError> {
    let mut bytes = Zeroizing::new([0; BYTES]);
    rand::rngs::SysRng.try_fill_bytes(&mut *bytes).map_err(ContentKeyError::Random)?;
    let name = secret.metadata.name.clone().unwrap_or_default();
    secret.immutable = Some(true);
    secret.data = Some([(KEY.to_owned(), ByteString(bytes.to_vec()))].into());
    let parameters = PostParams { field_manager: Some("nudge-controller".to_owned()), ..PostParams::default() };
    let writing = || format!("writing Secret {namespace}/{name}");
    let written = call(writing, api.replace(&name, &parameters, &secret)).await;
    secret.data.iter_mut().flat_map(BTreeMap::values_mut).for_each(|value| value.0.zeroize());
    if written.is_ok() {
        tracing::info!(secret = name, "content key created");
    }
    Ok(written.err())
}

fn key(bytes: &[u8], place: impl FnOnce() -> String) -> Result<hmac::Key, ContentKeyError> {
    if bytes.len() == BYTES {
        Ok(hmac::Key::new(hmac::HMAC_SHA256, bytes))
    } else {
        Err(ContentKeyError::Damaged { place: place() })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_missing_file_is_waited_for_and_a_short_one_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let of = path.clone();
        let mut reading = tokio::spawn(async move { from_file(&of).await.map(drop) });
        assert!(tokio::time::timeout(Duration::from_mins(1), &mut reading).await.is_err(), "it waits");
        std::fs::write(&path, [7; BYTES - 1]).unwrap();
        let error = reading.await.unwrap().unwrap_err().to_string();
        assert!(error.contains("32 bytes") && error.contains(&*path.to_string_lossy()), "{error}");
        std::fs::write(&path, [7; BYTES]).unwrap();
        from_file(&path).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_damaged_key_ends_nothing_and_a_repaired_one_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        std::fs::write(&path, [7; BYTES - 1]).unwrap();
        let of = path.clone();
        let mut kept = tokio::spawn(async move { until_usable(|| from_file(&of)).await });
        assert!(tokio::time::timeout(Duration::from_mins(1), &mut kept).await.is_err(), "it waits");
        std::fs::write(&path, [7; BYTES]).unwrap();
        kept.await.unwrap();
    }
}
