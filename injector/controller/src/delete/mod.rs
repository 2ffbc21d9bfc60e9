//! Deletions of versions: those beyond the history limit, and those of a deleted config.

mod pruning;
mod versions_of_config;
