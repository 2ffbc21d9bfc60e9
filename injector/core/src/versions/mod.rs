//! Versions: their parts, when they are complete, what may not change, and which one becomes current.

#[cfg(test)]
mod any_spec_tests;
mod approval_status;
#[cfg(test)]
mod approval_tests;
mod author;
mod authors;
mod baseline;
#[cfg(test)]
mod bounds_tests;
mod conditions;
mod config_faults;
mod counts;
mod decide;
#[cfg(test)]
mod decide_tests;
mod digest;
mod facts;
#[cfg(test)]
mod gate_tests;
mod guarded_version;
mod importing;
mod inventory;
#[cfg(test)]
mod inventory_tests;
mod judged;
mod let_go;
mod made_for;
mod mark;
mod measurable;
mod part_labels;
mod prune;
mod reduced;
mod requested;
mod room;
#[cfg(test)]
mod room_tests;
#[cfg(test)]
mod schema_tests;
mod seal;
mod seal_check;
mod secret_type;
mod source_name;
#[cfg(test)]
mod unseen_tests;

pub use approval_status::{ApprovalScene, approval_status};
pub use author::{AUTHOR_BYTES, author, made_by};
pub(crate) use baseline::RESERVED;
pub use baseline::{
    FIRST_VERSION, baseline_refusal, first_config, first_names, first_version, is_first_version, wants_baseline,
};
pub use config_faults::config_faults;
pub(crate) use config_faults::name_fault;
pub use decide::{Decision, Observed, decide};
pub use digest::{Contents, PLAIN, contents_of, part_digest};
pub use facts::{PartFacts, object_name};
pub use guarded_version::Provenance;
pub use importing::{importing, is_importing};
pub use inventory::{Inventory, inventory};
pub use judged::{Judging, RulesState, Unjudged, Verdict, Verdicts};
pub use made_for::{made_for, made_for_a_config};
pub use mark::{is_marked, mark};
pub use measurable::wanted_rehearsal;
pub use part_labels::{MAX_PARTS, PartLabels, PartLabelsError, PartNumber};
pub use prune::{is_beyond_limit, to_prune};
pub use reduced::{Extent, reduced};
pub use room::{MAX_RETIRED, MAX_VERSIONS, is_nearly_full};
pub use seal::{SEAL, Seals};
pub use seal_check::{Facts, SealCheck, stand};
pub(crate) use secret_type::OPAQUE;
pub use secret_type::is_configuration;
pub use source_name::{SOURCE_PREFIX, digest_of_parts, is_of_source};
