//! The move of a config to a version: `spec.version`, who else writes it, and the wait for the end of the rollout.

pub(crate) mod field_managers;
pub(crate) mod outcome;
mod pods;
pub(crate) mod switch;
pub(crate) mod wait;

pub(crate) use pods::{PodCount, Pods};
