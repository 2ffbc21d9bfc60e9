//! The control plane with its webhooks: the tests share
//! [`Installation::shared_with_webhooks`](nudge_tests::Installation::shared_with_webhooks), each in a namespace of its
//! own. A single test that stops or freezes a server, or needs a replica with other settings, has a cluster of its own.

mod activation;
mod analysis;
mod approval;
mod backup;
mod config_sources;
mod contract;
mod history;
mod kubectl_nudge;
mod monitoring;
mod pods;
mod published_secrets;
mod takeover;
mod texts;
mod transcripts;
mod ui;
mod validation;
mod windows;
