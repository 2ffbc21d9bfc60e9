//! The content of a source, as its server gave it.

use std::fmt;

use nudge_api::{Origin, PartKind};
use nudge_core::versions::Contents;

/// The content of a source. The debug form has no value.
pub(crate) struct SourceContent {
    /// The kind of the version's objects.
    pub(crate) kind: PartKind,
    pub(crate) origin: Origin,
    pub(crate) contents: Contents,
}

impl fmt::Debug for SourceContent {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.origin.line())
    }
}
