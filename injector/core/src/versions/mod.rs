//! Versions: their parts, their completeness and seals, and the versions to delete.

#[cfg(test)]
mod bounds_tests;
mod config_of_part;
mod content_digests;
mod digest;
mod digest_names;
mod history_limit;
mod inventory;
#[cfg(test)]
mod inventory_tests;
mod mark;
mod part_author;
mod part_facts;
mod part_labels;
mod rule_verdicts;
mod seal;
mod seal_check;
mod source_gone;
mod undeletable_versions;
mod unused_time;
mod version_authors;
mod version_room;
#[cfg(test)]
mod version_room_tests;
mod wanted_version;

pub use config_of_part::{made_for, made_for_a_config};
pub use content_digests::ContentDigests;
pub use digest::{Contents, PLAIN, contents_of, part_digest, plain_digits};
pub use digest_names::{SOURCE_PREFIX, digest_of_parts, is_of_source, is_of_text};
pub use history_limit::{is_beyond_limit, to_prune};
pub use inventory::{Inventory, take_inventory};
pub use mark::{PartPlace, is_marked, mark};
pub use part_author::{AUTHOR_BYTES, author, made_by};
pub use part_facts::{PartFacts, object_name};
pub use part_labels::{MAX_PARTS, PartLabels, PartLabelsError, PartNumber};
pub use rule_verdicts::{Judging, RuleVerdict, RulesState, Unjudged, Verdicts};
#[cfg(test)]
pub(crate) use seal::tests::seals;
pub use seal::{SEAL, Seals};
#[cfg(test)]
pub(crate) use seal_check::tests::{facts, part};
pub use seal_check::{FactsByUid, SealCheck, seal_check};
pub use undeletable_versions::undeletable_versions;
pub use unused_time::{MAX_UNUSED_TIME, UnusedTime};
pub(crate) use version_authors::authors;
pub use version_room::{MAX_RETIRED_VERSIONS, MAX_VERSIONS, is_nearly_full};
pub(crate) use wanted_version::wanted_version;
