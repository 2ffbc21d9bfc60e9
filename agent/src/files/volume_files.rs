//! The folders that the agent keeps files in: all of the dictionary, and volumes in place of the pod's volumes of
//! ConfigMaps and Secrets.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use nudge_protocol::volumes::KeptVolume;
use nudge_protocol::{ConfigName, reserved};

use super::disk_room::{NoRoom, Room};
use super::file_swap::{self, File, ProjectError};
use crate::content::{Dictionary, Entry, Value, VersionContent};

/// The permission bits of the dictionary's files.
const DICTIONARY_MODE: u32 = 0o644;

/// The folders that the agent keeps files in.
#[derive(Clone, Debug, Default)]
pub struct FileFolders(Vec<FileFolder>);

/// One folder.
#[derive(Clone, Debug)]
struct FileFolder {
    path: PathBuf,
    layout: Layout,
}

/// The kind of files in a folder.
#[derive(Clone, Debug)]
enum Layout {
    /// The keys of the dictionary.
    Dictionary,
    /// The keys of objects, as the kubelet would write them.
    Objects(Box<KeptVolume>),
}

/// The sizes of files by their paths, for each folder.
pub type FileSizes = Vec<BTreeMap<String, usize>>;

/// The room left in the file systems of the folders.
pub struct Rooms(Vec<Option<Room>>);

impl Rooms {
    /// Checks whether files of these sizes fit.
    pub fn check(&self, sizes: &FileSizes) -> Result<(), NoRoom> {
        let pairs = self.0.iter().zip(sizes).filter_map(|(room, sizes)| Some((room.as_ref()?, sizes)));
        pairs.into_iter().try_for_each(|(room, sizes)| room.check(sizes))
    }
}

/// The reason why files are not written.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// The versions can't be the files of a volume.
    #[error(transparent)]
    Unfit(#[from] UnfitFiles),
    /// A volume needs the object of a config that has no content yet.
    #[error("volume {volume} of this pod waits for config {config}")]
    Waiting {
        /// The volume, by its name in the pod's spec.
        volume: String,
        /// The config without content.
        config: ConfigName,
    },
    /// The operating system refused.
    #[error(transparent)]
    Project(#[from] ProjectError),
}

/// The reason why versions can't be the files of a volume.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnfitFiles {
    /// A version lacks a key that the volume names.
    #[error("volume {volume} of this pod needs key {key} of {object}; add the key, or set optional in the volume")]
    Missing {
        /// The volume, by its name in the pod's spec.
        volume: String,
        /// The key that an item of the volume names.
        key: String,
        /// The object of the config.
        object: String,
    },
    /// A path is a file and a folder.
    #[error(
        "in volume {volume} of this pod, {path} would be a file and a folder; rename the key, or its path in the volume"
    )]
    Collision {
        /// The volume, by its name in the pod's spec.
        volume: String,
        /// The path below the volume's mount.
        path: String,
    },
}

impl FileFolders {
    /// Returns the folder for the whole dictionary, if any container mounts it, and the volumes.
    pub fn new(dictionary: Option<PathBuf>, volumes: Vec<KeptVolume>) -> Self {
        let dictionary = dictionary.map(|path| FileFolder { path, layout: Layout::Dictionary });
        let of_volume = |volume: KeptVolume| FileFolder {
            path: PathBuf::from(&volume.folder),
            layout: Layout::Objects(Box::new(volume)),
        };
        Self(dictionary.into_iter().chain(volumes.into_iter().map(of_volume)).collect())
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the paths of the folders, for people.
    pub fn paths(&self) -> String {
        self.0.iter().map(|folder| folder.path.display().to_string()).collect::<Vec<_>>().join(", ")
    }

    /// Returns the room that is left for further files.
    pub fn rooms(&self) -> Rooms {
        Rooms(self.0.iter().map(|folder| file_swap::room(&folder.path)).collect())
    }

    /// Returns the sizes of the files of a dictionary with these contents. Contents that have not arrived yet count
    /// nothing.
    pub fn sizes(&self, contents: &[Arc<VersionContent>]) -> Result<FileSizes, UnfitFiles> {
        let sizes = |folder: &FileFolder| match &folder.layout {
            Layout::Dictionary => Ok(dictionary_sizes(contents)),
            Layout::Objects(volume) => {
                let files = object_files(volume, contents)?;
                Ok(files.into_iter().map(|(path, (value, _))| (path, value.as_bytes().len())).collect())
            }
        };
        self.0.iter().map(sizes).collect()
    }

    /// Writes the files of the dictionary, those of each folder together. Returns messages about old files that can't
    /// be removed.
    pub fn write(&self, dictionary: &Dictionary) -> Result<Vec<String>, FilesError> {
        let mut leftovers = Vec::new();
        for folder in &self.0 {
            if let Some((volume, config)) = folder.awaited(dictionary) {
                let (volume, config) = (volume.to_owned(), config.clone());
                return Err(FilesError::Waiting { volume, config });
            }
            leftovers.extend(file_swap::project(&folder.path, &folder.files(dictionary)?, folder.mountpoints())?);
        }
        Ok(leftovers)
    }

    /// Returns whether the visible files already match the dictionary.
    pub fn have(&self, dictionary: &Dictionary) -> bool {
        let has_folder = |folder: &FileFolder| {
            let is_written = |files: Vec<File>| file_swap::is_in_place(&folder.path, &files, folder.mountpoints());
            folder.awaited(dictionary).is_none() && folder.files(dictionary).is_ok_and(is_written)
        };
        !self.0.is_empty() && self.0.iter().all(has_folder)
    }
}

impl FileFolder {
    /// Returns the folders inside `folder` that are mount points of other volumes.
    fn mountpoints(&self) -> &[String] {
        match &self.layout {
            Layout::Dictionary => &[],
            Layout::Objects(volume) => &volume.mountpoints,
        }
    }

    /// Returns the volume's name, and one of its required configs that has no content yet.
    fn awaited(&self, dictionary: &Dictionary) -> Option<(&str, &ConfigName)> {
        let Layout::Objects(volume) = &self.layout else { return None };
        let has_content = |config: &ConfigName| dictionary.contents().iter().any(|content| content.config() == config);
        let source = volume.sources.iter().find(|source| !source.optional && !has_content(&source.config))?;
        Some((&volume.volume, &source.config))
    }

    fn files(&self, dictionary: &Dictionary) -> Result<Vec<File>, UnfitFiles> {
        match &self.layout {
            Layout::Dictionary => Ok(dictionary_files(dictionary)),
            Layout::Objects(volume) => {
                let files = object_files(volume, dictionary.contents())?;
                let file = |(path, (value, mode)): (String, (&Value, u32))| File { path, content: value.share(), mode };
                Ok(files.into_iter().map(file).collect())
            }
        }
    }
}

/// Returns the files of all keys but `nudge.binary`, which matters only in JSON: files hold the raw bytes. The first
/// file names the versions, because most dictionaries differ there.
pub fn dictionary_files(dictionary: &Dictionary) -> Vec<File> {
    let entries = dictionary.entries().iter().filter(|entry| entry.key() != reserved::BINARY);
    let file =
        |entry: &Entry| File { path: entry.key().to_owned(), content: dictionary.raw(entry), mode: DICTIONARY_MODE };
    let mut files: Vec<File> = entries.map(file).collect();
    files.sort_by_key(|file| file.path != reserved::CONFIGS);
    files
}

fn dictionary_sizes(contents: &[Arc<VersionContent>]) -> BTreeMap<String, usize> {
    let (mut sizes, mut list) = (BTreeMap::new(), contents.len().saturating_sub(1));
    for content in contents {
        let (config, version) = (content.config().as_str(), content.version().as_str());
        // Later ones win.
        sizes.extend(content.values().iter().map(|(key, value)| (key.as_str().to_owned(), value.as_bytes().len())));
        sizes.insert(reserved::version_key(config), version.len());
        list += config.len() + 1 + version.len();
    }
    sizes.insert(reserved::CONFIGS.to_owned(), list);
    sizes
}

/// Returns the files of a volume, with their values and permission bits, by their paths.
fn object_files<'a>(
    volume: &KeptVolume,
    contents: &'a [Arc<VersionContent>],
) -> Result<BTreeMap<String, (&'a Value, u32)>, UnfitFiles> {
    let mut files = BTreeMap::new();
    for source in &volume.sources {
        let Some(content) = contents.iter().find(|content| *content.config() == source.config) else { continue };
        let mut values = content.values_of(source.kind);
        if source.items.is_empty() {
            files.extend(values.map(|(key, value)| (key.as_str().to_owned(), (value, source.mode))));
            continue;
        }
        let values: BTreeMap<_, _> = values.by_ref().collect();
        for item in &source.items {
            match values.get(&item.key) {
                Some(value) => {
                    files.insert(item.path.clone(), (*value, item.mode.unwrap_or(source.mode)));
                }
                None if source.optional => {}
                None => {
                    return Err(UnfitFiles::Missing {
                        volume: volume.volume.clone(),
                        key: item.key.to_string(),
                        object: format!("{} {}", source.kind, source.config),
                    });
                }
            }
        }
    }
    let mut folders = files.keys().flat_map(|path| path.match_indices('/').map(|(end, _)| &path[..end]));
    match folders.find(|folder| files.contains_key(*folder)) {
        Some(path) => Err(UnfitFiles::Collision { volume: volume.volume.clone(), path: path.to_owned() }),
        None => Ok(files),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use nudge_protocol::block::Stored;
    use nudge_protocol::volumes::{KeyFile, ObjectFiles, ObjectKind};
    use nudge_protocol::{Key, VersionName};

    use super::*;
    use crate::content::EtagKey;

    fn content(config: &str, keys: &[(&str, ObjectKind, &[u8])]) -> Arc<VersionContent> {
        let stored = |(key, kind, value): &(&str, ObjectKind, &[u8])| {
            (Key::new(key).unwrap(), Stored { kind: *kind, value: Value::from(*value) })
        };
        let (config, version) = (ConfigName::new(config).unwrap(), VersionName::new("1.0").unwrap());
        Arc::new(VersionContent::of_objects(config, version, keys.iter().map(stored).collect()))
    }

    fn source(config: &str, kind: ObjectKind, items: &[(&str, &str)]) -> ObjectFiles {
        let item = |(key, path): &(&str, &str)| KeyFile {
            key: Key::new(key).unwrap(),
            path: (*path).to_owned(),
            mode: Some(0o400),
        };
        let config = ConfigName::new(config).unwrap();
        ObjectFiles { config, kind, optional: false, mode: 0o644, items: items.iter().map(item).collect() }
    }

    fn volume(sources: Vec<ObjectFiles>) -> KeptVolume {
        KeptVolume {
            volume: "conf".to_owned(),
            folder: "/run/nudge/volumes/1".to_owned(),
            sources,
            mountpoints: Vec::new(),
        }
    }

    fn paths(volume: &KeptVolume, contents: &[Arc<VersionContent>]) -> Vec<(String, Vec<u8>, u32)> {
        let files = object_files(volume, contents).unwrap().into_iter();
        files.map(|(path, (value, mode))| (path, value.as_bytes().to_vec(), mode)).collect()
    }

    #[test]
    fn a_volume_has_the_keys_of_its_objects_alone() {
        use ObjectKind::{ConfigMap, Secret};
        let contents = [
            content("web", &[("a", ConfigMap, b"1"), ("b", ConfigMap, b"2"), ("pin", Secret, b"0000")]),
            content("other", &[("c", ConfigMap, b"3")]),
        ];
        let file = |path: &str, value: &[u8], mode| (path.to_owned(), value.to_vec(), mode);
        let whole = volume(vec![source("web", ConfigMap, &[])]);
        assert_eq!(paths(&whole, &contents), [file("a", b"1", 0o644), file("b", b"2", 0o644)]);
        let several =
            volume(vec![source("web", Secret, &[]), source("web", ConfigMap, &[("b", "conf.d/pin"), ("a", "pin")])]);
        assert_eq!(paths(&several, &contents), [file("conf.d/pin", b"2", 0o400), file("pin", b"1", 0o400)]);
        assert_eq!(paths(&whole, &contents[1..]), [], "a content that has not arrived");
    }

    #[test]
    fn a_version_without_a_key_that_a_volume_names_is_refused() {
        let contents = [content("web", &[("a", ObjectKind::Secret, b"1")])];
        let mut named = volume(vec![source("web", ObjectKind::ConfigMap, &[("a", "a")])]);
        let folders = FileFolders::new(None, vec![named.clone()]);
        let error = folders.sizes(&contents).unwrap_err().to_string();
        assert_eq!(
            error,
            "volume conf of this pod needs key a of ConfigMap web; add the key, or set optional in the volume"
        );
        named.sources[0].optional = true;
        assert_eq!(FileFolders::new(None, vec![named]).sizes(&contents), Ok(vec![BTreeMap::new()]));
    }

    #[test]
    fn files_wait_for_a_config_that_a_volume_needs() {
        let folder = tempfile::tempdir().unwrap();
        let mut kept = volume(vec![source("late", ObjectKind::ConfigMap, &[])]);
        kept.folder = folder.path().join("kept").display().to_string();
        let dictionary = Dictionary::merge(&[content("web", &[])], &EtagKey::new(b"")).unwrap();
        let folders = FileFolders::new(None, vec![kept.clone()]);
        let error = folders.write(&dictionary).unwrap_err().to_string();
        assert_eq!(error, "volume conf of this pod waits for config late");
        assert!(!folders.have(&dictionary) && folders.sizes(dictionary.contents()).is_ok());
        kept.sources[0].optional = true;
        assert_eq!(FileFolders::new(None, vec![kept]).write(&dictionary).unwrap(), [""; 0]);
    }

    #[test]
    fn a_path_that_is_a_file_and_a_folder_is_refused() {
        let contents = [content("web", &[("conf.d", ObjectKind::ConfigMap, b"1"), ("a", ObjectKind::ConfigMap, b"2")])];
        let both =
            [source("web", ObjectKind::ConfigMap, &[]), source("web", ObjectKind::ConfigMap, &[("a", "conf.d/a")])];
        let error = FileFolders::new(None, vec![volume(both.into())]).sizes(&contents).unwrap_err().to_string();
        assert!(error.contains("in volume conf of this pod, conf.d would be a file and a folder"), "{error}");
    }

    #[test]
    fn sizes_are_those_of_the_files_that_are_written() {
        let contents = [
            content("a", &[("both", ObjectKind::ConfigMap, b"1"), ("own", ObjectKind::Secret, b"22")]),
            content("b", &[("both", ObjectKind::ConfigMap, &[0xff; 7])]),
        ];
        let parent = tempfile::tempdir().unwrap();
        let mut kept = volume(vec![source("a", ObjectKind::ConfigMap, &[]), source("b", ObjectKind::ConfigMap, &[])]);
        kept.folder = parent.path().join("kept").display().to_string();
        let folders = FileFolders::new(Some(parent.path().join("all")), vec![kept]);
        let dictionary = Dictionary::merge(&contents, &EtagKey::new(b"")).unwrap();
        assert!(!folders.have(&dictionary));
        assert_eq!(folders.write(&dictionary).unwrap(), [""; 0]);
        assert!(folders.have(&dictionary));
        let written = |folder: &str| {
            let entries = fs::read_dir(parent.path().join(folder).join("..data")).unwrap().flatten();
            let size = |entry: &fs::DirEntry| usize::try_from(entry.metadata().unwrap().len()).unwrap();
            entries.map(|entry| (entry.file_name().into_string().unwrap(), size(&entry))).collect::<BTreeMap<_, _>>()
        };
        assert_eq!(folders.sizes(&contents), Ok(vec![written("all"), written("kept")]));
        assert!(folders.rooms().check(&folders.sizes(&contents).unwrap()).is_ok());
        assert_eq!(fs::read(parent.path().join("kept/both")).unwrap(), [0xff; 7], "the later source wins");
    }
}
