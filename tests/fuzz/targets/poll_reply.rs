//! Any reply of the hub, and any file of the last good contents: it is read the same in any pieces, takes no more
//! memory than its bounds, and never lowers a revision.
#![cfg_attr(fuzzing, no_main)]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use nudge_agent::content::EtagKey;
use nudge_agent::source::Store;
use nudge_agent::source::hub::{LocalVersions, PollReply, ReplyError, ReplyReader, ReceivedBlock, write_reply};
use nudge_protocol::ConfigName;
use time::OffsetDateTime;

static ORDER: LazyLock<Vec<ConfigName>> =
    LazyLock::new(|| ["shop", "keys"].into_iter().map(|name| ConfigName::new(name).unwrap()).collect());

fuzz_target!(|bytes: &[u8]| {
    // The first byte cuts the rest in two, which come one after the other to the same agent.
    let Some((&cut, bytes)) = bytes.split_first() else { return };
    let (one, two) = bytes.split_at(bytes.len() * usize::from(cut) / 256);
    let mut local_versions = LocalVersions::new(ORDER.clone());
    let mut store = Store::new(Some(ORDER.clone()), EtagKey::new(b""));
    for bytes in [bytes, one, two] {
        let read = read(bytes, bytes.len().max(1));
        assert_eq!(read, self::read(bytes, 1), "pieces make no difference");
        let Ok(reply) = read else { continue };
        written(&reply);
        take(&mut local_versions, &mut store, reply);
    }
});

fn read(bytes: &[u8], piece: usize) -> Result<PollReply, ReplyError> {
    let mut reader = ReplyReader::default();
    for piece in bytes.chunks(piece) {
        reader.push(piece)?;
    }
    reader.finish()
}

/// What was read can be written and read again.
fn written(reply: &PollReply) {
    let mut bytes = Vec::new();
    let blocks: Vec<_> = reply
        .blocks
        .iter()
        .filter_map(|block| match block {
            ReceivedBlock::Block(block) => Some(block),
            ReceivedBlock::None => None,
            ReceivedBlock::TooLarge => unreachable!("inputs are not that long"),
        })
        .collect();
    write_reply(&reply.head, blocks, &mut bytes).unwrap();
    assert_eq!(read(&bytes, 7).as_ref(), Ok(reply));
}

fn take(local_versions: &mut LocalVersions, store: &mut Store, reply: PollReply) {
    let before = local_versions.request(0);
    let taken = local_versions.take(reply);
    store.apply(taken.readings, OffsetDateTime::UNIX_EPOCH);
    local_versions.settle(store);
    let after = local_versions.request(0);
    let (good, _) = local_versions.last_good();
    let is_good = |name: &ConfigName| good.configs.iter().any(|config| config.name == *name);
    for (before, after) in before.configs.iter().zip(&after.configs) {
        assert!(before.uid != after.uid || before.revision <= after.revision, "a revision went back");
        let served = store.good(&after.name);
        assert_eq!(served.is_some(), is_good(&after.name));
        if before.version.is_some() {
            assert!(served.is_some(), "what was good is lost");
        }
    }
}
