//! Notifies the containers that another dictionary is served: by signals and by webhooks.
//!
//! Every subscriber has one task, which looks at the newest dictionary only. Changes are not queued: each subscriber ends on the newest
//! dictionary, none is notified out of order, and a slow one delays no other.
//!
//! `scope` says which processes a container has, `targets` which of them get the signal, `signals` when it is sent and tried again.
//! `webhooks` has the subscriptions, `webhook_delivery` posts one event, or asks a container. `record` is what a restarted agent knows of
//! all that.

mod outcome;
mod record;
mod scope;
mod signals;
mod targets;
mod webhook_delivery;
mod webhooks;

pub use nudge_protocol::webhook_url::{TargetPolicy, WebhookTarget, WebhookUrl, WebhookUrlError};
pub use record::{Record, Taken};
pub use scope::{Containers, Scope};
pub use signals::notify_by_signal;
pub use webhook_delivery::{Answered, DeliverError, Event, post};
pub use webhooks::{WebhookError, Webhooks, random_name};
