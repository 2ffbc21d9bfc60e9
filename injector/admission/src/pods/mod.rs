//! Pods that opt in: the webhook around `nudge_core::injection`, and its look-ups.

mod lookups;
mod recent;
mod webhook;

pub use lookups::{KubePodLookups, PodLookupState, PodLookups};
pub use webhook::InjectPods;
