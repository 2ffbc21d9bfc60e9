//! The versions that the kubelet has mounted into the agent: `<dir>/<config>/<version>/<part>/<key>`, where `<part>` of
//! a Secret ends with [`SECRET_SUFFIX`]. The `<part>` of a ConfigMap ends with [`DIGEST_SUFFIX`] and the digest of what
//! was sealed: another content is not used. A digest of a Secret would help to guess its values, so the hub compares
//! those: it has the seals.
//!
//! Mounted versions were current when the pod was admitted, so the pod starts even while the control plane is down.
//! Parts are mounted as optional volumes: the folder of a missing part is empty, and its version is not used.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use nudge_protocol::block::{self, BlockError, Stored};
use nudge_protocol::pod::{DIGEST_SUFFIX, SECRET_SUFFIX};
use nudge_protocol::volumes::ObjectKind;
use nudge_protocol::{ConfigName, Key, SecretDigest, VersionName};
use zeroize::Zeroizing;

use crate::content::{Value, digest_of};
use crate::source::dir::{KeyFault, OpenError, Root, is_ignored, read_version};

/// The reason why a mounted config can't be used.
#[derive(Debug, thiserror::Error)]
pub enum MountedError {
    /// A folder can't be read.
    #[error("{} can't be read: {source}", path.display())]
    Folder {
        /// The path of the folder.
        path: PathBuf,
        /// The error of opening the folder.
        source: OpenError,
    },
    /// A part is missing.
    #[error("version {version} is incomplete: part {part} is missing")]
    Incomplete {
        /// The version, by the name of its mounted folder.
        version: VersionName,
        /// The part's folder.
        part: String,
    },
    /// A part breaks a rule.
    #[error("version {version} can't be used: part {part}: {}", faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Part {
        /// The version, by the name of its mounted folder.
        version: VersionName,
        /// The part's folder.
        part: String,
        /// The faults of the part.
        faults: Vec<KeyFault>,
    },
    /// The content of a part is not the content that was sealed.
    #[error("part {part} of the mounted version {version} has another content than what was sealed")]
    Changed {
        /// The version, by the name of its mounted folder.
        version: VersionName,
        /// The part's number.
        part: usize,
    },
    /// Two parts have the same key.
    #[error("version {version} can't be used: several of its parts have the key {key}")]
    Twice {
        /// The version, by the name of its mounted folder.
        version: VersionName,
        /// The key that two parts have.
        key: Key,
    },
    /// The version is over a bound.
    #[error("version {version} can't be used: {source}")]
    Block {
        /// The version, by the name of its mounted folder.
        version: VersionName,
        /// The bound that is exceeded.
        source: BlockError,
    },
    /// No version is mounted.
    #[error("no version is mounted")]
    Nothing,
}

/// A mounted version.
#[derive(Debug)]
pub struct MountedVersion {
    /// The name of the version.
    pub version: VersionName,
    /// The keys and values, as a block.
    pub block: Value,
    /// The digests of the Secret parts, in the order of the parts.
    pub secrets: Vec<SecretDigest>,
}

/// Reads the mounted version of `config`. Of several versions, the last one by name that can be used counts.
pub fn read_mounted(dir: &Path, config: &ConfigName) -> Result<MountedVersion, MountedError> {
    let fail = |source| MountedError::Folder { path: dir.join(config.as_str()), source };
    let root = Root::open(dir).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => MountedError::Nothing,
        _ => fail(source.into()),
    })?;
    let folder = PathBuf::from(config.as_str());
    let mut versions: Vec<VersionName> = match root.list(&folder) {
        Ok(names) => names.iter().filter_map(|name| VersionName::new(name.to_str()?).ok()).collect(),
        Err(error) if error.is_not_found() => return Err(MountedError::Nothing),
        Err(error) => return Err(fail(error)),
    };
    versions.sort_unstable();
    let mut result = Err(MountedError::Nothing);
    for version in versions.into_iter().rev() {
        result = read_parts(&root, &folder, version);
        if result.is_ok() {
            break;
        }
    }
    result
}

fn read_parts(root: &Root, folder: &Path, version: VersionName) -> Result<MountedVersion, MountedError> {
    let folder = folder.join(version.as_str());
    let mut names =
        root.list(&folder).map_err(|source| MountedError::Folder { path: root.path().join(&folder), source })?;
    names.retain(|name| !is_ignored(name));
    names.sort_unstable_by_key(|name| part_number(name));
    let (mut values, mut secrets) = (BTreeMap::new(), Vec::new());
    for name in &names {
        let is_secret = name.to_str().is_some_and(|name| name.ends_with(SECRET_SUFFIX));
        let kind = if is_secret { ObjectKind::Secret } else { ObjectKind::ConfigMap };
        let part = || name.to_string_lossy().into_owned();
        let version = || version.clone();
        let (keys, _) = read_version(root, &folder.join(name)).map_err(|faults| match faults[..] {
            [KeyFault::Empty | KeyFault::NoFolder] => MountedError::Incomplete { version: version(), part: part() },
            _ => MountedError::Part { version: version(), part: part(), faults },
        })?;
        let digest = name.to_str().and_then(|name| name.split_once(DIGEST_SUFFIX));
        if digest.is_some_and(|(_, sealed)| !is_digest(&keys, sealed)) {
            return Err(MountedError::Changed { version: version(), part: part_number(name) });
        }
        if is_secret {
            secrets.push(SecretDigest::new(digest_of(&keys)));
        }
        for (key, value) in keys {
            if values.contains_key(&key) {
                return Err(MountedError::Twice { version: version(), key });
            }
            values.insert(key, Stored { kind, value });
        }
    }
    if names.is_empty() {
        return Err(MountedError::Nothing);
    }
    let mut bytes = Zeroizing::new(Vec::new());
    block::encode(&values, &mut bytes).map_err(|source| MountedError::Block { version: version.clone(), source })?;
    Ok(MountedVersion { version, block: Value::new(bytes), secrets })
}

/// Returns the number of a part by the name of its folder; 0 if the name has none.
fn part_number(name: &OsStr) -> usize {
    let number = name.to_str().and_then(|name| name.split('.').next());
    number.and_then(|number| number.parse().ok()).unwrap_or_default()
}

/// Returns whether the digest of the content begins with these hex digits.
fn is_digest(content: &BTreeMap<Key, Value>, sealed: &str) -> bool {
    let digest = digest_of(content);
    let digits = digest.rsplit(':').next().unwrap_or_default();
    !sealed.is_empty() && digits.starts_with(sealed)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// Writes a part as the kubelet mounts it.
    fn mount(dir: &Path, path: &str, pairs: &[(&str, &str)]) {
        let part = dir.join(path);
        fs::create_dir_all(part.join("..2026")).unwrap();
        for (key, value) in pairs {
            fs::write(part.join("..2026").join(key), value).unwrap();
            symlink(Path::new("..data").join(key), part.join(key)).unwrap();
        }
        symlink("..2026", part.join("..data")).unwrap();
    }

    fn shop() -> ConfigName {
        ConfigName::new("shop").unwrap()
    }

    fn mounted_version(dir: &Path) -> String {
        read_mounted(dir, &shop()).unwrap().version.to_string()
    }

    #[test]
    fn the_digests_of_secrets_have_the_order_of_the_parts() {
        let dir = tempfile::tempdir().unwrap();
        for (part, key) in [("10.secret", "j"), ("9.secret", "i"), ("2.secret", "b"), ("1", "a")] {
            mount(dir.path(), &format!("shop/1.0.0/{part}"), &[(key, "1")]);
        }
        let digest =
            |key| SecretDigest::new(digest_of(&BTreeMap::from([(Key::new(key).unwrap(), Value::from(&b"1"[..]))])));
        assert_eq!(read_mounted(dir.path(), &shop()).unwrap().secrets, ["b", "i", "j"].map(digest));
    }

    #[test]
    fn parts_are_one_content_or_none() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(read_mounted(&dir.path().join("no"), &shop()), Err(MountedError::Nothing)));
        assert!(matches!(read_mounted(dir.path(), &shop()), Err(MountedError::Nothing)));
        mount(dir.path(), "shop/1.0.0/1", &[("a", "1")]);
        mount(dir.path(), "shop/1.0.0/2.secret", &[("b", "2")]);
        let MountedVersion { version, block, secrets } = read_mounted(dir.path(), &shop()).unwrap();
        let secret = BTreeMap::from([(Key::new("b").unwrap(), Value::from(&b"2"[..]))]);
        assert_eq!(secrets, [SecretDigest::new(digest_of(&secret))]);
        let entries = block::decode(block.as_bytes()).unwrap();
        let entries: Vec<_> = entries.iter().map(|(key, stored)| (key.as_str(), stored.kind, stored.value)).collect();
        let expected = [("a", ObjectKind::ConfigMap, &b"1"[..]), ("b", ObjectKind::Secret, b"2")];
        assert_eq!((version.as_str(), &entries[..]), ("1.0.0", &expected[..]));

        mount(dir.path(), "shop/1.0.0/3", &[]);
        let error = read_mounted(dir.path(), &shop()).unwrap_err();
        assert_eq!(error.to_string(), "version 1.0.0 is incomplete: part 3 is missing");
        mount(dir.path(), "shop/0.9.0/1", &[("a", "0")]);
        assert_eq!(mounted_version(dir.path()), "0.9.0");
    }

    #[test]
    fn a_config_map_with_another_content_than_what_was_sealed_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let content = BTreeMap::from([(Key::new("a").unwrap(), Value::from(&b"1"[..]))]);
        let sealed = &digest_of(&content)["sha256:".len()..][..48];
        mount(dir.path(), &format!("shop/1.0.0/1.sha256-{sealed}"), &[("a", "1")]);
        mount(dir.path(), "shop/1.0.0/2.secret", &[("b", "2")]);
        assert_eq!(mounted_version(dir.path()), "1.0.0");
        mount(dir.path(), &format!("shop/1.0.1/1.sha256-{sealed}"), &[("a", "hunter2")]);
        assert_eq!(mounted_version(dir.path()), "1.0.0", "the sealed version is there, too");
        fs::remove_dir_all(dir.path().join("shop/1.0.0")).unwrap();
        let error = read_mounted(dir.path(), &shop()).unwrap_err().to_string();
        assert_eq!(error, "part 1 of the mounted version 1.0.1 has another content than what was sealed");
        mount(dir.path(), "shop/1.0.2/1.sha256-", &[("a", "1")]);
        assert!(read_mounted(dir.path(), &shop()).is_err(), "no digits are no digest");
    }

    #[test]
    fn a_key_in_two_parts_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        mount(dir.path(), "shop/1.0.0/1", &[("a", "1")]);
        mount(dir.path(), "shop/1.0.0/2", &[("a", "2")]);
        let error = read_mounted(dir.path(), &shop()).unwrap_err().to_string();
        assert!(error.contains("several of its parts have the key a"), "{error}");
    }
}
