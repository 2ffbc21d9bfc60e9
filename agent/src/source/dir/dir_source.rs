//! The source that reads a folder: its configs, the current version of each, and the content of that version.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use nudge_protocol::limits::{MAX_CONFIGS, MAX_DICTIONARY_BYTES};
use nudge_protocol::status::ProblemReason;
use nudge_protocol::{ConfigName, NameError, VersionName, names};

use super::current_version::{
    CurrentError, CurrentVersion, MAX_CURRENT_BYTES, is_checkout, parse_current_file, parse_current_link,
};
use super::root::{OpenError, Root, displayable};
use super::version_folder::{Fingerprint, KeyFault, fingerprint, read_version};
use crate::content::VersionContent;
use crate::source::{Reading, SourceFault};

/// The time after the last write to a version's files during which the version counts as being written.
pub const SETTLE_TIME: Duration = Duration::from_millis(50);
/// The time after a write during which another write may leave the file's times unchanged, since clocks of file systems
/// tick.
const TIMESTAMP_GRANULARITY: Duration = Duration::from_secs(1);

/// The reason why a config's current version can't be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The folder given by `--dir` can't be opened.
    #[error("folder {} can't be opened: {source}", path.display())]
    Folder {
        /// The path of the folder.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// There is no folder for the config.
    #[error("there is no folder {}; make it, with a folder for each version in it", .0.display())]
    ConfigMissing(PathBuf),
    /// There is no `current`.
    #[error("no version of {0} is current; choose one with: nudge-agent use --dir DIR {0} VERSION")]
    CurrentMissing(ConfigName),
    /// `current` can't be understood.
    #[error("{} names no version: {source}", path.display())]
    CurrentInvalid {
        /// The link or file.
        path: PathBuf,
        /// The fault of the link or file.
        source: CurrentError,
    },
    /// The current version has no folder.
    #[error("version {version} of {config} is current, but there is no folder {}", path.display())]
    VersionMissing {
        /// The config, by the name of its folder.
        config: ConfigName,
        /// The version that `current` names.
        version: VersionName,
        /// The expected path.
        path: PathBuf,
    },
    /// The version's content breaks a rule, or can't be read.
    #[error("version {version} of {config} can't be used: {}", message(faults))]
    Version {
        /// The config, by the name of its folder.
        config: ConfigName,
        /// The version that `current` names.
        version: VersionName,
        /// All faults, never empty.
        faults: Vec<KeyFault>,
    },
    /// The configs before it fill a dictionary already.
    #[error(
        "{0} is not read: the configs before it already fill a dictionary, by number or by size; choose configs with --config"
    )]
    TooMuch(ConfigName),
    /// The operating system refused to read a file or folder.
    #[error("{} can't be read: {source}", path.display())]
    Unreadable {
        /// The file or folder.
        path: PathBuf,
        /// The error of opening the file or folder.
        source: OpenError,
    },
}

fn message(faults: &[KeyFault]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

impl ReadError {
    fn reason(&self) -> ProblemReason {
        match self {
            Self::Folder { .. } | Self::Unreadable { .. } => ProblemReason::Unreadable,
            Self::TooMuch(_) => ProblemReason::TooLarge,
            Self::ConfigMissing(_) => ProblemReason::ConfigMissing,
            Self::CurrentMissing(_) => ProblemReason::CurrentMissing,
            Self::CurrentInvalid { .. } => ProblemReason::CurrentInvalid,
            Self::VersionMissing { .. } => ProblemReason::VersionMissing,
            Self::Version { faults, .. } => version_reason(faults),
        }
    }
}

fn version_reason(faults: &[KeyFault]) -> ProblemReason {
    let reason = |fault: &KeyFault| match fault {
        KeyFault::Changing | KeyFault::Empty => ProblemReason::VersionIncomplete,
        KeyFault::TooLarge(_) | KeyFault::AllTooLarge | KeyFault::TooMany(_) => ProblemReason::TooLarge,
        KeyFault::NoFolder => ProblemReason::VersionMissing,
        KeyFault::Io { .. } => ProblemReason::Unreadable,
        KeyFault::Name(_) | KeyFault::NotAFile { .. } | KeyFault::Outside(_) => ProblemReason::VersionInvalid,
    };
    faults.first().map_or(ProblemReason::VersionInvalid, reason)
}

impl From<ReadError> for SourceFault {
    fn from(error: ReadError) -> Self {
        Self { reason: error.reason(), message: error.to_string() }
    }
}

/// The result of one scan of the folder.
#[derive(Debug, Default)]
pub struct Scan {
    /// The reading of every config.
    pub readings: Vec<Reading>,
    /// The folders whose changes matter, relative to the source's folder.
    pub folders: BTreeSet<PathBuf>,
    /// Messages about folders whose names can't be configs.
    pub ignored: Vec<String>,
    /// Whether files are being written: scan again soon.
    pub unsettled: bool,
    /// Whether the folder lies in a file system of this machine, which answers or fails but does not hang.
    pub local: bool,
}

/// A folder with configs. The source remembers the files that it has read, so that a scan without changes costs little.
#[derive(Debug)]
pub struct DirSource {
    path: PathBuf,
    selected: Option<Vec<ConfigName>>,
    scanned: BTreeMap<ConfigName, ScannedFolder>,
    /// Whether a version counts as incomplete while its files are being written.
    waits_for_writers: bool,
}

#[derive(Debug)]
struct ScannedFolder {
    /// `None` if the files were so young that their times can't show a change.
    fingerprint: Option<Fingerprint>,
    content: Arc<VersionContent>,
}

impl DirSource {
    /// Creates a source of configs in the folder `path`: the selected ones, or all.
    pub fn new(path: PathBuf, selected: Option<Vec<ConfigName>>) -> Self {
        Self { path, selected, scanned: BTreeMap::new(), waits_for_writers: false }
    }

    /// Returns the path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Lets a version count as incomplete while its files are being written. The first scan takes files as they are.
    pub fn wait_for_writers(&mut self) {
        self.waits_for_writers = true;
    }

    /// Reads the current version of every config.
    pub fn scan(&mut self) -> Scan {
        let mut scan = Scan::default();
        scan.folders.insert(PathBuf::new());
        let root = match Root::open(&self.path) {
            Ok(root) => root,
            Err(source) => {
                let message = ReadError::Folder { path: self.path.clone(), source }.to_string();
                let fault = SourceFault { reason: ProblemReason::Unreadable, message };
                let configs = self.selected.clone().unwrap_or_else(|| self.scanned.keys().cloned().collect());
                let lost = |config| Reading { config, result: Err(fault.clone()) };
                scan.readings = configs.into_iter().map(lost).collect();
                return scan;
            }
        };
        scan.local = root.is_local();
        let configs = if let Some(selected) = &self.selected {
            selected.clone()
        } else {
            let mut configs = list_configs(&root, &mut scan.ignored);
            // A config whose folder is gone stays served, with a problem.
            configs.extend(self.scanned.keys().cloned());
            configs.into_iter().collect()
        };
        let mut bytes = 0;
        for (index, config) in configs.into_iter().enumerate() {
            // Configs that surely do not fit are not even read. Merging finds the rest.
            let result = if index >= MAX_CONFIGS || bytes > MAX_DICTIONARY_BYTES {
                Err(ReadError::TooMuch(config.clone()))
            } else {
                self.read_config(&root, &config, &mut scan.folders)
            };
            match &result {
                Ok(content) => bytes += content.bytes(),
                Err(ReadError::Version { faults, .. }) => {
                    scan.unsettled |= faults.iter().any(|fault| matches!(fault, KeyFault::Changing));
                }
                Err(_) => {}
            }
            scan.readings.push(Reading { config, result: result.map_err(SourceFault::from) });
        }
        scan
    }

    fn read_config(
        &mut self,
        root: &Root,
        config: &ConfigName,
        folders: &mut BTreeSet<PathBuf>,
    ) -> Result<Arc<VersionContent>, ReadError> {
        let folder = PathBuf::from(config.as_str());
        folders.insert(folder.clone());
        let CurrentVersion { version, folder: version_folder } = current_version(root, config)?;
        let folder = folder.join(version_folder);
        folders.insert(folder.clone());
        if let Some(last) = self.scanned.get(config)
            && *last.content.version() == version
            && last.fingerprint.is_some()
            && fingerprint(root, &folder) == last.fingerprint
        {
            return Ok(Arc::clone(&last.content));
        }
        let (content, fingerprint) = read_content(root, config, &version, &folder)?;
        let age = fingerprint.age(SystemTime::now());
        if self.waits_for_writers && age < SETTLE_TIME {
            let (config, faults) = (config.clone(), vec![KeyFault::Changing]);
            return Err(ReadError::Version { config, version, faults });
        }
        let (content, fingerprint) = (Arc::new(content), Some(fingerprint).filter(|_| age >= TIMESTAMP_GRANULARITY));
        self.scanned.insert(config.clone(), ScannedFolder { fingerprint, content: Arc::clone(&content) });
        Ok(content)
    }
}

/// Returns the folders whose names are names of configs; messages about the others go to `ignored`.
fn list_configs(root: &Root, ignored: &mut Vec<String>) -> BTreeSet<ConfigName> {
    let is_folder = |name: &OsString| root.path().join(name).is_dir();
    let folders = root.list(Path::new("")).unwrap_or_default().into_iter().filter(is_folder);
    parse_names(folders, |name, error| ignored.push(format!("{}: {error}", root.path().join(name).display())))
}

/// Parses the names that do not begin with a dot. `ignore` gets those that break the rule.
fn parse_names<T: Ord + FromStr<Err = NameError>>(
    names: impl IntoIterator<Item = OsString>,
    mut ignore: impl FnMut(&OsStr, NameError),
) -> BTreeSet<T> {
    let names = names.into_iter().filter(|name| !name.as_encoded_bytes().starts_with(b"."));
    names.filter_map(|name| displayable(&name).parse().map_err(|error| ignore(&name, error)).ok()).collect()
}

/// Returns the version that `current` names.
pub(super) fn current_version(root: &Root, config: &ConfigName) -> Result<CurrentVersion, ReadError> {
    let folder = Path::new(config.as_str());
    let path = folder.join(names::CURRENT);
    let full_path = || root.path().join(&path);
    let invalid = |source| ReadError::CurrentInvalid { path: full_path(), source };
    match root.read_link(&path) {
        Ok(Some(target)) => {
            let absolute = std::path::absolute(root.path().join(folder)).unwrap_or_else(|_| root.path().join(folder));
            let canonical = root.path().join(folder).canonicalize().unwrap_or_else(|_| absolute.clone());
            parse_current_link(&target, &absolute)
                .or_else(|error| parse_current_link(&target, &canonical).map_err(|_| error))
                .map_err(invalid)
        }
        Ok(None) => {
            let file = root.open_file(&path).map_err(|source| ReadError::Unreadable { path: full_path(), source })?;
            let unreadable = |source| ReadError::Unreadable { path: full_path(), source: OpenError::Io(source) };
            if !file.metadata().map_err(unreadable)?.is_file() {
                return Err(invalid(CurrentError::Kind));
            }
            let mut content = Vec::new();
            file.take(MAX_CURRENT_BYTES + 1).read_to_end(&mut content).map_err(unreadable)?;
            parse_current_file(&content).map_err(invalid)
        }
        Err(error) if error.is_not_found() => Err(match root.list(folder) {
            Err(error) if error.is_not_found() => ReadError::ConfigMissing(root.path().join(folder)),
            _ => ReadError::CurrentMissing(config.clone()),
        }),
        Err(source) => Err(ReadError::Unreadable { path: full_path(), source }),
    }
}

/// Reads one version of a config from its folder.
pub(super) fn read_content(
    root: &Root,
    config: &ConfigName,
    version: &VersionName,
    folder: &Path,
) -> Result<(VersionContent, Fingerprint), ReadError> {
    let (values, fingerprint) = read_version(root, folder).map_err(|faults| {
        let (config, version) = (config.clone(), version.clone());
        match faults[..] {
            [KeyFault::NoFolder] => ReadError::VersionMissing { config, version, path: root.path().join(folder) },
            _ => ReadError::Version { config, version, faults },
        }
    })?;
    Ok((VersionContent::new(config.clone(), version.clone(), values), fingerprint))
}

/// The report of `nudge-agent check` about one config.
#[derive(Debug)]
pub struct ConfigReport {
    /// The name of the config.
    pub config: ConfigName,
    /// The current version, or the reason why it is not known.
    pub current: Result<VersionName, ReadError>,
    /// Every version in name order, with its content or its fault.
    pub versions: Vec<(VersionName, Result<VersionContent, ReadError>)>,
    /// Messages about names in the config's folder that can't be versions.
    pub ignored: Vec<String>,
}

impl ConfigReport {
    /// Reads every version of every config in `path`. Messages about names that can't be configs go to `ignored`.
    pub fn read_all(path: &Path, ignored: &mut Vec<String>) -> Result<Vec<Self>, ReadError> {
        let opened = Root::open(path);
        let root = opened.map_err(|source| ReadError::Folder { path: path.to_owned(), source })?;
        Ok(list_configs(&root, ignored).into_iter().map(|config| Self::read(&root, config)).collect())
    }

    fn read(root: &Root, config: ConfigName) -> Self {
        let folder = Path::new(config.as_str());
        let mut ignored = Vec::new();
        let mut entries = root.list(folder).unwrap_or_else(|source| {
            ignored.push(ReadError::Unreadable { path: root.path().join(folder), source }.to_string());
            Vec::new()
        });
        entries.retain(|name| name != names::CURRENT);
        let mut names: BTreeSet<VersionName> = parse_names(entries, |_, error| ignored.push(error.to_string()));
        let current = current_version(root, &config);
        // Of git-sync's checkouts, only the newest is a version.
        names.extend(
            current.iter().filter(|current| is_checkout(&current.folder)).map(|current| current.version.clone()),
        );
        let versions = names
            .into_iter()
            .map(|version| {
                let checkout = current.as_ref().ok().filter(|current| current.version == version);
                let version_folder = checkout.map_or(Path::new(version.as_str()), |current| &current.folder);
                let content =
                    read_content(root, &config, &version, &folder.join(version_folder)).map(|(content, _)| content);
                (version, content)
            })
            .collect();
        Self { current: current.map(|current| current.version), config, versions, ignored }
    }
}

#[cfg(test)]
#[path = "dir_source_tests.rs"]
mod tests;
