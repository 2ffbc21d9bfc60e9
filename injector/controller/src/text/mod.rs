//! The text of a config's objects: it is read, becomes a version, and is recorded in the status, with
//! the workloads that read the objects themselves.

mod follow;
mod make;
mod read;
mod readers;
