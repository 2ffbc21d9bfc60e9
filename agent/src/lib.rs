//! Nudge's agent: serves a pod's configuration as one flat dictionary over HTTPS and tells the containers when it changes.

pub mod content;
pub mod identity;
pub mod source;
