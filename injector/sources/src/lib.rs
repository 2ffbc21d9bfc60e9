//! Sources: what git, registries and Vault have becomes versions of a config. `nudge_core::sources` decides; this crate
//! asks and writes.
// The crate computes with data that others send, so nothing may overflow.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod budget;
mod credentials;
mod draft;
mod feed;
mod follow;
mod git;
mod metrics;
mod namespace;
mod oci;
mod run;
mod server_polls;
mod slow_fetch;
mod source_content;
mod sources;
mod task;
mod validity;
mod vault;
mod write_rate;
mod writes;

pub use budget::Budget;
pub use metrics::FetchMetrics;
pub use run::run;
pub use sources::Sources;
pub use write_rate::Rates;
