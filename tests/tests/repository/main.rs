//! What the repository says: its manifests, its pages, and which crate may use which.

mod deploy;
mod layers;
mod names;
mod pages;
