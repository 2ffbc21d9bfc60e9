//! What Nudge knows of the cluster, and how it talks to it: watches that keep an index, the lease, the queue of work, Events.

pub mod call;
pub mod events;
pub mod features;
pub mod index;
pub mod jitter;
pub mod kubeconfig;
pub mod lease;
pub mod listing;
pub mod queue;
pub mod watch;
