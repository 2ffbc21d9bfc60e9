//! The keys of the installation. The role certs makes them once, in a Secret in Nudge's own namespace, and each other
//! role mounts the entries that it needs.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;
use kube::{Api, Client};
use nudge_cluster::call::{CallError, call};
use nudge_core::derived_keys::{CONTENT, ContentKey, KEY_BYTES, NOTES, NoteKey, ROOT, derive, entries};
use nudge_core::versions::{Contents, contents_of};
use nudge_protocol::error_chain::chain;
use rand::TryRng as _;
use zeroize::{Zeroize as _, Zeroizing};

use super::options::{KeySource, Options};
use super::waiting::Waiting;

/// The reason why a key can't be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum ContentKeyError {
    /// The key is damaged. Nudge does not replace it, because the digests of all versions with Secrets depend on it.
    #[error(
        "{place} does not hold a key of {KEY_BYTES} bytes; restore Secret nudge-content-key, or delete it and apply Nudge again: versions \
         with Secret parts must then be created again"
    )]
    Damaged { place: String },
    /// An entry belongs to another key.
    #[error(
        "{entry} of {place} does not follow from its key; restore Secret nudge-content-key, or delete it and create it again with the \
         right key alone"
    )]
    Stray { entry: &'static str, place: String },
    /// An entry is missing, and can't be added.
    #[error(
        "{place} is immutable and has no {entry}; read its key, delete it, and create it again with that key alone, not immutable: the \
         role certs adds the rest"
    )]
    Immutable { entry: &'static str, place: String },
    /// The file can't be read.
    #[error("can't read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// The operating system gives no random bytes.
    #[error("the operating system gives no random bytes")]
    Random(#[source] rand::rngs::SysError),
}

/// Makes the keys for other processes, which read them as files. Never returns, so that the rotation of certificates
/// continues even if the keys can't be made.
pub(super) async fn ensure_exists(client: Client, options: Options) {
    wait_until_usable(|| read(&client, &options, CONTENT)).await;
    std::future::pending::<()>().await;
}

async fn wait_until_usable<F>(read: impl Fn() -> F)
where
    F: Future<Output = Result<Zeroizing<Vec<u8>>, ContentKeyError>>,
{
    let mut waiting = Waiting::default();
    while let Err(error) = read().await {
        waiting.pause("the content key can't be used; trying again", &chain(&error)).await;
    }
}

/// Waits for the key of digests and seals, or makes it.
pub(super) async fn load_content_key(client: &Client, options: &Options) -> Result<ContentKey, ContentKeyError> {
    Ok(ContentKey::new(&read(client, options, CONTENT).await?))
}

/// Waits for the key of notes, or makes it.
pub(super) async fn load_note_key(client: &Client, options: &Options) -> Result<NoteKey, ContentKeyError> {
    Ok(NoteKey::new(&read(client, options, NOTES).await?))
}

/// Reads an entry. Never returns if the process needs no key.
async fn read(client: &Client, options: &Options, entry: &str) -> Result<Zeroizing<Vec<u8>>, ContentKeyError> {
    match &options.content_key {
        Some(KeySource::Folder(folder)) => read_file(&folder.join(entry)).await,
        Some(KeySource::Secret(name)) => Ok(derive(&read_or_create(client, &options.namespace, name).await?, entry)),
        None => std::future::pending().await,
    }
}

/// Reads a key from a file, as soon as it exists.
async fn read_file(path: &Path) -> Result<Zeroizing<Vec<u8>>, ContentKeyError> {
    let mut waiting = Waiting::default();
    loop {
        match std::fs::read(path) {
            Ok(bytes) => return check_length(Zeroizing::new(bytes), || path.display().to_string()),
            Err(source) => {
                let is_missing = source.kind() == io::ErrorKind::NotFound;
                let error = ContentKeyError::Read { path: path.to_owned(), source };
                if !is_missing {
                    return Err(error);
                }
                waiting.pause("waiting for the content key", &chain(&error)).await;
            }
        }
    }
}

/// Reads the root key, makes it if the Secret is empty, and adds the keys that are derived from it. Retries while the
/// API server can't be reached, so that a pod that starts before the API server does not crash in a loop.
async fn read_or_create(client: &Client, namespace: &str, name: &str) -> Result<Zeroizing<Vec<u8>>, ContentKeyError> {
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let place = format!("Secret {namespace}/{name}");
    let mut waiting = Waiting::default();
    loop {
        let error = match call(|| format!("reading {place}"), api.get(name)).await {
            Ok(mut secret) => {
                let stored = contents_of(None, secret.data.take());
                let root = match value(&stored, ROOT) {
                    Some(root) => check_length(root.clone(), || place.clone())?,
                    None => random_key()?,
                };
                if is_complete(&stored, &root, secret.immutable == Some(true), &place)? {
                    return Ok(root);
                }
                write(&api, secret, &root, &place).await.err()
            }
            Err(error) => Some(error),
        };
        // The Secret is read again after a write, to get the stored keys.
        if let Some(error) = error {
            waiting.pause("waiting for the Secret of the content key", &chain(&error)).await;
        }
    }
}

fn value<'a>(stored: &'a Contents, entry: &str) -> Option<&'a Zeroizing<Vec<u8>>> {
    stored.get(entry).filter(|bytes| !bytes.is_empty())
}

/// Returns whether the Secret has the root key and all keys that are derived from it. Fails if the Secret can't be
/// completed.
fn is_complete(stored: &Contents, root: &[u8], is_immutable: bool, place: &str) -> Result<bool, ContentKeyError> {
    let mut is_complete = true;
    for (entry, bytes) in entries(root) {
        match value(stored, entry) {
            Some(value) if *value == bytes => {}
            Some(_) => return Err(ContentKeyError::Stray { entry, place: place.to_owned() }),
            None if is_immutable => return Err(ContentKeyError::Immutable { entry, place: place.to_owned() }),
            None => is_complete = false,
        }
    }
    Ok(is_complete)
}

/// Writes all entries into the Secret. Fails if somebody has changed the Secret since it was read, or the API server
/// can't be reached.
async fn write(api: &Api<Secret>, mut secret: Secret, root: &[u8], place: &str) -> Result<(), CallError> {
    let name = secret.metadata.name.clone().unwrap_or_default();
    secret.immutable = Some(true);
    secret.data = Some(entries(root).map(|(entry, bytes)| (entry.to_owned(), ByteString(bytes.to_vec()))).into());
    let parameters = PostParams { field_manager: Some("nudge-controller".to_owned()), ..PostParams::default() };
    let result = call(|| format!("writing {place}"), api.replace(&name, &parameters, &secret)).await;
    secret.data.iter_mut().flat_map(BTreeMap::values_mut).for_each(|value| value.0.zeroize());
    result.map(|_| tracing::info!(secret = name, "content key written"))
}

fn random_key() -> Result<Zeroizing<Vec<u8>>, ContentKeyError> {
    let mut bytes = Zeroizing::new(vec![0; KEY_BYTES]);
    rand::rngs::SysRng.try_fill_bytes(&mut bytes).map_err(ContentKeyError::Random)?;
    Ok(bytes)
}

fn check_length(
    bytes: Zeroizing<Vec<u8>>,
    place: impl FnOnce() -> String,
) -> Result<Zeroizing<Vec<u8>>, ContentKeyError> {
    if bytes.len() == KEY_BYTES { Ok(bytes) } else { Err(ContentKeyError::Damaged { place: place() }) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_missing_file_is_waited_for_and_a_short_one_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let read_path = path.clone();
        let mut reading = tokio::spawn(async move { read_file(&read_path).await.map(drop) });
        assert!(tokio::time::timeout(Duration::from_mins(1), &mut reading).await.is_err(), "it waits");
        std::fs::write(&path, [7; KEY_BYTES - 1]).unwrap();
        let error = reading.await.unwrap().unwrap_err().to_string();
        assert!(error.contains("32 bytes") && error.contains(&*path.to_string_lossy()), "{error}");
        std::fs::write(&path, [7; KEY_BYTES]).unwrap();
        read_file(&path).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_damaged_key_ends_nothing_and_a_repaired_one_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        std::fs::write(&path, [7; KEY_BYTES - 1]).unwrap();
        let read_path = path.clone();
        let mut kept = tokio::spawn(async move { wait_until_usable(|| read_file(&read_path)).await });
        assert!(tokio::time::timeout(Duration::from_mins(1), &mut kept).await.is_err(), "it waits");
        std::fs::write(&path, [7; KEY_BYTES]).unwrap();
        kept.await.unwrap();
    }

    fn is_whole_with(entries: &[(&str, Vec<u8>)], root: u8, immutable: bool) -> Result<bool, String> {
        let there = entries.iter().map(|(entry, bytes)| ((*entry).to_owned(), Zeroizing::new(bytes.clone()))).collect();
        is_complete(&there, &[root; KEY_BYTES], immutable, "Secret a/b").map_err(|error| error.to_string())
    }

    #[test]
    fn what_follows_from_the_root_is_added_and_never_replaced() {
        let all = entries(&[7; KEY_BYTES]).map(|(entry, bytes)| (entry, bytes.to_vec()));
        assert_eq!(is_whole_with(&all, 7, true), Ok(true));
        let [root, content, notes] = all.clone();
        for part in [vec![], vec![root.clone()], vec![root.clone(), (CONTENT, Vec::new()), notes.clone()]] {
            assert_eq!(is_whole_with(&part, 7, false), Ok(false), "{part:?}");
            let error = is_whole_with(&part, 7, true).unwrap_err();
            assert!(error.starts_with("Secret a/b is immutable and has no "), "{error}");
        }
        for (entry, stray) in [("content", vec![content]), ("notes", vec![notes])] {
            let error = is_whole_with(&stray, 8, false).unwrap_err();
            assert!(error.starts_with(&format!("{entry} of Secret a/b does not follow from its key")), "{error}");
        }
        assert!(is_whole_with(&all, 8, false).is_err(), "another root");
    }
}
