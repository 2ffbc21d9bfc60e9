//! Publication: the published ConfigMap and the published Secret are kept at the version that is proven. Each has its own attempts: what fails
//! at one is said in its condition and tried again later, and keeps neither the other one nor a decision waiting.

mod attempts;
mod calls;
#[cfg(test)]
mod publish_tests;
