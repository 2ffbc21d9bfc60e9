//! Room for the values as files, in memory.

use nudge_protocol::ConfigName;
use nudge_protocol::limits::{MAX_DICTIONARY_BYTES, MAX_KEYS};

use crate::injection::facts::{Facts, ResolvedConfig};
use crate::injection::quantity::Quantity;
use crate::injection::request::PodRequest;

/// What a file takes beside its bytes, in KiB: a page that is not full, its name, and the link to it.
const FILE_KIB: u64 = 5;
/// The least room, which a pod has whose configs have no version yet.
pub(in crate::injection) const LEAST_ROOM: Quantity = Quantity::mebi(16);
/// How much larger a later version may be.
const GROWTH: u64 = 2;

/// The room for the files of these configs, in whole mebibytes; `None` where the pod asks for no files.
pub(in crate::injection) fn files_room(
    request: &PodRequest,
    configs: &[ConfigName],
    facts: &Facts,
) -> Option<Quantity> {
    request.mount_path.as_ref()?;
    // Those that are served, those that replace them, and those that containers are asked about.
    let copies = if request.checks.is_empty() { 2 } else { 3 };
    Some(room_of(configs.iter().filter_map(|name| facts.configs.get(name)), copies).max(LEAST_ROOM))
}

/// Returns the room for so many copies of the files of these configs, and of versions twice as large, in whole mebibytes.
pub(in crate::injection) fn room_of<'a>(configs: impl Iterator<Item = &'a ResolvedConfig>, copies: u64) -> Quantity {
    let (keys, bytes) = configs.fold((0_u64, 0_u64), |(keys, bytes), config| {
        (keys.saturating_add(config.keys.into()), bytes.saturating_add(config.bytes))
    });
    let keys = keys.saturating_mul(GROWTH).min(MAX_KEYS as u64);
    let bytes = bytes.saturating_mul(GROWTH).min(MAX_DICTIONARY_BYTES as u64);
    let kib = (keys * FILE_KIB + bytes.div_ceil(1024)) * copies;
    Quantity::mebi(kib.div_ceil(1024).into())
}
