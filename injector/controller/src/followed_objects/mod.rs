//! The text of a config's objects: it is read, becomes a version, and is recorded in the status, with
//! the workloads that read the objects themselves.

mod direct_readers;
mod follow_text;
mod make_version;
mod read_text;
