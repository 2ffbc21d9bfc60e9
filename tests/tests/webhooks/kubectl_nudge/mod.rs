//! `kubectl nudge` as users run it, against a real API server with the control plane.

mod namespaces;
mod rights;
mod scene;
mod terminal;
mod versions;
mod waiting;
mod workloads;
