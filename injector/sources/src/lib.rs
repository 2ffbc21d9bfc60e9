//! Sources: living objects become versions of a config. What is done is decided in `nudge_core::sources`; here it is watched and written.
// What others send is computed with: nothing overflows.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod content;
mod credentials;
mod feed;
mod files;
mod follow;
mod git;
mod limits;
mod metrics;
mod namespace;
mod oci;
mod run;
mod server_polls;
mod shared;
mod slow_fetch;
mod task;
mod upstream;
mod validity;
mod vault;
mod write_rate;
mod writes;

pub use limits::Budget;
pub use metrics::FetchMetrics;
pub use run::run;
pub use shared::Sources;
pub use write_rate::Rates;
