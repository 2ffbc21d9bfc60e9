//! Notifies the containers that another dictionary is served: by signals and by webhooks.
//!
//! Every subscriber has one task, which knows the newest dictionary only. Changes are not queued: each subscriber ends
//! with the newest dictionary, no subscriber is notified out of order, and a slow subscriber delays no other
//! subscriber.
//!
//! `scope` finds the processes of a container, `targets` decides which of them get the signal, and `signals` when it is
//! sent and repeated. `webhooks` has the subscriptions, and `webhook_post` posts one event, or asks a container.
//! `notification_record` remembers the notifications of an agent that is restarted.

mod notification_record;
mod notification_status;
mod scope;
mod signals;
mod targets;
mod webhook_post;
mod webhooks;

pub use notification_record::{NotificationRecord, NotifiedEtags};
pub use nudge_protocol::webhook_url::{TargetPolicy, WebhookTarget, WebhookUrl, WebhookUrlError};
pub use scope::{Containers, NotifyScope};
pub use signals::notify_by_signal;
pub use webhook_post::{DeliverError, Event, WebhookAnswer, post};
pub use webhooks::{WebhookError, Webhooks, random_name};
