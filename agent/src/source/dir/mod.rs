//! The `dir` source: a folder with configs and their versions, for local work, Compose and tests.
//!
//! `<dir>/<config>/<version>/<key>` is a file for each value. `<dir>/<config>/current` names the current version: a
//! symbolic link to the version's folder, or a file that holds its name. The link may also point to a checkout of
//! git-sync's next to it, `.worktrees/<version>`.

mod current_version;
mod dir_source;
mod root;
mod switch;
mod version_folder;
mod watch;

pub use current_version::{CurrentError, CurrentVersion, parse_current_file, parse_current_link};
pub use dir_source::{ConfigReport, DirSource, ReadError, SETTLE_TIME, Scan};
pub use root::{OpenError, Root};
pub use switch::{SwitchError, switch_current};
pub use version_folder::{KeyFault, is_ignored, read_version};
pub use watch::{FolderChange, Watcher};
