//! The volumes that the agent keeps in place of volumes of ConfigMaps and Secrets. The injector writes them into the
//! agent's settings.
//!
//! The setting is a JSON list. Its fields follow `ConfigMapVolumeSource` and `SecretVolumeSource` of the Kubernetes
//! API.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::names::{ConfigName, Key};

/// The maximum number of volumes that the agent keeps for one pod.
pub const MAX_VOLUMES: usize = 32;

/// The kind of the objects that a version's keys are in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ObjectKind {
    /// A ConfigMap.
    #[default]
    ConfigMap,
    /// A Secret.
    Secret,
}

impl fmt::Display for ObjectKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, out)
    }
}

/// A volume that the agent keeps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KeptVolume {
    /// The name of the pod's volume whose place it takes.
    pub volume: String,
    /// The absolute path of the volume in the agent's container.
    pub folder: String,
    /// The objects whose keys are its files. If two have a file of the same path, the later one wins.
    pub sources: Vec<ObjectFiles>,
    /// Folders within it that other volumes are mounted at: relative paths.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mountpoints: Vec<String>,
}

/// The files of one object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ObjectFiles {
    /// The config, whose name the object has, too.
    pub config: ConfigName,
    /// The object's kind.
    #[serde(default)]
    pub kind: ObjectKind,
    /// Whether the object and its keys may be missing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
    /// The permission bits of files, 0 to 0o777.
    pub mode: u32,
    /// The keys that become files, and their paths. If empty, all keys are files under their own names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub items: Vec<KeyFile>,
}

/// The file of one key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KeyFile {
    /// The key of the object.
    pub key: Key,
    /// The path within the volume: relative, without `..`.
    pub path: String,
    /// The permission bits; those of all files of the object if it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<u32>,
}

/// Reads the setting.
///
/// # Errors
///
/// A message that names the fault of the text.
pub fn read(text: &str) -> Result<Vec<KeptVolume>, String> {
    let volumes: Vec<KeptVolume> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if volumes.len() > MAX_VOLUMES {
        return Err(format!("it has {} volumes, and at most {MAX_VOLUMES} are allowed", volumes.len()));
    }
    for volume in &volumes {
        if !volume.folder.starts_with('/') {
            return Err(format!("folder {:?} of volume {} is not an absolute path", volume.folder, volume.volume));
        }
        let paths = volume.sources.iter().flat_map(|source| &source.items).map(|item| &item.path);
        if let Some(path) = paths.chain(&volume.mountpoints).find(|path| !is_relative(path)) {
            return Err(format!("path {path:?} in volume {} leaves the volume", volume.volume));
        }
    }
    Ok(volumes)
}

/// Writes the setting.
pub fn write(volumes: &[KeptVolume]) -> String {
    // Maps with keys that are not texts, which would fail, are not in it.
    serde_json::to_string(volumes).unwrap_or_default()
}

/// Returns whether the path stays within the folder that it is relative to, and uses none of the agent's names there.
pub fn is_relative(path: &str) -> bool {
    let mut names = path.split('/');
    !path.starts_with("..") && names.all(|name| !matches!(name, "" | "." | ".."))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn volume() -> KeptVolume {
        let item =
            KeyFile { key: Key::new("app.conf").unwrap(), path: "conf.d/app.conf".to_owned(), mode: Some(0o400) };
        let source = |kind, items| ObjectFiles {
            config: ConfigName::new("web").unwrap(),
            kind,
            optional: kind == ObjectKind::Secret,
            mode: 0o644,
            items,
        };
        KeptVolume {
            volume: "conf".to_owned(),
            folder: "/run/nudge/volumes/1".to_owned(),
            sources: vec![source(ObjectKind::ConfigMap, Vec::new()), source(ObjectKind::Secret, vec![item])],
            mountpoints: vec!["extra".to_owned()],
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let volumes = vec![volume(), KeptVolume { mountpoints: Vec::new(), ..volume() }];
        assert_eq!(read(&write(&volumes)), Ok(volumes));
        assert_eq!(read("[]"), Ok(Vec::new()));
    }

    #[test]
    fn paths_stay_within_their_volume() {
        for path in ["/etc/passwd", "../x", "a/../../x", "a//b", "", "a/.", "..data/x", "..x"] {
            let mut outside = volume();
            outside.sources[1].items[0].path = path.to_owned();
            assert!(read(&write(&[outside])).unwrap_err().contains("leaves the volume"), "{path}");
            assert!(read(&write(&[KeptVolume { mountpoints: vec![path.to_owned()], ..volume() }])).is_err(), "{path}");
        }
        assert!(is_relative("a..b/..c"));
        assert!(read(&write(&[KeptVolume { folder: "x".to_owned(), ..volume() }])).unwrap_err().contains("absolute"));
        assert!(read(&write(&vec![volume(); MAX_VOLUMES + 1])).unwrap_err().contains("at most 32"));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,60}") {
            let _ = read(&text);
        }
    }
}
