//! Pods that opt in: the webhook around [`crate::injection`], and what it must know beyond the pod.

mod recent;
mod surroundings;
mod webhook;

pub use surroundings::{ClusterSurroundings, Known, Surroundings};
pub use webhook::InjectPods;
