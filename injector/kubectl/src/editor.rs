//! The user's editor, as kubectl finds it, and the file that it opens.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use nudge_protocol::error_chain::without_os_code;
use tempfile::{Builder, NamedTempFile};
use zeroize::Zeroizing;

use crate::failure::{Failure, file_message};

/// The variables that name the editor, the first one first.
const VARIABLES: [&str; 3] = ["KUBE_EDITOR", "VISUAL", "EDITOR"];
/// The editor if no variable names one.
const DEFAULT: &str = "vi";
/// The maximum size of the file, which has the text of one object.
const MAX_BYTES: u64 = 8 << 20;

/// Returns the command of the editor.
pub(crate) fn editor(variable: impl Fn(&str) -> Option<String>) -> String {
    let commands = VARIABLES.into_iter().filter_map(variable);
    commands.map(|command| command.trim().to_owned()).find(|command| !command.is_empty()).unwrap_or(DEFAULT.to_owned())
}

/// A file that only this user can read. It is removed on drop.
pub(crate) struct EditFile(NamedTempFile);

impl EditFile {
    pub(crate) fn new(name: &str, text: &str) -> Result<Self, Failure> {
        // The crate creates files that nobody else can read.
        let file = Builder::new().prefix(&format!("kubectl-nudge-{name}-")).suffix(".yaml").tempfile();
        let file = file.map_err(|error| {
            Failure::new(format!("a temporary file can't be created: {}", without_os_code(&error.to_string())))
        })?;
        let file = Self(file);
        file.write(text)?;
        Ok(file)
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Replaces the text.
    pub(crate) fn write(&self, text: &str) -> Result<(), Failure> {
        // The editor may have put another file in its place.
        let file = fs::OpenOptions::new().write(true).truncate(true).open(self.path());
        let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
        written.map_err(|error| Failure::new(file_message(self.path(), &error)))
    }

    /// Reads the text.
    pub(crate) fn read(&self) -> Result<Zeroizing<String>, Failure> {
        let mut text = Zeroizing::new(String::new());
        let file = fs::File::open(self.path());
        let read = file.and_then(|file| file.take(MAX_BYTES).read_to_string(&mut text));
        read.map_err(|error| Failure::new(file_message(self.path(), &error)))?;
        Ok(text)
    }

    /// Opens the editor, and waits until it ends.
    pub(crate) fn open(&self, editor: &str) -> Result<(), Failure> {
        let status = command(editor, self.path()).status();
        let status = status.map_err(|error| {
            Failure::new(format!(
                "the editor {editor} can't start: {}; set KUBE_EDITOR",
                without_os_code(&error.to_string())
            ))
        })?;
        if status.success() {
            return Ok(());
        }
        let end = status.code().map_or_else(|| "a signal".to_owned(), |code| format!("exit code {code}"));
        Err(Failure::new(format!(
            "the editor {editor} ended with {end}, so nothing is changed; set KUBE_EDITOR to use another one"
        )))
    }

    pub(crate) fn keep(self) -> PathBuf {
        let path = self.path().to_owned();
        // A file that can't be kept is removed, and the path then leads nowhere.
        let _ = self.0.keep();
        path
    }
}

/// Returns the command that opens the file. The editor may have arguments.
#[cfg(unix)]
fn command(editor: &str, path: &Path) -> Command {
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("{editor} \"$0\"")).arg(path);
    command
}

/// Returns the command that opens the file. The editor may have arguments.
#[cfg(not(unix))]
fn command(editor: &str, path: &Path) -> Command {
    let mut words = editor.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or(DEFAULT));
    command.args(words).arg(path);
    command
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_first_variable_that_is_set_names_the_editor() {
        let of = |set: &'static [(&str, &str)]| {
            editor(|name| set.iter().find(|(variable, _)| *variable == name).map(|(_, value)| (*value).to_owned()))
        };
        assert_eq!(of(&[]), "vi");
        assert_eq!(of(&[("EDITOR", "nano"), ("VISUAL", "code --wait")]), "code --wait");
        assert_eq!(of(&[("KUBE_EDITOR", " "), ("EDITOR", "nano")]), "nano");
        assert_eq!(of(&[("KUBE_EDITOR", "ed"), ("VISUAL", "code")]), "ed");
    }

    #[test]
    fn the_file_is_private_and_removed() {
        let file = EditFile::new("shop", "lives: 3\n").unwrap();
        assert_eq!(fs::metadata(file.path()).unwrap().permissions().mode() & 0o777, 0o600);
        file.open("sed -i 's/3/5 6/'").unwrap();
        assert_eq!(*file.read().unwrap(), "lives: 5 6\n");
        file.write("x").unwrap();
        assert_eq!(*file.read().unwrap(), "x");
        let failure = file.open("false").unwrap_err().message;
        assert!(failure.contains("the editor false ended with exit code 1"), "{failure}");
        let path = file.path().to_owned();
        drop(file);
        assert!(!path.exists());
        let path = EditFile::new("shop", "").unwrap().keep();
        assert!(path.exists());
        fs::remove_file(path).unwrap();
    }
}
