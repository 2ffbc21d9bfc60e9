//! Notifies the containers that another dictionary is served: by signals and by webhooks.
//!
//! Every subscriber has one task, which knows the newest dictionary only. Changes are not queued: each subscriber ends
//! with the newest dictionary, no subscriber is notified out of order, and a slow subscriber delays no other
//! subscriber.
//!
//! `scope` finds the processes of a container, `targets` decides which of them get the signal, and `signals` when it is
//! sent and repeated. `webhooks` has the subscriptions, and `webhook_post` posts one event, or asks a container.
//! `verification` asks what a container shows after its notification; `sign_reading` decides whether it took the
//! version, and `metric_scan` reads pages of metrics. `http_exchange` is the client of all requests.
//! `notification_record` remembers the notifications of an agent that is restarted.

mod finding;
mod http_exchange;
mod metric_scan;
mod new_workers;
mod notification_record;
mod notification_status;
mod scope;
mod sign_reading;
mod signals;
mod targets;
mod verification;
mod webhook_post;
mod webhooks;

pub use http_exchange::DeliverError;
pub use metric_scan::{MetricReading, MetricScan, Sample};
pub use notification_record::{NotifiedEtags, keep_etags};
pub use nudge_protocol::webhook_url::{TargetPolicy, WebhookTarget, WebhookUrl, WebhookUrlError};
pub use scope::{Containers, NotifyScope};
pub use sign_reading::is_value;
pub use signals::{SignalledContainer, notify_by_signal};
pub use verification::Verifier;
pub use webhook_post::{Event, WebhookAnswer, post};
pub use webhooks::{WebhookError, Webhooks, random_name};
