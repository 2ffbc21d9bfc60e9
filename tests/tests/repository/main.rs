//! What the repository says: its manifests, its pages, and which crate may use which.

mod deploy;
mod layers;
mod modules;
mod names;
mod pages;
