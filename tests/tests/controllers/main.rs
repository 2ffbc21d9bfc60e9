//! The control plane without its webhooks: the acts of its controllers by themselves. The tests share
//! [`Installation::shared`](nudge_tests::Installation::shared), each in a namespace of its own.

mod baseline;
mod editors;
mod kubelet;
mod mounted_secrets;
mod restarts;
mod rollouts;
mod statuses;
mod texts;
mod versions;
