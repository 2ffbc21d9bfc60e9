//! Deletions of versions: those beyond the history limit, and those of a deleted config.

mod deleted_config;
mod pruning;
