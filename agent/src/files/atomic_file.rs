//! Files that are written in one step, so that no reader sees a part.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Writes a file under another name first and then renames it. The file gets exactly `mode`, whatever the umask is.
pub fn write_file(path: &Path, mode: u32, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let draft = path.with_extension("new");
    // A draft that an interrupted start has left is not reused.
    let _ = fs::remove_file(&draft);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    write(&mut file)?;
    file.set_permissions(Permissions::from_mode(mode))?;
    file.sync_all()?;
    fs::rename(draft, path)
}

/// Writes `content` as JSON into a file for this user only.
pub fn write_json(path: &Path, content: &impl Serialize) -> io::Result<()> {
    let bytes = serde_json::to_vec(content)?;
    write_file(path, 0o600, |file| file.write_all(&bytes))
}

/// Reads a file of JSON; `None` if there is no such file.
pub fn read_json<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
