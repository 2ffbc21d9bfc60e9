//! Telling the application of a change: by signals and by webhooks, never too early, and never the last change lost.

mod acknowledgement;
mod events;
mod newest;
mod retries;
mod signalled_app;
mod spared;
mod subscriptions;
mod targets;
