//! The names and wire types that Nudge's agent, its control plane, and applications share.
//!
//! Everything here is plain data. Unknown fields of JSON objects are ignored on reading, so that an agent of any age
//! works with a newer control plane. Names are checked once, then carried as types:
//!
//! ```
//! use nudge_protocol::ConfigName;
//!
//! assert_eq!(ConfigName::new("shop").unwrap().as_str(), "shop");
//! assert!(ConfigName::new("two words").is_err());
//! ```

pub mod backoff;
pub mod bounded_text;
pub mod env;
pub mod error_chain;
pub mod headers;
pub mod hex;
mod key_pattern;
pub mod labels;
pub mod limits;
pub mod mutex;
pub mod named_enum;
pub mod names;
pub mod plural;
pub mod reserved;
pub mod settings;
pub mod wire;

pub use key_pattern::matches_pattern;
pub use names::{ConfigName, ContainerName, Key, KeyPattern, NameError, VariableName, VersionName};
pub use settings::notify::{Ack, Notify, NotifySignal, UnknownSetting};
pub use settings::{expectation, notify, pod, volumes, webhook_url};
pub use wire::error::{ErrorBody, HubErrorCode};
pub use wire::hub_ids::{BlockDigest, ConfigUid, SecretDigest};
pub use wire::{block, error, hub, notification, status, webhooks};
