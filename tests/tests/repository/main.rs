//! What the repository says: its manifests, its pages, and which crate may use which.

mod deploy;
mod layers;
mod messages;
mod names;
mod pages;
