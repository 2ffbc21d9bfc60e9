//! The variables of containers, as files that the kubelet reads when it starts them (`fileKeyRef`): `NAME='value'`.
//!
//! Everything between the quotes is literal, and there is no escape: a value that holds a single quote can't be
//! expressed. The kubelet takes an empty value for a missing one, and drops a carriage return at the end of a line.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use nudge_protocol::limits::MAX_VARIABLES_BYTES;
use nudge_protocol::{ContainerName, VariableName};
use zeroize::Zeroizing;

use crate::content::Dictionary;
use crate::files::FileError;
use crate::files::atomic_file::write_file;

/// The reason why containers can't be started with a dictionary. It names keys and no values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Inexpressible {
    /// The dictionary lacks a key.
    #[error("container {container} gets key {name} as a variable, and the dictionary does not have it; add it")]
    Missing {
        /// The container that would get the variable.
        container: ContainerName,
        /// The variable, which has the value of the key of its name.
        name: VariableName,
    },
    /// The value of a key can't be a variable.
    #[error("container {container} gets key {name} as a variable, and its value {fault}; change the value")]
    Value {
        /// The container that would get the variable.
        container: ContainerName,
        /// The variable, which has the value of the key of its name.
        name: VariableName,
        /// What the value holds, as the end of a message.
        fault: &'static str,
    },
    /// The variables of one container are too large.
    #[error(
        "the variables of container {container} have {bytes} bytes, and at most {MAX_VARIABLES_BYTES} are allowed; make values smaller"
    )]
    TooLarge {
        /// The container that would get the variables.
        container: ContainerName,
        /// The size of the file.
        bytes: usize,
    },
}

/// The reason why the files are not written.
#[derive(Debug, thiserror::Error)]
pub enum VariablesError {
    /// A value can't be expressed as a variable.
    #[error(transparent)]
    Inexpressible(#[from] Inexpressible),
    /// The operating system refused.
    #[error(transparent)]
    File(#[from] FileError),
}

/// The keys that become variables, by container.
#[derive(Clone, Debug)]
pub struct Variables {
    folder: PathBuf,
    by_container: BTreeMap<ContainerName, Vec<VariableName>>,
}

impl Variables {
    /// Creates variables of these keys, in files below `folder`.
    pub fn new(folder: &Path, pairs: Vec<(ContainerName, VariableName)>) -> Self {
        let mut by_container: BTreeMap<ContainerName, Vec<VariableName>> = BTreeMap::new();
        for (container, name) in pairs {
            by_container.entry(container).or_default().push(name);
        }
        Self { folder: folder.to_owned(), by_container }
    }

    /// Checks whether the variables can express the dictionary.
    pub fn check(&self, dictionary: &Dictionary) -> Result<(), Inexpressible> {
        self.by_container.iter().try_for_each(|(container, names)| render(dictionary, container, names).map(drop))
    }

    /// Writes the files, each in one step. Only the kubelet and the agent read them.
    pub fn write(&self, dictionary: &Dictionary) -> Result<(), VariablesError> {
        self.check(dictionary)?;
        for (container, names) in &self.by_container {
            let (text, path) = (render(dictionary, container, names)?, self.folder.join(container.as_str()));
            let result =
                fs::create_dir_all(&self.folder).and_then(|()| write_file(&path, 0o600, |file| file.write_all(&text)));
            result.map_err(FileError::at(&path, FileError::UNWRITABLE))?;
        }
        Ok(())
    }
}

/// Renders the file of one container.
fn render(
    dictionary: &Dictionary,
    container: &ContainerName,
    names: &[VariableName],
) -> Result<Zeroizing<Vec<u8>>, Inexpressible> {
    let mut values = Vec::with_capacity(names.len());
    for name in names {
        let value = dictionary.value(name.as_str());
        let value = value.ok_or_else(|| Inexpressible::Missing { container: container.clone(), name: name.clone() })?;
        if let Some(fault) = fault_of(&value) {
            return Err(Inexpressible::Value { container: container.clone(), name: name.clone(), fault });
        }
        values.push((name.as_str(), value));
    }
    let bytes = values.iter().map(|(name, value)| name.len() + value.len() + "=''\n".len()).sum();
    if bytes > MAX_VARIABLES_BYTES {
        return Err(Inexpressible::TooLarge { container: container.clone(), bytes });
    }
    let mut text = Zeroizing::new(Vec::with_capacity(bytes));
    for (name, value) in values {
        for part in [name.as_bytes(), b"='", &value, b"'\n"] {
            text.extend_from_slice(part);
        }
    }
    Ok(text)
}

/// Returns the reason why a variable can't have this value.
fn fault_of(value: &[u8]) -> Option<&'static str> {
    if value.is_empty() {
        Some("is empty")
    } else if value.contains(&b'\'') {
        Some("holds a single quote")
    } else if value.contains(&0) {
        Some("holds a NUL byte")
    } else if value.windows(2).any(|pair| pair == b"\r\n") {
        Some("holds a carriage return at the end of a line")
    } else if std::str::from_utf8(value).is_err() {
        Some("is not text in UTF-8")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::sync::Arc;

    use nudge_protocol::{ConfigName, Key, VersionName};
    use proptest::prelude::*;

    use super::*;
    use crate::content::{EtagKey, Value, VersionContent};

    fn dictionary(pairs: &[(&str, &[u8])]) -> Dictionary {
        let values = pairs.iter().map(|(key, value)| (Key::new(key).unwrap(), Value::from(*value))).collect();
        let content = VersionContent::new(ConfigName::new("shop").unwrap(), VersionName::new("1").unwrap(), values);
        Dictionary::merge(&[Arc::new(content)], &EtagKey::new(b"")).unwrap()
    }

    fn variables(folder: &Path, names: &[&str]) -> Variables {
        let pair = |name: &&str| (ContainerName::new("app").unwrap(), VariableName::new(name).unwrap());
        Variables::new(folder, names.iter().map(pair).collect())
    }

    /// Returns the value that the kubelet reads: `ParseEnv` in `pkg/kubelet/util/env` of Kubernetes 1.36.
    fn parse_env(text: &str, key: &str) -> Option<String> {
        // As bufio.ScanLines does.
        let mut lines = text.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line));
        while let Some(line) = lines.next() {
            if line.is_empty() {
                continue;
            }
            let (name, value) = line.split_once('=')?;
            let (mut rest, mut value) = (value.strip_prefix('\'')?, String::new());
            loop {
                if let Some((end, after)) = rest.split_once('\'') {
                    value.push_str(end);
                    assert_eq!(after, "");
                    break;
                }
                value.push_str(rest);
                value.push('\n');
                rest = lines.next()?;
            }
            if name == key {
                return (!value.is_empty()).then_some(value);
            }
        }
        None
    }

    #[test]
    fn the_named_keys_alone_are_written_for_the_kubelet_alone() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("variables");
        let all = dictionary(&[("GREETING", b"hello\nyou"), ("LIVES", b"3"), ("other", b"x")]);
        variables(&folder, &["LIVES", "GREETING"]).write(&all).unwrap();
        let file = folder.join("app");
        assert_eq!(fs::read_to_string(&file).unwrap(), "LIVES='3'\nGREETING='hello\nyou'\n");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        variables(&folder, &["LIVES"]).write(&dictionary(&[("LIVES", b"5")])).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "LIVES='5'\n");
        fs::remove_file(&file).unwrap();
        fs::create_dir_all(file.join("in-the-way")).unwrap();
        let refused = variables(&folder, &["LIVES"]).write(&all).unwrap_err();
        assert!(matches!(refused, VariablesError::File(_)), "{refused}");
    }

    #[test]
    fn what_a_variable_cannot_express_is_named_without_its_value() {
        let home = tempfile::tempdir().unwrap();
        let refusal = |value: &[u8]| {
            let refusal = variables(home.path(), &["LIVES"]).check(&dictionary(&[("LIVES", value)])).unwrap_err();
            refusal.to_string()
        };
        for (value, says) in [
            (&b""[..], "is empty"),
            (b"it's hunter2", "holds a single quote"),
            (b"hunter2\0", "holds a NUL byte"),
            (b"hunter2\r\nx", "carriage return"),
            (b"\xffhunter2", "not text in UTF-8"),
        ] {
            let said = refusal(value);
            assert!(said.contains(says) && said.contains("LIVES") && !said.contains("hunter2"), "{said}");
        }
        let said = variables(home.path(), &["GONE"]).check(&dictionary(&[("LIVES", b"3")])).unwrap_err().to_string();
        assert!(said.contains("gets key GONE as a variable, and the dictionary does not have it"), "{said}");
    }

    #[test]
    fn the_files_have_a_bound() {
        let home = tempfile::tempdir().unwrap();
        let largest = MAX_VARIABLES_BYTES - "LIVES=''\n".len();
        let check = |bytes| variables(home.path(), &["LIVES"]).check(&dictionary(&[("LIVES", &vec![b'x'; bytes])]));
        assert_eq!(check(largest), Ok(()));
        let container = ContainerName::new("app").unwrap();
        assert_eq!(check(largest + 1), Err(Inexpressible::TooLarge { container, bytes: MAX_VARIABLES_BYTES + 1 }));
    }

    proptest! {
        #[test]
        fn the_kubelet_reads_what_is_written(one in "[ -~\r\n\t'é#=]{0,20}", other in "[a-z\r\n #=]{1,20}") {
            let all = dictionary(&[("ONE", one.as_bytes()), ("OTHER", other.as_bytes())]);
            let (container, names) =
                (ContainerName::new("app").unwrap(), ["ONE", "OTHER"].map(|name| VariableName::new(name).unwrap()));
            if let Ok(text) = render(&all, &container, &names) {
                let text = std::str::from_utf8(&text).unwrap();
                prop_assert_eq!(parse_env(text, "ONE"), Some(one));
                prop_assert_eq!(parse_env(text, "OTHER"), Some(other));
            }
        }
    }
}
