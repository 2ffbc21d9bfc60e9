//! The agent's files.
//!
//! | question | file |
//! |---|---|
//! | Which folders hold the values, and with which files? | `folders` |
//! | How do the files of a folder change in one step? | `projection` |
//! | Do the files of a version fit? | `disk_room` |
//! | How does the agent write a file of its own? | `atomic_file` |

pub mod atomic_file;
pub mod disk_room;
pub mod folders;
mod projection;

pub use projection::{CandidateFiles, File, ProjectError, is_in_place, project};
