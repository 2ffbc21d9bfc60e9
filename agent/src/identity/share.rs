//! The files for the pod's other containers, in a memory volume that all of them mount.

use std::fs;
use std::path::{Path, PathBuf};

use nudge_protocol::env;

use super::Identity;
use crate::files::FileError;
use crate::files::atomic_file::write_file;

/// The mode of the files: every container of the pod may read them, whatever its user.
const FILE_MODE: u32 = 0o444;

/// The fault of a file that can't be written, and what mends it.
const UNWRITABLE: &str = "can't be written (the folder that the pod's containers share must be there and writable)";

/// The folder that the pod's containers share.
#[derive(Clone, Debug)]
pub struct Share {
    folder: PathBuf,
}

impl Share {
    /// Returns the folder at this path.
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// Returns the path of the file with the token.
    pub fn token_file(&self) -> PathBuf {
        self.folder.join("token")
    }

    /// Returns the path of the file with the authority's certificate.
    pub fn certificate_file(&self) -> PathBuf {
        self.folder.join("ca.crt")
    }

    /// Returns the path of the file with variables. That file is written last: if it exists, so do the other files.
    pub fn env_file(&self) -> PathBuf {
        self.folder.join("env")
    }

    /// Writes all files, each in one step.
    pub fn write(&self, identity: &Identity, endpoint: &str) -> Result<(), FileError> {
        let token = identity.token.expose();
        self.write_parts(&self.token_file(), &[token])?;
        self.write_parts(&self.certificate_file(), &[identity.authority.certificate_pem()])?;
        // The format of `fileKeyRef` requires single quotes, and neither value can contain a single quote.
        let parts = [env::TOKEN, "='", token, "'\n", env::ENDPOINT, "='", endpoint, "'\n"];
        self.write_parts(&self.env_file(), &parts)
    }

    fn write_parts(&self, path: &Path, parts: &[&str]) -> Result<(), FileError> {
        let result = fs::create_dir_all(&self.folder).and_then(|()| {
            write_file(path, FILE_MODE, |file| parts.iter().try_for_each(|part| file.write_all(part.as_bytes())))
        });
        result.map_err(FileError::at(path, UNWRITABLE))
    }

    /// Reads one variable of the env file.
    pub fn variable(&self, name: &str) -> Option<String> {
        let text = fs::read_to_string(self.env_file()).ok()?;
        let value = |line: &str| Some(line.strip_prefix(name)?.strip_prefix("='")?.strip_suffix('\'')?.to_owned());
        text.lines().find_map(value)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use time::OffsetDateTime;

    use super::*;

    #[test]
    fn every_user_can_read_the_files_and_a_second_start_replaces_them() {
        let parent = tempfile::tempdir().unwrap();
        let share = Share::new(&parent.path().join("share"));
        let identity = Identity::generate(OffsetDateTime::now_utc()).unwrap();
        assert_eq!(share.variable(env::TOKEN), None);
        for endpoint in ["https://10.0.0.7:9001/config", "https://[fd00::7]:9001/config"] {
            share.write(&identity, endpoint).unwrap();
            assert_eq!(share.variable(env::ENDPOINT).unwrap(), endpoint);
        }
        assert_eq!(share.variable(env::TOKEN).unwrap(), identity.token.expose());
        assert_eq!(fs::read_to_string(share.token_file()).unwrap(), identity.token.expose());
        for file in [share.token_file(), share.certificate_file(), share.env_file()] {
            assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o444);
        }
    }
}
