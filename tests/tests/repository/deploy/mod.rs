//! `deploy/` as a platform team installs it, and the examples that are applied to what is installed.

mod chart;
mod egress;
mod everywhere;
mod examples;
mod expressions;
mod hub_writes;
mod installing;
mod manifests;
mod policy;
mod release;
mod rendering;
mod rights;
mod roles;
