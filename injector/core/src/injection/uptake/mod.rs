//! How each container of a pod takes a version of each of its configs: one pure function over the pod.
//!
//! | reads | takes it by |
//! |---|---|
//! | files that the agent keeps, `notify` set | the notification, after the files are swapped |
//! | files that the agent keeps, no `notify` | its files, which it watches |
//! | variables, `subPath`, files that only init containers mount, mounts that did not move | a restart |
//! | anything, `notify: none` written | itself; nothing is claimed about it |
//!
//! A container that reads nothing that the pod shows, but has the agent's endpoint, is notified or asks there.

mod container_uptake;
mod pod_reads;
#[cfg(test)]
mod uptake_tests;

pub use container_uptake::{ContainerUptake, RestartCause, Uptake};
pub use pod_reads::{ContainerReads, PodReads, ReadPath};
pub(in crate::injection) use pod_reads::{MAX_PAIRS, PodView, UnmovedMounts};
