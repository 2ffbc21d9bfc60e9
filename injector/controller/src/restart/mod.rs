//! Restarts of the workloads that take a version by a restart, one step after another, and evictions of pods that no
//! rolling update restarts. `nudge-core` decides about the next step.

mod evict;
mod restart_goal;
mod template;
mod workloads;

pub(crate) use restart_goal::is_restarting;
