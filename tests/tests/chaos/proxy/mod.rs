//! Ways between processes that fail on demand.

pub(crate) mod api;
pub(crate) mod tcp;
mod tests;
