//! The text of a config's objects: it is read, becomes a version, and is recorded in the status.

mod follow;
mod make;
mod read;
