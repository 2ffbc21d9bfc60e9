//! The client against Debian's registry, and against servers that attack it.

mod plain;
mod registry;
