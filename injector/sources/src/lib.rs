//! Sources: living objects become versions of a config. What is done is decided in `nudge_core::sources`; here it is watched and written.

mod content;
mod credentials;
mod feed;
mod files;
mod follow;
mod git;
mod metrics;
mod namespace;
mod oci;
mod remote;
mod run;
mod shared;
mod task;
mod upstream;
mod validity;
mod vault;
mod writes;

pub use metrics::FetchMetrics;
pub use run::run;
pub use shared::Sources;
