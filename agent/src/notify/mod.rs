//! Tells the containers that another dictionary is served: by signals and by webhooks.
//!
//! Every subscriber has one task that looks at the newest dictionary only. What happens while it is busy is not queued but
//! seen when it is done, so each ends on the newest, none is told out of order, and a slow one delays no other.

mod backoff;
mod hooks;
mod outcome;
mod record;
mod scope;
mod signals;
mod targets;
mod webhook;

pub use backoff::Backoff;
pub use hooks::{HookError, Hooks};
pub use nudge_protocol::hook_url::{HookTarget, HookUrl, TargetPolicy, UrlError};
pub use record::{Record, Taken};
pub use scope::{Containers, Scope};
pub use signals::notify_by_signal;
