//! The last good contents, stored in the agent's own memory volume: an agent that restarts serves them at once.
//!
//! The file has the format of a hub's reply, so one reader checks both. Its digests show whether it is damaged.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use nudge_protocol::hub::PollHead;
use zeroize::Zeroizing;

use super::reply::{PollReply, ReplyError, ReplyReader, write_reply};
use crate::content::Value;
use crate::files::FileError;
use crate::files::atomic_file::write_file;

/// The name of the file in the state folder.
const FILE_NAME: &str = "last-good";
/// The number of bytes that are read at once.
const READ_BYTES: usize = 64 * 1024;

/// The file with the last good contents of one agent.
#[derive(Clone, Debug)]
pub struct LastGood {
    path: PathBuf,
}

impl LastGood {
    /// Returns the file in this state folder.
    pub fn new(state: &Path) -> Self {
        Self { path: state.join(FILE_NAME) }
    }

    /// Reads the file; `None` if there is none.
    pub fn load(&self) -> Result<Option<PollReply>, FileError> {
        let io_error = |cause: io::Error| FileError::at(&self.path, FileError::UNREADABLE)(cause);
        let damaged = |cause: ReplyError| FileError::at(&self.path, "is damaged")(cause);
        let mut file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io_error(error)),
        };
        let mut reader = ReplyReader::default();
        let mut piece = Zeroizing::new(vec![0; READ_BYTES]);
        loop {
            match file.read(&mut piece) {
                Ok(0) => return reader.finish().map(Some).map_err(damaged),
                Ok(bytes) => reader.push(&piece[..bytes]).map_err(damaged)?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(io_error(error)),
            }
        }
    }

    /// Writes the file in one step, for this user only.
    pub fn store(&self, head: &PollHead, blocks: &[Value]) -> Result<(), FileError> {
        // A buffer would keep values in memory, so there is none.
        let result = write_file(&self.path, 0o600, |file| write_reply(head, blocks, file));
        result.map_err(FileError::at(&self.path, FileError::UNWRITABLE))
    }
}
