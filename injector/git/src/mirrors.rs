//! All mirrors of a folder: one for each repository and credential, the least recently used of which go first.

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
use crate::credential::{Credential, basic, name_of};
use crate::error::GitError;
use crate::lfs;
use crate::mirror::{self, Mirror, as_file};
use crate::program::{Programs, bytes_in};
use crate::reference::{self, ResolvedRef};
use crate::request::{Commit, Fetched, Request};
use crate::session::Session;
use crate::tree::{Entry, Kind};

/// How long a fetch may take.
const FETCH_TIMEOUT: Duration = Duration::from_mins(2);
/// The maximum of mirrors that are kept. All of them are walked after each fetch that changed one.
const MAX_MIRRORS: usize = 256;
/// The most bytes of one mirror.
pub const MOST_MIRROR: u64 = 2 * 1024 * 1024 * 1024;
/// What the names of folders of this form begin with.
const PREFIX: &str = "1-";
/// What the names of those end with that hold whole commits.
const WHOLE: &str = "-whole";

/// A lock for each mirror.
type Locks = Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>;

/// The mirrors of a folder, which belongs to them: what else is in it is removed when there is too much.
pub struct Mirrors {
    directory: PathBuf,
    most: u64,
    time: Duration,
    locks: Arc<Locks>,
    /// What all of them take on the disk, as of the last walk.
    bytes: Arc<AtomicU64>,
    tokens: Mutex<HashMap<String, AppToken>>,
}

/// A fetch that holds its mirror. When it ends, and when nobody waits for it any more, what it has left is counted, and what is too much removed.
struct Fetching<'a> {
    mirrors: &'a Mirrors,
    held: Option<OwnedMutexGuard<()>>,
}

impl Fetching<'_> {
    /// Begins to tidy up. The mirror is held until that is done.
    fn tidied(&mut self) -> Option<JoinHandle<()>> {
        let (held, runtime) = (self.held.take()?, Handle::try_current().ok()?);
        let Mirrors { directory, locks, most, bytes, .. } = self.mirrors;
        let (directory, locks, most, bytes) = (directory.clone(), Arc::clone(locks), *most, Arc::clone(bytes));
        // It walks all mirrors.
        Some(runtime.spawn_blocking(move || {
            bytes.store(tidy(&directory, &locks, most), Ordering::Relaxed);
            drop(held);
        }))
    }
}

impl Drop for Fetching<'_> {
    fn drop(&mut self) {
        drop(self.tidied());
    }
}

impl Mirrors {
    /// The mirrors below `directory`, of at most `most_bytes` together.
    pub fn new(directory: PathBuf, most_bytes: u64) -> Self {
        // Keys of a process that was killed.
        let left = fs::read_dir(&directory)
            .into_iter()
            .flatten()
            .flatten()
            .filter(|entry| entry.file_name().as_encoded_bytes().starts_with(b"run-"));
        left.for_each(|entry| drop(mirror::remove(&entry.path())));
        let bytes = Arc::new(AtomicU64::new(bytes_in(&directory)));
        Self {
            directory,
            most: most_bytes,
            time: FETCH_TIMEOUT,
            locks: Arc::default(),
            bytes,
            tokens: Mutex::default(),
        }
    }

    /// Sets how long one fetch may take.
    #[must_use]
    pub fn within(self, time: Duration) -> Self {
        Self { time, ..self }
    }

    /// The bytes on disk of all mirrors, after the last fetch that changed one.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The files of a repository, unless its revision is the commit that the caller knows with the same path. The caller bounds how many are
    /// fetched at the same time: each may take two minutes, 2 GiB of disk, and 256 MiB of memory for each process.
    pub async fn fetch(&self, request: &Request<'_>, known: Option<&str>) -> Result<Fetched, GitError> {
        request.check()?;
        if matches!(request.revision, Revision::Commit(id) if Some(id.as_str()) == known) {
            return Ok(Fetched::Unchanged);
        }
        let name = name_of(&request.url.to_string(), request.credential);
        let lock = lock_of(&self.locks, &name).lock_owned().await;
        let mut fetching = Fetching { mirrors: self, held: Some(lock) };
        let too_slow = |_| GitError::TooSlow(self.time.as_secs());
        let result = tokio::time::timeout(self.time, self.fetch_in_turn(request, known, &name)).await.map_err(too_slow);
        if matches!(result, Ok(Ok(Fetched::Unchanged))) {
            fetching.held = None;
        } else if let Some(tidied) = fetching.tidied() {
            let _ = tidied.await;
        }
        result?
    }

    async fn fetch_in_turn(&self, request: &Request<'_>, known: Option<&str>, name: &str) -> Result<Fetched, GitError> {
        make_folder(&self.directory)?;
        let authorities = match request.ca {
            Some(pem) => authorities_from_pem(pem).ok_or(GitError::Ca)?,
            None => system_authorities(),
        };
        let fetched = self.fetch_with(request, known, name, &authorities).await;
        if let Err(GitError::Tls(host)) = fetched {
            return Err(tls_cause(request, &authorities, host).await);
        }
        let Credential::App(_) = request.credential else { return fetched };
        if !matches!(fetched, Err(GitError::Credential(_) | GitError::NotFound(_))) {
            return fetched;
        }
        // A token that was taken back before its time: once more, with another, unless this one is new.
        let app = name_of("", request.credential);
        let dropped = self.tokens.lock().remove(&app);
        if dropped.is_none() { fetched } else { self.fetch_with(request, known, name, &authorities).await }
    }

    async fn fetch_with(
        &self,
        request: &Request<'_>,
        known: Option<&str>,
        name: &str,
        authorities: &Authorities,
    ) -> Result<Fetched, GitError> {
        let programs = Programs::find()?;
        let authorization = self.authorization(request, authorities).await?;
        let addresses = resolve(request.url.address(), request.reach).await?;
        let session = Session::begin(&programs, request, addresses, authorization.clone(), &self.directory)?;
        let found = match request.revision {
            Revision::Commit(id) => ResolvedRef::commit(id),
            revision => {
                let no_ref = || GitError::Ref(revision.to_string());
                reference::find(revision, &session.refs().await?).ok_or_else(no_ref)?
            }
        };
        if Some(found.commit.as_str()) == known {
            return Ok(Fetched::Unchanged);
        }
        let folder = self.directory.join(format!("{PREFIX}{name}"));
        let whole_folder = self.directory.join(format!("{PREFIX}{name}{WHOLE}"));
        let mut whole = whole_folder.exists();
        let most = self.most.min(MOST_MIRROR);
        let mut again = true;
        loop {
            let at = if whole { &whole_folder } else { &folder };
            let existed = at.exists();
            let read = async {
                let mirror = Mirror::open(&session, request.url, at, most, (&found.commit, whole)).await?;
                let lfs = lfs::Server { reach: request.reach, authorities, authorization: authorization.as_ref() };
                read(&session, &mirror, request, found.clone(), &lfs).await
            };
            match read.await {
                Ok(commit) if Some(commit.id.as_str()) == known => return Ok(Fetched::Unchanged),
                Ok(commit) => return Ok(Fetched::Commit(commit)),
                Err(GitError::NotPartial) if !whole => {
                    mirror::remove(&folder)?;
                    whole = true;
                }
                // What earlier commits have left may be what is too much.
                Err(error)
                    if again && (error.is_of_mirror() || existed && matches!(error, GitError::TooLargeMirror(_))) =>
                {
                    mirror::remove(at)?;
                    again = false;
                }
                Err(error) => {
                    // What is too large, or does not fit, only takes room.
                    if matches!(error, GitError::TooLargeMirror(_) | GitError::DiskFull) {
                        mirror::remove(at)?;
                    }
                    return Err(error);
                }
            }
        }
    }

    /// The value of the header that proves who asks.
    async fn authorization(
        &self,
        request: &Request<'_>,
        authorities: &Authorities,
    ) -> Result<Option<Zeroizing<String>>, GitError> {
        let Request { credential, reach, .. } = request;
        match credential {
            Credential::Anonymous | Credential::Ssh { .. } => Ok(None),
            Credential::Token { username, token } => {
                let good = |text: &str| !text.is_empty() && !text.contains(|it: char| it.is_control());
                if !good(username) || username.contains(':') || !good(token) {
                    return Err(GitError::Token);
                }
                Ok(Some(basic(username, token)))
            }
            Credential::App(app) => {
                let (now, name) = (Timestamp::now(), name_of("", credential));
                let kept = self.tokens.lock().get(&name).cloned();
                let token = if let Some(token) = kept.filter(|token| token.lasts(now)) {
                    token
                } else {
                    let token = app::token(app, reach, authorities, now).await?;
                    let mut tokens = self.tokens.lock();
                    tokens.insert(name, token.clone());
                    tokens.retain(|_, token| token.lasts(now));
                    token
                };
                Ok(Some(basic("x-access-token", &token.token)))
            }
        }
    }
}

/// The lock of a mirror. Who holds or awaits one has it out of the map already; those that nobody has are forgotten.
fn lock_of(locks: &Locks, name: &str) -> Arc<tokio::sync::Mutex<()>> {
    let mut locks = locks.lock();
    locks.retain(|_, lock| Arc::strong_count(lock) > 1);
    let lock = locks.entry(name.to_owned()).or_default();
    Arc::clone(lock)
}

/// Removes mirrors, the least recently used first, until the rest are no more, and have no more bytes, than they may. Those in use stay.
/// Returns the bytes that are left.
fn tidy(directory: &Path, locks: &Locks, most: u64) -> u64 {
    let mut all: Vec<(SystemTime, PathBuf, u64)> = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        let ours = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(PREFIX.as_bytes()));
        let used = path.join("nudge-used").metadata().and_then(|it| it.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
        let bytes =
            if path.is_dir() { bytes_in(&path) } else { entry.metadata().map(|it| it.len()).unwrap_or_default() };
        all.push((if ours { used } else { SystemTime::UNIX_EPOCH }, path, bytes));
    }
    all.sort();
    let (mut count, mut total) = (all.len(), all.iter().fold(0_u64, |sum, (_, _, bytes)| sum.saturating_add(*bytes)));
    for (_, path, bytes) in all {
        if total <= most && count <= MAX_MIRRORS {
            break;
        }
        let file_name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let name = file_name.strip_prefix(PREFIX).unwrap_or(&file_name);
        let name = name.strip_suffix(WHOLE).unwrap_or(name);
        // Nobody begins to use it before it is gone.
        let held = lock_of(locks, name).try_lock_owned();
        if held.is_ok() && !file_name.starts_with("run-") && mirror::remove(&path).is_ok() {
            (count, total) = (count.saturating_sub(1), total.saturating_sub(bytes));
        }
    }
    total
}

/// Why there is no TLS with the server. Git says only that there is none.
async fn tls_cause(request: &Request<'_>, authorities: &Authorities, host: String) -> GitError {
    match connect(request.url.address(), request.reach, authorities).await {
        Err(error @ ConnectError::Tls { .. }) => GitError::Connect(error),
        _ => GitError::Tls(host),
    }
}

/// What is asked for, from a mirror that may have to be filled.
async fn read(
    session: &Session<'_>,
    mirror: &Mirror<'_>,
    request: &Request<'_>,
    found: ResolvedRef,
    lfs: &lfs::Server<'_>,
) -> Result<Commit, GitError> {
    let Request { path, wanted: is_of_use, .. } = *request;
    let found = mirror.commit(found).await?;
    let id = found.commit.clone();
    let signer = match request.allowed_signers {
        Some(_) => Some(commit_signer::signer(session, mirror, &found).await?),
        None => None,
    };
    let time = committed(&mirror.object("commit", &id).await?)?;
    let mut entries = below(mirror, &id, path).await?;
    entries.retain(|entry| is_of_use(&entry.path));
    entries.iter().try_for_each(as_file)?;
    let ids: BTreeSet<&str> = entries.iter().map(|entry| entry.id.as_str()).collect();
    let blobs = mirror.blobs(&ids, MAX_DICTIONARY_BYTES).await?;
    let mut files = BTreeMap::new();
    let mut total = 0;
    for Entry { id, path, .. } in &entries {
        let content = blobs.get(id).ok_or(GitError::Broken)?;
        // One content may be that of many files.
        total = content.len().saturating_add(total);
        if total > MAX_DICTIONARY_BYTES {
            return Err(GitError::TooLarge(MAX_DICTIONARY_BYTES));
        }
        files.insert(path.clone(), content.clone());
    }
    lfs.replace(session, mirror, request, &id, &mut files).await?;
    Ok(Commit { id, time, signer, files })
}

/// The entries below a path, by their path from there.
async fn below(mirror: &Mirror<'_>, commit: &str, path: &str) -> Result<Vec<Entry>, GitError> {
    if path.is_empty() {
        return mirror.entries(commit).await;
    }
    let no_path = || GitError::NoPath { commit: commit.to_owned(), path: path.to_owned() };
    let entry = mirror.entry(commit, path).await?.ok_or_else(no_path)?;
    if entry.kind == Kind::Folder {
        return mirror.entries(&entry.id).await;
    }
    as_file(&entry)?;
    let name = path.rsplit('/').next().unwrap_or(path).to_owned();
    Ok(vec![Entry { path: name, ..entry }])
}

/// When a commit was committed.
pub(crate) fn committed(commit: &[u8]) -> Result<Timestamp, GitError> {
    let text = String::from_utf8_lossy(commit);
    let line = text.lines().take_while(|line| !line.is_empty()).find_map(|line| line.strip_prefix("committer "));
    let second = line.and_then(|line| line.rsplit(' ').nth(1)).and_then(|second| second.parse().ok());
    second.and_then(|second| Timestamp::from_second(second).ok()).ok_or(GitError::Broken)
}

fn make_folder(folder: &Path) -> Result<(), GitError> {
    use std::os::unix::fs::DirBuilderExt as _;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(GitError::disk)
}
