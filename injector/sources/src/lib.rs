//! Sources: living objects become versions of a config. What is done is decided in `nudge_core::sources`; here it is watched and written.

mod content;
mod follow;
mod namespace;
mod run;
mod shared;
mod task;
mod upstream;
mod validity;
mod writes;

pub use run::run;
pub use shared::Sources;
