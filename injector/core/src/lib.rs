//! Nudge's decisions, as plain functions over plain data: no client, no runtime, and time is an argument.
//!
//! The controller gathers the facts about a config, requests the decision, and carries it out:
//!
//! ```text
//! let (decision, evidence) = config::decide(&observed, &evidence);
//! // Read the objects in `decision.unread`, write `decision.status`, and publish the Events.
//! // Decide again after the next change, or after `decision.recheck_after`.
//! ```

pub mod analysis;
pub mod baseline;
pub mod config;
pub mod derived_keys;
pub mod event_record;
mod faults;
pub mod features;
pub mod followed_objects;
pub mod governance;
pub mod hub_health;
pub mod identity;
pub mod injection;
pub mod keys;
pub mod namespaces;
pub mod outbound;
pub mod owners;
pub mod pods;
pub mod publish;
pub mod remote;
pub mod repair_plan;
pub mod requester;
pub mod restart;
pub mod rollout;
mod signed_notes;
pub mod sources;
pub mod versions;
