//! Restarts of the workloads that take a version by a restart, one step after another, and evictions of pods that no
//! rolling update restarts. `nudge-core` decides about the next step.

mod evict;
mod restart_checks;
mod template;
mod workloads;
