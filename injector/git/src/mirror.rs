//! One bare mirror of a repository: the trees of the requested commits, and the contents of the wanted files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nudge_core::remote::{GitUrl, is_object_id};
use zeroize::Zeroizing;

use crate::error::GitError;
use crate::program::ProcessResult;
use crate::reference::ResolvedRef;
use crate::session::{MAX_OUTPUT_BYTES, Session};
use crate::stderr::GitFault;
use crate::tree::{MAX_ENTRIES, TreeEntry, TreeEntryKind, parse_entries};

/// The content of [`FORMAT_FILE`] in the mirrors that this version makes.
const FORMAT: &str = "1\n";
const FORMAT_FILE: &str = "nudge-form";
/// The maximum number of packs. A mirror with more is fetched again, which costs less than repacking it.
const MAX_PACKS: usize = 120;

/// The parts of a commit that a mirror fetches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MirrorKind {
    /// The trees, and the contents of wanted files.
    Partial,
    /// The whole commit, because the server gives no single objects.
    Whole,
}

/// A bare mirror.
pub(crate) struct Mirror<'a> {
    session: &'a Session<'a>,
    folder: PathBuf,
    /// The maximum bytes on disk.
    max_bytes: u64,
    kind: MirrorKind,
}

impl<'a> Mirror<'a> {
    /// Opens the mirror, or makes it for commits with ids like `id`. A mirror that is not intact is removed.
    pub(crate) async fn open(
        session: &'a Session<'a>,
        url: &GitUrl,
        folder: &Path,
        max_bytes: u64,
        kind: MirrorKind,
        id: &str,
    ) -> Result<Self, GitError> {
        if !is_intact(folder) {
            remove(folder)?;
        }
        let mirror = Self { session, folder: folder.to_owned(), max_bytes, kind };
        let exists = folder.join(FORMAT_FILE).exists();
        if !exists {
            let format = if id.len() == 64 { "--object-format=sha256" } else { "--object-format=sha1" };
            mirror.run("init", &["--quiet", "--bare", "--template=", format]).await?;
        }
        mirror.configure(url, id)?;
        if !exists {
            fs::write(folder.join(FORMAT_FILE), FORMAT).map_err(GitError::disk)?;
        }
        // A killed process left these packs.
        for path in temporary_packs(&folder.join("objects/pack")) {
            fs::remove_file(path).map_err(GitError::disk)?;
        }
        // The file's time is the time of the last use. Mirrors without the file are removed earlier.
        let _ = fs::write(folder.join("nudge-used"), "");
        Ok(mirror)
    }

    /// Overwrites the settings of the mirror.
    fn configure(&self, url: &GitUrl, id: &str) -> Result<(), GitError> {
        let is_sha256 = id.len() == 64;
        let (version, format) = if is_sha256 { (1, "[extensions]\n\tobjectFormat = sha256\n") } else { (0, "") };
        let text = format!(
            "[core]\n\trepositoryformatversion = {version}\n\tbare = true\n\tfilemode = false\n{format}[remote \"origin\"]\n\turl = \"{url}\"\n\ttagOpt = --no-tags\n"
        );
        fs::write(self.folder.join("config"), text).map_err(GitError::disk)?;
        let _ = fs::remove_file(self.folder.join("config.worktree"));
        Ok(())
    }

    /// Fetches the commit with its trees, unless the mirror has it. Returns the fetched commit, which may be newer if
    /// the server gives commits only by the names of refs.
    pub(crate) async fn ensure_commit(&self, resolved: ResolvedRef) -> Result<ResolvedRef, GitError> {
        let object = resolved.tag.as_deref().unwrap_or(&resolved.commit);
        let local_ref = format!("refs/nudge/{object}");
        if self.has_commit(&local_ref, &resolved.commit).await? {
            return Ok(resolved);
        }
        let Err(error) = self.fetch(&format!("+{object}:{local_ref}")).await else { return Ok(resolved) };
        match (error, &resolved.name) {
            (GitError::NotById, Some(name)) => match self.fetch(&format!("+{name}:refs/nudge/named")).await {
                Ok(()) => self.resolve(name.clone()).await,
                Err(GitError::NotById) => Err(GitError::Ref(name.clone())),
                Err(error) => Err(error),
            },
            (GitError::NotById, None) => Err(GitError::Ref(format!(
                "commit {object}, or its server gives commits by their branches and tags only"
            ))),
            (error, _) => Err(error),
        }
    }

    async fn resolve(&self, name: String) -> Result<ResolvedRef, GitError> {
        let parse = async |revision: &str| {
            let output = self.run("rev-parse", &["--verify", "--quiet", revision]).await?;
            let id = String::from_utf8_lossy(&output).trim().to_owned();
            if is_object_id(&id) { Ok(id) } else { Err(GitError::Broken) }
        };
        let (object, commit) = (parse("refs/nudge/named").await?, parse("refs/nudge/named^{commit}").await?);
        self.run("update-ref", &[&format!("refs/nudge/{object}"), &object]).await?;
        let tag = (object != commit).then_some(object);
        Ok(ResolvedRef { commit, tag, name: Some(name) })
    }

    /// Returns whether a commit was fetched completely. Its ref is written last.
    async fn has_commit(&self, local_ref: &str, commit: &str) -> Result<bool, GitError> {
        let revision = format!("{local_ref}^{{commit}}");
        let result = self.run_unchecked(&["rev-parse", "--verify", "--quiet", &revision], b"").await?;
        Ok(result.succeeded && String::from_utf8_lossy(&result.output).trim() == commit)
    }

    async fn fetch(&self, refspec: &str) -> Result<(), GitError> {
        let (settings, filter): (&[&str], _) = match self.kind {
            MirrorKind::Partial => (&PARTIAL_SETTINGS, "--filter=blob:none"),
            MirrorKind::Whole => (&[], "--no-filter"),
        };
        let arguments = [settings, &["fetch"], &FETCH_OPTIONS, &["--depth=1", filter, "origin", refspec]].concat();
        self.session.run_remote("fetch", &arguments, b"", Some((&self.folder, self.max_bytes))).await.map(drop)
    }

    pub(crate) async fn entry(&self, commit: &str, path: &str) -> Result<Option<TreeEntry>, GitError> {
        let output = self.run("ls-tree", &["-z", "--full-tree", commit, "--", path]).await?;
        Ok(parse_entries(&output)?.into_iter().find(|entry| entry.path == path))
    }

    /// Returns all entries below a tree or a commit, without the folders.
    pub(crate) async fn entries(&self, tree: &str) -> Result<Vec<TreeEntry>, GitError> {
        match self.run("ls-tree", &["-r", "-z", "--full-tree", tree]).await {
            Err(GitError::TooLarge(_)) => Err(GitError::TooManyFiles(MAX_ENTRIES)),
            output => parse_entries(&output?),
        }
    }

    /// Returns an object that is not a blob.
    pub(crate) async fn object(&self, kind: &str, id: &str) -> Result<Zeroizing<Vec<u8>>, GitError> {
        self.run("cat-file", &[kind, id]).await
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Runs git with this mirror, whether it succeeds or not.
    pub(crate) async fn run_unchecked(&self, arguments: &[&str], input: &[u8]) -> Result<ProcessResult, GitError> {
        self.session.run_local(&self.folder, arguments, input, MAX_OUTPUT_BYTES).await
    }

    /// Returns the contents of these blobs, of at most `max_bytes` together. Missing ones are fetched.
    pub(crate) async fn blobs(
        &self,
        ids: &BTreeSet<&str>,
        max_bytes: usize,
    ) -> Result<BTreeMap<String, Zeroizing<Vec<u8>>>, GitError> {
        if ids.is_empty() {
            return Ok(BTreeMap::new());
        }
        let mut sizes = self.sizes(ids).await?;
        let missing: Vec<&str> = ids.iter().copied().filter(|id| !sizes.contains_key(*id)).collect();
        if !missing.is_empty() {
            self.fetch_blobs(&missing).await?;
            sizes = self.sizes(ids).await?;
        }
        if sizes.len() != ids.len() {
            return Err(GitError::Broken);
        }
        let total = sizes.values().fold(0_usize, |sum, size| sum.saturating_add(*size));
        if total > max_bytes {
            return Err(GitError::TooLarge(max_bytes));
        }
        let max_output = ids.len().saturating_mul(128).saturating_add(total);
        let arguments = ["cat-file", "--batch", "--buffer"];
        let result = self.session.run_local(&self.folder, &arguments, &lines(ids), max_output).await?;
        if result.succeeded { parse_contents(&result.output) } else { Err(GitError::Broken) }
    }

    async fn fetch_blobs(&self, missing: &[&str]) -> Result<(), GitError> {
        // The commits of the mirror are not offered, because the server would then leave out objects that it believes
        // the mirror to have.
        let negotiation: &[&str] = &["-c", "fetch.negotiationAlgorithm=noop", "fetch"];
        let remote: &[&str] = &["--filter=blob:none", "--stdin", "origin"];
        let arguments = [&PARTIAL_SETTINGS, negotiation, &FETCH_OPTIONS, remote].concat();
        let input = lines(&missing.iter().copied().collect());
        match self.session.run_remote("fetch", &arguments, &input, Some((&self.folder, self.max_bytes))).await {
            Err(GitError::NotById) => Err(GitError::NotPartial),
            result => result.map(drop),
        }
    }

    async fn sizes(&self, ids: &BTreeSet<&str>) -> Result<BTreeMap<String, usize>, GitError> {
        let result = self.run_unchecked(&["cat-file", "--batch-check", "--buffer"], &lines(ids)).await?;
        if result.succeeded { Ok(parse_sizes(&result.output)) } else { Err(GitError::Broken) }
    }

    async fn run(&self, command: &str, arguments: &[&str]) -> Result<Zeroizing<Vec<u8>>, GitError> {
        let result = self.run_unchecked(&[&[command], arguments].concat(), b"").await?;
        match GitFault::parse(&result.stderr) {
            _ if result.succeeded => Ok(result.output),
            GitFault::DiskFull => Err(GitError::DiskFull),
            _ => Err(GitError::Broken),
        }
    }
}

/// Settings that let git fetch missing objects from the server. Processes without access to the server don't have them,
/// because some versions of git would try to fetch.
const PARTIAL_SETTINGS: [&str; 4] =
    ["-c", "remote.origin.promisor=true", "-c", "remote.origin.partialclonefilter=blob:none"];
/// The options of every `git fetch`.
const FETCH_OPTIONS: [&str; 6] = [
    "--quiet",
    "--no-tags",
    "--no-write-fetch-head",
    "--no-recurse-submodules",
    "--no-auto-maintenance",
    "--no-show-forced-updates",
];

/// Returns whether the folder is missing, or is a mirror of this format that no process left in the middle of a step.
fn is_intact(folder: &Path) -> bool {
    if folder.symlink_metadata().is_err() {
        return true;
    }
    let has_format = fs::read_to_string(folder.join(FORMAT_FILE)).is_ok_and(|format| format == FORMAT);
    let locks = ["shallow.lock", "packed-refs.lock", "config.lock", "HEAD.lock"];
    let packs = fs::read_dir(folder.join("objects/pack")).map(|files| files.flatten().count()).unwrap_or_default();
    // Alternates are objects outside of the mirror.
    let mut forbidden = locks.into_iter().chain(["objects/info/alternates"]);
    has_format && !forbidden.any(|name| folder.join(name).exists()) && packs <= MAX_PACKS * 4
}

pub(crate) fn remove(folder: &Path) -> Result<(), GitError> {
    let result = match folder.symlink_metadata() {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(folder),
        Ok(_) => fs::remove_file(folder),
        Err(error) => Err(error),
    };
    match result {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(GitError::disk(error)),
        _ => Ok(()),
    }
}

fn temporary_packs(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.flatten().map(|entry| entry.path());
    paths.filter(|path| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"tmp_"))).collect()
}

fn lines(ids: &BTreeSet<&str>) -> Vec<u8> {
    ids.iter().flat_map(|id| [id.as_bytes(), b"\n"].concat()).collect()
}

/// Parses the output of `git cat-file --batch-check`: the sizes of the blobs that the mirror has.
pub fn parse_sizes(printed: &[u8]) -> BTreeMap<String, usize> {
    let text = String::from_utf8_lossy(printed);
    let sizes = text.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let (id, kind, size) = (words.next()?, words.next()?, words.next()?);
        (kind == "blob").then(|| Some((id.to_owned(), size.parse().ok()?)))?
    });
    sizes.collect()
}

/// Parses the output of `git cat-file --batch`: contents by their ids.
pub fn parse_contents(mut printed: &[u8]) -> Result<BTreeMap<String, Zeroizing<Vec<u8>>>, GitError> {
    let mut contents = BTreeMap::new();
    while !printed.is_empty() {
        let line_end = printed.iter().position(|byte| *byte == b'\n').ok_or(GitError::Broken)?;
        let head = std::str::from_utf8(&printed[..line_end]).map_err(|_| GitError::Broken)?;
        let mut words = head.split(' ');
        let (Some(id), Some("blob"), Some(size)) = (words.next(), words.next(), words.next()) else {
            return Err(GitError::Broken);
        };
        let size: usize = size.parse().map_err(|_| GitError::Broken)?;
        let remainder = printed.get(line_end.saturating_add(1)..).ok_or(GitError::Broken)?;
        // The content is followed by the end of a line.
        let (content, remainder) = remainder.split_at_checked(size).ok_or(GitError::Broken)?;
        contents.insert(id.to_owned(), Zeroizing::new(content.to_vec()));
        printed = remainder.get(1..).ok_or(GitError::Broken)?;
    }
    Ok(contents)
}

/// Checks that the entry is a file.
pub fn check_file(entry: &TreeEntry) -> Result<(), GitError> {
    match entry.kind {
        TreeEntryKind::File => Ok(()),
        TreeEntryKind::Symlink => Err(GitError::Symlink(entry.path.clone())),
        TreeEntryKind::Submodule => Err(GitError::Submodule(entry.path.clone())),
        TreeEntryKind::Folder => Err(GitError::Broken),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_read_whatever_bytes_they_have() {
        let read = parse_contents(b"1 blob 3\na\nb\n2 blob 0\n\n").unwrap();
        assert_eq!(read["1"].as_slice(), b"a\nb");
        assert_eq!(read["2"].as_slice(), b"");
        for bad in
            [b"1 missing\n".as_slice(), b"1 blob 9\nab\n", b"1 tree 1\na\n", b"1 blob 18446744073709551615\na\n", b"x"]
        {
            assert!(parse_contents(bad).is_err());
        }
    }
}
