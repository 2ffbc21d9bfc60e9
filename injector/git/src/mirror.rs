//! One bare mirror of a repository: trees of the commits that were asked for, and the contents that were of use.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nudge_core::remote::{GitUrl, is_id};
use zeroize::Zeroizing;

use crate::error::GitError;
use crate::reference::ResolvedRef;
use crate::session::{MAX_OUTPUT_BYTES, ProcessFailure, Session};
use crate::tree::{Entry, Kind, MAX_ENTRIES, entries};

/// What a mirror of this form has in the file [`FORM_FILE`].
const FORM: &str = "1\n";
const FORM_FILE: &str = "nudge-form";
/// The maximum of packs: with more, all is fetched anew, which is cheaper than to tidy up.
const MAX_PACKS: usize = 120;

/// A bare mirror.
pub(crate) struct Mirror<'a> {
    session: &'a Session<'a>,
    folder: PathBuf,
    /// The most bytes on disk.
    most: u64,
    /// Whether whole commits are fetched.
    whole: bool,
}

impl<'a> Mirror<'a> {
    /// Opens the mirror, or makes it. What is not as this program leaves it is removed.
    pub(crate) async fn open(
        session: &'a Session<'a>,
        url: &GitUrl,
        folder: &Path,
        most: u64,
        (id, whole): (&str, bool),
    ) -> Result<Self, GitError> {
        if !is_good(folder) {
            remove(folder)?;
        }
        let it = Self { session, folder: folder.to_owned(), most, whole };
        let made = folder.join(FORM_FILE).exists();
        if !made {
            let format = if id.len() == 64 { "--object-format=sha256" } else { "--object-format=sha1" };
            it.good("init", &["--quiet", "--bare", "--template=", format]).await?;
        }
        it.configure(url, id.len() == 64)?;
        if !made {
            fs::write(folder.join(FORM_FILE), FORM).map_err(GitError::disk)?;
        }
        // What was left by a process that was killed.
        for name in left_over(&folder.join("objects/pack")) {
            fs::remove_file(name).map_err(GitError::disk)?;
        }
        touch(folder);
        Ok(it)
    }

    /// Writes its settings anew: whatever stood there counts no more.
    fn configure(&self, url: &GitUrl, sha256: bool) -> Result<(), GitError> {
        let (version, format) = if sha256 { (1, "[extensions]\n\tobjectFormat = sha256\n") } else { (0, "") };
        let text = format!(
            "[core]\n\trepositoryformatversion = {version}\n\tbare = true\n\tfilemode = false\n{format}[remote \"origin\"]\n\turl = \"{url}\"\n\ttagOpt = --no-tags\n"
        );
        fs::write(self.folder.join("config"), text).map_err(GitError::disk)?;
        let _ = fs::remove_file(self.folder.join("config.worktree"));
        Ok(())
    }

    /// Sees that the commit is there, with its trees. Its id, which is another one if the server gives it by its name only.
    pub(crate) async fn commit(&self, found: ResolvedRef) -> Result<ResolvedRef, GitError> {
        let asked = found.tag.as_deref().unwrap_or(&found.commit);
        let kept = format!("refs/nudge/{asked}");
        if self.has(&kept, &found.commit).await? {
            return Ok(found);
        }
        match self.fetch(&format!("+{asked}:{kept}")).await {
            Ok(()) => Ok(found),
            Err(ProcessFailure::Known(error)) => Err(error),
            Err(ProcessFailure::NotById) => {
                let Some(name) = &found.name else {
                    return Err(GitError::Ref(format!(
                        "commit {asked}, or its server gives commits by their branches and tags only"
                    )));
                };
                match self.fetch(&format!("+{name}:refs/nudge/named")).await {
                    Ok(()) => self.resolve(name.clone()).await,
                    Err(ProcessFailure::Known(error)) => Err(error),
                    Err(ProcessFailure::NotById) => Err(GitError::Ref(name.clone())),
                }
            }
        }
    }

    async fn resolve(&self, name: String) -> Result<ResolvedRef, GitError> {
        let id = async |what: &str| {
            let output = self.good("rev-parse", &["--verify", "--quiet", what]).await?;
            let id = String::from_utf8_lossy(&output).trim().to_owned();
            if is_id(&id) { Ok(id) } else { Err(GitError::Broken) }
        };
        let (object, commit) = (id("refs/nudge/named").await?, id("refs/nudge/named^{commit}").await?);
        self.good("update-ref", &[&format!("refs/nudge/{object}"), &object]).await?;
        let tag = (object != commit).then_some(object);
        Ok(ResolvedRef { commit, tag, name: Some(name) })
    }

    /// Returns whether a commit was fetched whole: the ref is written last.
    async fn has(&self, kept: &str, commit: &str) -> Result<bool, GitError> {
        let what = format!("{kept}^{{commit}}");
        let arguments = ["rev-parse", "--verify", "--quiet", &what];
        let job = self.session.local(&self.folder, &arguments, b"", MAX_OUTPUT_BYTES).await?;
        Ok(job.good && String::from_utf8_lossy(&job.output).trim() == commit)
    }

    async fn fetch(&self, refspec: &str) -> Result<(), ProcessFailure> {
        let mut arguments = if self.whole { Vec::new() } else { PARTIAL.to_vec() };
        arguments.push("fetch");
        arguments.extend(FETCH);
        arguments.push("--depth=1");
        arguments.push(if self.whole { "--no-filter" } else { "--filter=blob:none" });
        arguments.extend(["origin", refspec]);
        self.session.reach("fetch", &arguments, b"", Some((&self.folder, self.most))).await.map(drop)
    }

    /// The entry at a path, `None` for the root.
    pub(crate) async fn entry(&self, commit: &str, path: &str) -> Result<Option<Entry>, GitError> {
        let output = self.good("ls-tree", &["-z", "--full-tree", commit, "--", path]).await?;
        Ok(entries(&output)?.into_iter().find(|entry| entry.path == path))
    }

    /// All entries below a tree or a commit but the folders.
    pub(crate) async fn entries(&self, tree: &str) -> Result<Vec<Entry>, GitError> {
        match self.good("ls-tree", &["-r", "-z", "--full-tree", tree]).await {
            Err(GitError::TooLarge(_)) => Err(GitError::TooManyFiles(MAX_ENTRIES)),
            listed => entries(&listed?),
        }
    }

    /// An object that is no blob.
    pub(crate) async fn object(&self, kind: &str, id: &str) -> Result<Zeroizing<Vec<u8>>, GitError> {
        self.good("cat-file", &[kind, id]).await
    }

    /// Where it is.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Runs git on what is there.
    pub(crate) async fn verify(&self, arguments: &[&str]) -> Result<(bool, Vec<u8>), GitError> {
        let job = self.session.local(&self.folder, arguments, b"", MAX_OUTPUT_BYTES).await?;
        Ok((job.good, job.stderr))
    }

    /// The contents of these blobs, of so many bytes at most. Those that are missing are fetched at once.
    pub(crate) async fn blobs(
        &self,
        ids: &BTreeSet<&str>,
        most: usize,
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
        if total > most {
            return Err(GitError::TooLarge(most));
        }
        let input = lines(ids);
        let room = ids.len().saturating_mul(128).saturating_add(total);
        let job = self.session.local(&self.folder, &["cat-file", "--batch", "--buffer"], &input, room).await?;
        if !job.good {
            return Err(GitError::Broken);
        }
        contents(&job.output)
    }

    async fn fetch_blobs(&self, missing: &[&str]) -> Result<(), GitError> {
        // Without the commits that are there: what the server took for known with them is not.
        let mut arguments = PARTIAL.to_vec();
        arguments.extend(["-c", "fetch.negotiationAlgorithm=noop", "fetch"]);
        arguments.extend(FETCH);
        arguments.extend(["--filter=blob:none", "--stdin", "origin"]);
        let input = lines(&missing.iter().copied().collect());
        match self.session.reach("fetch", &arguments, &input, Some((&self.folder, self.most))).await {
            Ok(_) => Ok(()),
            Err(ProcessFailure::Known(error)) => Err(error),
            Err(ProcessFailure::NotById) => Err(GitError::NotPartial),
        }
    }

    async fn sizes(&self, ids: &BTreeSet<&str>) -> Result<BTreeMap<String, usize>, GitError> {
        let arguments = ["cat-file", "--batch-check", "--buffer"];
        let job = self.session.local(&self.folder, &arguments, &lines(ids), MAX_OUTPUT_BYTES).await?;
        if !job.good {
            return Err(GitError::Broken);
        }
        Ok(sizes(&job.output))
    }

    async fn good(&self, command: &str, arguments: &[&str]) -> Result<Zeroizing<Vec<u8>>, GitError> {
        let arguments = [&[command], arguments].concat();
        let job = self.session.local(&self.folder, &arguments, b"", MAX_OUTPUT_BYTES).await?;
        match crate::stderr::fault(&job.stderr) {
            _ if job.good => Ok(job.output),
            crate::stderr::Fault::DiskFull => Err(GitError::DiskFull),
            _ => Err(GitError::Broken),
        }
    }
}

/// The server has what is missing. Processes that reach nobody are not started with it: to them, what is missing is missing, whereas some
/// versions of git would go and ask.
const PARTIAL: [&str; 4] = ["-c", "remote.origin.promisor=true", "-c", "remote.origin.partialclonefilter=blob:none"];
/// The arguments of every `git fetch`.
const FETCH: [&str; 6] = [
    "--quiet",
    "--no-tags",
    "--no-write-fetch-head",
    "--no-recurse-submodules",
    "--no-auto-maintenance",
    "--no-show-forced-updates",
];

/// Returns whether the folder is missing, or a mirror of this form that nobody has left in the middle of a step.
fn is_good(folder: &Path) -> bool {
    if folder.symlink_metadata().is_err() {
        return true;
    }
    let form = fs::read_to_string(folder.join(FORM_FILE)).is_ok_and(|form| form == FORM);
    let locked =
        ["shallow.lock", "packed-refs.lock", "config.lock", "HEAD.lock"].iter().any(|name| folder.join(name).exists());
    let packs = fs::read_dir(folder.join("objects/pack")).map(|it| it.flatten().count()).unwrap_or_default();
    // Alternates would be objects from elsewhere.
    let foreign = folder.join("objects/info/alternates").exists();
    form && !locked && !foreign && packs <= MAX_PACKS * 4
}

/// Removes a mirror.
pub(crate) fn remove(folder: &Path) -> Result<(), GitError> {
    let removed = match folder.symlink_metadata() {
        Ok(it) if it.is_dir() => fs::remove_dir_all(folder),
        Ok(_) => fs::remove_file(folder),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(GitError::disk(error)),
        _ => Ok(()),
    }
}

/// Notes that the mirror is in use.
fn touch(folder: &Path) {
    // The time of the file is what counts; without it the mirror goes earlier.
    let _ = fs::write(folder.join("nudge-used"), "");
}

fn left_over(packs: &Path) -> Vec<PathBuf> {
    let Ok(found) = fs::read_dir(packs) else { return Vec::new() };
    let paths = found.flatten().map(|entry| entry.path());
    paths.filter(|path| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"tmp_"))).collect()
}

fn lines(ids: &BTreeSet<&str>) -> Vec<u8> {
    ids.iter().flat_map(|id| [id.as_bytes(), b"\n"].concat()).collect()
}

/// Reads what `git cat-file --batch-check` prints: the sizes of the blobs that are there.
pub(crate) fn sizes(printed: &[u8]) -> BTreeMap<String, usize> {
    let text = String::from_utf8_lossy(printed);
    let sizes = text.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let (id, kind, size) = (words.next()?, words.next()?, words.next()?);
        (kind == "blob").then(|| Some((id.to_owned(), size.parse().ok()?)))?
    });
    sizes.collect()
}

/// Reads what `git cat-file --batch` prints.
pub(crate) fn contents(mut printed: &[u8]) -> Result<BTreeMap<String, Zeroizing<Vec<u8>>>, GitError> {
    let mut all = BTreeMap::new();
    while !printed.is_empty() {
        let end = printed.iter().position(|byte| *byte == b'\n').ok_or(GitError::Broken)?;
        let head = std::str::from_utf8(&printed[..end]).map_err(|_| GitError::Broken)?;
        let mut words = head.split(' ');
        let (Some(id), Some("blob"), Some(size)) = (words.next(), words.next(), words.next()) else {
            return Err(GitError::Broken);
        };
        let size: usize = size.parse().map_err(|_| GitError::Broken)?;
        let rest = printed.get(end.saturating_add(1)..).ok_or(GitError::Broken)?;
        // A line ends behind it.
        let (content, rest) = rest.split_at_checked(size).ok_or(GitError::Broken)?;
        all.insert(id.to_owned(), Zeroizing::new(content.to_vec()));
        printed = rest.get(1..).ok_or(GitError::Broken)?;
    }
    Ok(all)
}

/// Whether an entry can be given; otherwise why not.
pub(crate) fn as_file(entry: &Entry) -> Result<(), GitError> {
    match entry.kind {
        Kind::File => Ok(()),
        Kind::Symlink => Err(GitError::Symlink(entry.path.clone())),
        Kind::Submodule => Err(GitError::Submodule(entry.path.clone())),
        Kind::Folder => Err(GitError::Broken),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_read_whatever_bytes_they_have() {
        let read = contents(b"1 blob 3\na\nb\n2 blob 0\n\n").unwrap();
        assert_eq!(read["1"].as_slice(), b"a\nb");
        assert_eq!(read["2"].as_slice(), b"");
        for bad in
            [b"1 missing\n".as_slice(), b"1 blob 9\nab\n", b"1 tree 1\na\n", b"1 blob 18446744073709551615\na\n", b"x"]
        {
            assert!(contents(bad).is_err());
        }
    }
}
