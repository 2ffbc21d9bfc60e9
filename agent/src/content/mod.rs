//! Configuration as plain data: the content of versions, merged into the one flat dictionary that a pod sees.
//!
//! Nothing here does I/O. A [`VersionContent`] is what a source read; [`Dictionary`] is what the endpoint serves.

mod dictionary;
mod diff;
mod value;
mod version;

pub use dictionary::{ConfigView, Dictionary, Entry, EtagKey, NotExpressible, TooLarge, render_env};
pub use diff::changed_keys;
pub use value::Value;
pub use version::VersionContent;
