//! The agent's files.
//!
//! | question | file |
//! |---|---|
//! | Which folders hold the values, and with which files? | `volume_files` |
//! | How do the files of a folder change in one step? | `file_swap` |
//! | Do the files of a version fit? | `disk_room` |
//! | How does the agent write a file of its own? | `atomic_file` |

pub mod atomic_file;
pub mod disk_room;
mod file_swap;
pub mod volume_files;

pub use file_swap::{CandidateFiles, File, ProjectError, is_in_place, project};
