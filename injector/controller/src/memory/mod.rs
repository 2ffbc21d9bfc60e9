//! The leader's memory between two reconciles. A new leader begins with an empty memory.

mod analysis;
mod approver_rights;
mod config;
mod followed_objects;
mod move_order;
mod number_writes;
mod publish_retries;
mod restart_check;
mod side_calls;
mod status_refusal;
mod validation;
mod workload_lists;

pub(crate) use analysis::{AnalysisMemory, Rehearsal};
pub(crate) use approver_rights::{Approver, ApproverRights};
pub(crate) use config::{ConfigMemories, HistoryInUse};
pub(crate) use followed_objects::{TextMemory, TextReading, TextSubject};
pub(crate) use move_order::{MoveOrder, MoveRight};
pub(crate) use number_writes::NumberWrites;
pub(crate) use publish_retries::{GivingWay, PublishAttempts, PublishSubject};
pub(crate) use restart_check::{RestartCheck, RestartMemory};
pub(crate) use side_calls::SideCall;
pub(crate) use status_refusal::StatusRefusal;
pub(crate) use validation::ValidationMemory;
pub(crate) use workload_lists::{PodController, WorkloadLists};
