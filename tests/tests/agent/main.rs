//! The agent as a real process, and what else needs no Kubernetes.

mod bounds;
mod endpoint;
mod examples;
mod exec;
mod files;
mod from_git;
mod hub_source;
mod identity;
mod notify;
mod registries;
mod source;
mod usage;
