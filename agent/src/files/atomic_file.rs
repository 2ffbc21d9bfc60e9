//! Files that are written in one step, so that no reader sees a part.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

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
