//! The configs that pods should have: the versions assigned to them, and their contents, each read once for all pods.

#[cfg(test)]
mod allowed_accounts_tests;
mod config_view;
mod content;
mod fetch;
#[cfg(test)]
pub(crate) mod fixtures;
#[cfg(test)]
mod missing_contents_tests;
mod mounted_secrets;
#[cfg(test)]
mod mounted_secrets_tests;
mod parts;
mod return_spread;
mod store;

pub(crate) use self::config_view::{AgentCopy, ConfigView, ConfigViews, config_views};
#[cfg(test)]
pub(crate) use self::content::Content;
pub use self::parts::{Part, PartError, PartSource};
pub(crate) use self::store::ContentStore;
