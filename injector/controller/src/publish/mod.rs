//! Publication: the published ConfigMap and the published Secret are kept at the proven version. Each has its own
//! attempts: a failure stands in its condition and is tried again later, and keeps neither the other object nor a
//! decision waiting.

mod attempts;
mod calls;
#[cfg(test)]
mod publish_tests;

pub(crate) use calls::{Act, ObjectApi, publication_fault};
