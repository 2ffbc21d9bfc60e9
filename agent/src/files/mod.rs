//! The agent's files.
//!
//! | question | file |
//! |---|---|
//! | Which folders hold the values, and with which files? | `volume_files` |
//! | How do the files of a folder change in one step? | `file_swap` |
//! | Do the files of a version fit? | `disk_room` |
//! | How does the agent write a file of its own? | `atomic_file` |
//! | How does it keep what it must know after a restart? | `state_file` |
//! | Why can't a file be used? | `file_error` |

pub mod atomic_file;
pub mod disk_room;
mod file_error;
mod file_swap;
mod state_file;
pub mod volume_files;

pub use file_error::FileError;
pub use file_swap::{CandidateFiles, File, ProjectError, is_in_place, project};
pub use state_file::StateFile;
