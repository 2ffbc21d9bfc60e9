//! Starts the browser. The address has a token, and all users of a machine see the arguments of all programs. The
//! browser therefore gets the name of a file that only this user may read, and the file redirects it to the address.

use std::io::Write as _;
use std::process::{Command, Stdio};

use tempfile::NamedTempFile;

/// The program that opens a file with the user's browser.
const OPENER: &str = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };

/// The file that takes the browser to the page. It is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct RedirectFile(NamedTempFile);

impl RedirectFile {
    /// Writes the file, in the directory of the user's session if that directory exists.
    fn new(address: &str) -> std::io::Result<Self> {
        let mut builder = tempfile::Builder::new();
        // Created for this user alone (0600).
        let builder = builder.prefix("kubectl-nudge-").suffix(".html");
        let mut file = match std::env::var_os("XDG_RUNTIME_DIR") {
            Some(folder) => builder.tempfile_in(folder).or_else(|_| builder.tempfile())?,
            None => builder.tempfile()?,
        };
        file.write_all(page(address).as_bytes())?;
        file.flush()?;
        Ok(Self(file))
    }

    /// Writes the file and opens it in the browser.
    pub(crate) fn open(address: &str) -> Result<Self, String> {
        let file = Self::new(address).map_err(|error| format!("the file for it can't be written: {error}"))?;
        let mut command = Command::new(OPENER);
        command.arg(file.0.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|error| format!("{OPENER}: {error}"))?;
        // Some openers run until the browser ends.
        std::thread::spawn(move || child.wait());
        Ok(file)
    }
}

/// Returns the text of the file. The address has no character that HTML would read as markup.
fn page(address: &str) -> String {
    format!(
        "<!doctype html><meta charset=utf-8><meta name=referrer content=no-referrer><title>Nudge</title>\n\
         <meta http-equiv=refresh content=\"0;url={address}\"><p><a href=\"{address}\">Nudge</a>\n"
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_file_is_for_this_user_alone_and_goes() {
        let file = RedirectFile::new("http://127.0.0.1:4711/#abc").unwrap();
        let path = file.0.path().to_owned();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!path.to_string_lossy().contains("abc"));
        assert!(std::fs::read_to_string(&path).unwrap().contains("0;url=http://127.0.0.1:4711/#abc\""));
        drop(file);
        assert!(!path.exists());
    }
}
