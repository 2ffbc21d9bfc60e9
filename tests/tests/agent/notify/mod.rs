//! The application is notified of a change by signals and by webhooks: never too early, and the last change is never
//! lost.

mod acknowledgement;
mod events;
mod inits;
mod newest;
mod retries;
mod signalled_app;
mod spared;
mod subscriptions;
mod targets;
