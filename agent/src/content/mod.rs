//! Configuration as plain data: the content of versions, merged into the one flat dictionary that a pod sees.
//!
//! Nothing here does I/O. A source reads a [`VersionContent`]; the endpoint serves a [`Dictionary`].

mod changed_keys;
mod dictionary;
mod value;
mod version_content;

pub use changed_keys::{changed_keys, changed_object_keys};
pub use dictionary::{ConfigView, Dictionary, Entry, EtagKey, NotExpressible, TooLarge, render_env};
pub use value::Value;
pub use version_content::VersionContent;
pub(crate) use version_content::digest_of;
