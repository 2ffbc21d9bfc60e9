//! Nudge's control plane as a program: settings, wiring, supervision, health.

pub mod cli;
mod task_supervisor;
