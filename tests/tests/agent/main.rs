//! The agent as a real process, and other tests that need no Kubernetes.

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
