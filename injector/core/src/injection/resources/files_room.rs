//! The room for the values as files, in memory.

use nudge_protocol::ConfigName;
use nudge_protocol::limits::{MAX_DICTIONARY_BYTES, MAX_KEYS};

use crate::injection::facts::{InjectionFacts, ResolvedConfig};
use crate::injection::quantity::Quantity;
use crate::injection::request::PodRequest;

/// The room in KiB that a file takes besides its bytes: for a partly filled page, its name, and the link to it.
const FILE_KIB: u64 = 5;
/// The minimum room, which a pod has while its configs have no version yet.
pub(in crate::injection) const MIN_FILES_ROOM: Quantity = Quantity::mebi(16);
/// The maximum growth factor of later versions.
const GROWTH_FACTOR: u64 = 2;

/// Returns the room for the files of these configs, in whole mebibytes; `None` if the pod requests no files.
pub(in crate::injection) fn files_room(
    request: &PodRequest,
    configs: &[ConfigName],
    facts: &InjectionFacts,
) -> Option<Quantity> {
    request.mount_path.as_ref()?;
    // One copy is served, the next copy replaces it, and containers are asked about a third copy.
    let copies = if request.checks.is_empty() { 2 } else { 3 };
    Some(room_of(configs.iter().filter_map(|name| facts.configs.get(name)), copies).max(MIN_FILES_ROOM))
}

/// Returns the room in whole mebibytes for this number of copies of the files of these configs, even if later versions
/// are twice as large.
pub(in crate::injection) fn room_of<'a>(configs: impl Iterator<Item = &'a ResolvedConfig>, copies: u64) -> Quantity {
    let (keys, bytes) = configs.fold((0_u64, 0_u64), |(keys, bytes), config| {
        (keys.saturating_add(config.keys.into()), bytes.saturating_add(config.bytes))
    });
    let keys = keys.saturating_mul(GROWTH_FACTOR).min(MAX_KEYS as u64);
    let bytes = bytes.saturating_mul(GROWTH_FACTOR).min(MAX_DICTIONARY_BYTES as u64);
    let kib = (keys * FILE_KIB + bytes.div_ceil(1024)) * copies;
    Quantity::mebi(kib.div_ceil(1024).into())
}
