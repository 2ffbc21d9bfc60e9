//! The connection to the cluster: watches that keep an index, calls of the API server, the lease, the work queue, and
//! Events.

pub mod call;
pub mod credential_secret;
pub mod events;
pub mod features;
pub mod first_contact;
pub mod guarded_reader;
pub mod index;
pub mod jitter;
pub mod kubeconfig;
pub mod lease;
pub mod lenient_object;
pub mod listing;
pub mod object_referrers;
pub mod object_supervisor;
pub mod panics;
pub mod part_objects;
pub mod queue;
pub mod rights;
pub mod spans;
pub mod turns;
pub mod watch;
pub mod watch_health;
