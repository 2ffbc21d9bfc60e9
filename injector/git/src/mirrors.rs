//! The mirrors in a folder, one for each repository and credential. The least recently used are removed first.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use nudge_core::remote::Revision;
use nudge_outbound::{Authorities, ConnectError, authorities_from_pem, connect, resolve, system_authorities};
use nudge_protocol::limits::MAX_DICTIONARY_BYTES;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::OwnedMutexGuard;
use tokio::task::JoinHandle;
use zeroize::Zeroizing;

use crate::app::{self, AppToken};
use crate::commit_signer;
use crate::credential::{Credential, basic_authorization, cache_name};
use crate::error::GitError;
use crate::lfs;
use crate::mirror::{self, Mirror, MirrorKind, check_file};
use crate::program::{Programs, bytes_in};
use crate::reference::{ResolvedRef, find_revision};
use crate::request::{Commit, FetchRequest};
use crate::session::Session;
use crate::tree::{TreeEntry, TreeEntryKind};

/// The maximum duration of a fetch.
const FETCH_TIMEOUT: Duration = Duration::from_mins(2);
/// The maximum number of mirrors. All of them are walked after each fetch that changed a mirror.
const MAX_MIRRORS: usize = 256;
/// The maximum bytes of one mirror.
pub const MAX_MIRROR_BYTES: u64 = 2 * 1024 * 1024 * 1024;
/// The prefix of the names of mirror folders.
const PREFIX: &str = "1-";
/// The suffix of the names of mirror folders that hold whole commits.
const WHOLE_SUFFIX: &str = "-whole";

/// The locks of the mirrors, by the names of the mirrors.
type Locks = Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>;

/// The mirrors in a folder. The folder is for mirrors alone: if it has too many bytes, other files are removed first.
pub struct Mirrors {
    directory: PathBuf,
    max_bytes: u64,
    timeout: Duration,
    locks: Arc<Locks>,
    /// The bytes of all mirrors on the disk, as of the last walk.
    bytes: Arc<AtomicU64>,
    tokens: Mutex<HashMap<String, AppToken>>,
}

/// A fetch that holds the lock of its mirror. When it ends, even by cancellation, the bytes of the mirrors are counted
/// and surplus mirrors are removed.
struct FetchInProgress<'a> {
    mirrors: &'a Mirrors,
    lock: Option<OwnedMutexGuard<()>>,
}

impl FetchInProgress<'_> {
    /// Begins to prune the mirrors. This fetch's mirror stays locked until the pruning is done.
    fn prune(&mut self) -> Option<JoinHandle<()>> {
        let (lock, runtime) = (self.lock.take()?, Handle::try_current().ok()?);
        let Mirrors { directory, locks, max_bytes, bytes, .. } = self.mirrors;
        let (directory, locks, max_bytes, bytes) =
            (directory.clone(), Arc::clone(locks), *max_bytes, Arc::clone(bytes));
        // Pruning walks all mirrors.
        Some(runtime.spawn_blocking(move || {
            bytes.store(prune(&directory, &locks, max_bytes), Ordering::Relaxed);
            drop(lock);
        }))
    }
}

impl Drop for FetchInProgress<'_> {
    fn drop(&mut self) {
        drop(self.prune());
    }
}

impl Mirrors {
    /// Opens the mirrors below `directory`, of at most `max_bytes` together.
    pub fn new(directory: PathBuf, max_bytes: u64) -> Self {
        // A killed process left folders with keys.
        let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
        let private = entries.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(b"run-"));
        private.for_each(|entry| drop(mirror::remove(&entry.path())));
        let bytes = Arc::new(AtomicU64::new(bytes_in(&directory)));
        Self { directory, max_bytes, timeout: FETCH_TIMEOUT, locks: Arc::default(), bytes, tokens: Mutex::default() }
    }

    /// Sets the maximum duration of a fetch.
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Returns the bytes on disk of all mirrors, as of the last fetch that changed a mirror.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Fetches the files of a repository, or returns `None` if its revision is the commit `known`, which the caller
    /// has. The caller limits the number of fetches at the same time: each may take two minutes, 2 GiB of disk, and 256
    /// MiB of memory for each process.
    pub async fn fetch(&self, request: &FetchRequest<'_>, known: Option<&str>) -> Result<Option<Commit>, GitError> {
        request.check()?;
        if matches!(request.revision, Revision::Commit(id) if Some(id.as_str()) == known) {
            return Ok(None);
        }
        let name = cache_name(&request.url.to_string(), request.credential);
        let lock = lock_of(&self.locks, &name).lock_owned().await;
        let mut in_progress = FetchInProgress { mirrors: self, lock: Some(lock) };
        let result = tokio::time::timeout(self.timeout, self.fetch_locked(request, known, &name)).await;
        if matches!(result, Ok(Ok(None))) {
            in_progress.lock = None;
        } else if let Some(pruning) = in_progress.prune() {
            let _ = pruning.await;
        }
        result.map_err(|_| GitError::TooSlow(self.timeout.as_secs()))?
    }

    async fn fetch_locked(
        &self,
        request: &FetchRequest<'_>,
        known: Option<&str>,
        name: &str,
    ) -> Result<Option<Commit>, GitError> {
        make_folder(&self.directory)?;
        let authorities = match request.ca {
            Some(pem) => authorities_from_pem(pem).ok_or(GitError::Ca)?,
            None => system_authorities(),
        };
        let result = self.fetch_once(request, known, name, &authorities).await;
        match (&result, request.credential) {
            (Err(GitError::Tls(host)), _) => Err(tls_cause(request, &authorities, host.clone()).await),
            // The server may have revoked the app's token early. Another token may then be accepted.
            (Err(GitError::Credential(_) | GitError::NotFound(_)), Credential::App(_)) => {
                let token = self.tokens.lock().remove(&cache_name("", request.credential));
                if token.is_none() { result } else { self.fetch_once(request, known, name, &authorities).await }
            }
            _ => result,
        }
    }

    /// Fetches into a mirror, and reads the commit. The loop ends: a partial mirror becomes a whole one once, if the
    /// server does not support partial ones, and a broken or overgrown mirror is made again once.
    async fn fetch_once(
        &self,
        request: &FetchRequest<'_>,
        known: Option<&str>,
        name: &str,
        authorities: &Authorities,
    ) -> Result<Option<Commit>, GitError> {
        let programs = Programs::find()?;
        let authorization = self.authorization(request, authorities).await?;
        let addresses = resolve(request.url.address(), request.reach).await?;
        let session = Session::begin(&programs, request, addresses, authorization.clone(), &self.directory)?;
        let resolved = match request.revision {
            Revision::Commit(id) => ResolvedRef::commit(id),
            revision => {
                let no_ref = || GitError::Ref(revision.to_string());
                find_revision(revision, &session.list_refs().await?).ok_or_else(no_ref)?
            }
        };
        if Some(resolved.commit.as_str()) == known {
            return Ok(None);
        }
        let partial_folder = self.directory.join(format!("{PREFIX}{name}"));
        let whole_folder = self.directory.join(format!("{PREFIX}{name}{WHOLE_SUFFIX}"));
        let mut kind = if whole_folder.exists() { MirrorKind::Whole } else { MirrorKind::Partial };
        let max_bytes = self.max_bytes.min(MAX_MIRROR_BYTES);
        let mut may_retry = true;
        loop {
            let folder = match kind {
                MirrorKind::Partial => &partial_folder,
                MirrorKind::Whole => &whole_folder,
            };
            let existed = folder.exists();
            let read = async {
                let mirror = Mirror::open(&session, request.url, folder, max_bytes, kind, &resolved.commit).await?;
                let lfs = lfs::Server { reach: request.reach, authorities, authorization: authorization.as_ref() };
                read_commit(&session, &mirror, request, resolved.clone(), &lfs).await
            };
            match read.await {
                Ok(commit) => return Ok(Some(commit).filter(|commit| Some(commit.id.as_str()) != known)),
                Err(GitError::NotPartial) if kind == MirrorKind::Partial => {
                    mirror::remove(folder)?;
                    kind = MirrorKind::Whole;
                }
                // Earlier commits alone may have made the mirror too large.
                Err(error)
                    if may_retry
                        && (error.is_of_mirror() || existed && matches!(error, GitError::TooLargeMirror(_))) =>
                {
                    mirror::remove(folder)?;
                    may_retry = false;
                }
                Err(error) => {
                    // A mirror that is too large, or does not fit, would only waste the disk.
                    if matches!(error, GitError::TooLargeMirror(_) | GitError::DiskFull) {
                        mirror::remove(folder)?;
                    }
                    return Err(error);
                }
            }
        }
    }

    /// Returns the value of the header `Authorization`.
    async fn authorization(
        &self,
        request: &FetchRequest<'_>,
        authorities: &Authorities,
    ) -> Result<Option<Zeroizing<String>>, GitError> {
        let FetchRequest { credential, reach, .. } = request;
        match credential {
            Credential::Anonymous | Credential::Ssh { .. } => Ok(None),
            Credential::Token { username, token } => {
                let is_sendable = |text: &str| !text.is_empty() && !text.contains(char::is_control);
                if !is_sendable(username) || username.contains(':') || !is_sendable(token) {
                    return Err(GitError::Token);
                }
                Ok(Some(basic_authorization(username, token)))
            }
            Credential::App(app) => {
                let (now, name) = (Timestamp::now(), cache_name("", credential));
                let cached = self.tokens.lock().get(&name).cloned();
                let token = if let Some(token) = cached.filter(|token| token.lasts(now)) {
                    token
                } else {
                    let token = app::fetch_token(app, reach, authorities, now).await?;
                    let mut tokens = self.tokens.lock();
                    tokens.insert(name, token.clone());
                    tokens.retain(|_, token| token.lasts(now));
                    token
                };
                Ok(Some(basic_authorization("x-access-token", &token.token)))
            }
        }
    }
}

/// Returns the lock of a mirror. Locks that nobody holds or awaits are dropped from the map.
fn lock_of(locks: &Locks, name: &str) -> Arc<tokio::sync::Mutex<()>> {
    let mut locks = locks.lock();
    locks.retain(|_, lock| Arc::strong_count(lock) > 1);
    let lock = locks.entry(name.to_owned()).or_default();
    Arc::clone(lock)
}

/// A mirror, or another file or folder in the mirrors' directory. The order is the order of removal.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct MirrorUse {
    last_used: SystemTime,
    path: PathBuf,
    bytes: u64,
}

/// Removes mirrors, the least recently used first, until the number and the bytes of the remaining mirrors are within
/// their limits. Mirrors in use are not removed. Returns the bytes of the remaining mirrors.
fn prune(directory: &Path, locks: &Locks, max_bytes: u64) -> u64 {
    let mut mirrors: Vec<MirrorUse> = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_mirror = entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes());
        let last_used = path.join("nudge-used").metadata().and_then(|metadata| metadata.modified());
        let last_used = last_used.ok().filter(|_| is_mirror).unwrap_or(SystemTime::UNIX_EPOCH);
        let bytes = if path.is_dir() { bytes_in(&path) } else { entry.metadata().map_or(0, |metadata| metadata.len()) };
        mirrors.push(MirrorUse { last_used, path, bytes });
    }
    mirrors.sort();
    let mut count = mirrors.len();
    let mut total = mirrors.iter().fold(0_u64, |sum, mirror| sum.saturating_add(mirror.bytes));
    for MirrorUse { path, bytes, .. } in mirrors {
        if total <= max_bytes && count <= MAX_MIRRORS {
            break;
        }
        let file_name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let name = file_name.strip_prefix(PREFIX).unwrap_or(&file_name);
        let name = name.strip_suffix(WHOLE_SUFFIX).unwrap_or(name);
        // While the lock is held, no fetch begins to use the mirror.
        let lock = lock_of(locks, name).try_lock_owned();
        if lock.is_ok() && !file_name.starts_with("run-") && mirror::remove(&path).is_ok() {
            (count, total) = (count.saturating_sub(1), total.saturating_sub(bytes));
        }
    }
    total
}

/// Finds out why the TLS handshake with the server fails, because git does not say so.
async fn tls_cause(request: &FetchRequest<'_>, authorities: &Authorities, host: String) -> GitError {
    match connect(request.url.address(), request.reach, authorities).await {
        Err(error @ ConnectError::Tls { .. }) => GitError::Connect(error),
        _ => GitError::Tls(host),
    }
}

/// Reads the wanted files of a commit from a mirror, which fetches missing objects.
async fn read_commit(
    session: &Session<'_>,
    mirror: &Mirror<'_>,
    request: &FetchRequest<'_>,
    resolved: ResolvedRef,
    lfs: &lfs::Server<'_>,
) -> Result<Commit, GitError> {
    let resolved = mirror.ensure_commit(resolved).await?;
    let id = resolved.commit.clone();
    let signer = match request.allowed_signers {
        Some(_) => Some(commit_signer::find_signer(session, mirror, &resolved).await?),
        None => None,
    };
    let time = parse_commit_time(&mirror.object("commit", &id).await?)?;
    let mut entries = entries_below(mirror, &id, request.path).await?;
    entries.retain(|entry| (request.is_wanted)(&entry.path));
    entries.iter().try_for_each(check_file)?;
    let ids: BTreeSet<&str> = entries.iter().map(|entry| entry.id.as_str()).collect();
    let blobs = mirror.blobs(&ids, MAX_DICTIONARY_BYTES).await?;
    let mut files = BTreeMap::new();
    let mut total = 0;
    for TreeEntry { id, path, .. } in &entries {
        let content = blobs.get(id).ok_or(GitError::Broken)?;
        // Many files may have the same content.
        total = content.len().saturating_add(total);
        if total > MAX_DICTIONARY_BYTES {
            return Err(GitError::TooLarge(MAX_DICTIONARY_BYTES));
        }
        files.insert(path.clone(), content.clone());
    }
    lfs.replace_pointers(session, mirror, request, &id, &mut files).await?;
    Ok(Commit { id, time, signer, files })
}

/// Returns the entries below a path, by their path from there.
async fn entries_below(mirror: &Mirror<'_>, commit: &str, path: &str) -> Result<Vec<TreeEntry>, GitError> {
    if path.is_empty() {
        return mirror.entries(commit).await;
    }
    let no_path = || GitError::NoPath { commit: commit.to_owned(), path: path.to_owned() };
    let entry = mirror.entry(commit, path).await?.ok_or_else(no_path)?;
    if entry.kind == TreeEntryKind::Folder {
        return mirror.entries(&entry.id).await;
    }
    check_file(&entry)?;
    let name = path.rsplit('/').next().unwrap_or(path).to_owned();
    Ok(vec![TreeEntry { path: name, ..entry }])
}

/// Parses the time of a commit.
pub fn parse_commit_time(commit: &[u8]) -> Result<Timestamp, GitError> {
    let text = String::from_utf8_lossy(commit);
    let line = text.lines().take_while(|line| !line.is_empty()).find_map(|line| line.strip_prefix("committer "));
    let second = line.and_then(|line| line.rsplit(' ').nth(1)).and_then(|second| second.parse().ok());
    second.and_then(|second| Timestamp::from_second(second).ok()).ok_or(GitError::Broken)
}

fn make_folder(folder: &Path) -> Result<(), GitError> {
    use std::os::unix::fs::DirBuilderExt as _;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(GitError::disk)
}
