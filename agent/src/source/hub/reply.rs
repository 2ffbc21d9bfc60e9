//! Reads a poll's reply as it arrives: the head, then the blocks, each behind its length. Nothing in the reply is
//! trusted.
//!
//! A block goes into a buffer of its own size, which never grows, so that no copy of a value stays in memory.

use std::collections::BTreeSet;
use std::io::{self, Write};

use nudge_protocol::block::MAX_BLOCK_BYTES;
use nudge_protocol::hub::{MAX_HEAD_BYTES, PollHead};
use nudge_protocol::limits::{MAX_CONFIGS, MAX_DICTIONARY_BYTES};
use zeroize::Zeroizing;

use crate::content::Value;

/// The reason why a reply can't be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    /// The head is empty or over its bound.
    #[error("its head would be {0} bytes, and 1 to {MAX_HEAD_BYTES} are allowed")]
    HeadLength(usize),
    /// The head is not the expected JSON.
    #[error("its head can't be read: {0}")]
    Head(String),
    /// A config is named twice.
    #[error("its head names a config twice")]
    Repeated,
    /// The head has too many configs.
    #[error("its head has {0} configs, and at most {MAX_CONFIGS} are allowed")]
    Configs(usize),
    /// A block is over its bound.
    #[error("a block would be {0} bytes, and at most {MAX_BLOCK_BYTES} are allowed")]
    BlockLength(usize),
    /// A block has another length than the head says.
    #[error("a block has another length than the head says")]
    Disagree,
    /// The reply ends too early.
    #[error("it was cut off")]
    Cut,
    /// The reply continues after its last block.
    #[error("there are more bytes after its end")]
    TooLong,
}

/// The block that arrived for one config of the head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceivedBlock {
    /// No block.
    None,
    /// A block that fits.
    Block(Value),
    /// A block that does not fit into a dictionary together with those before it.
    TooLarge,
}

/// A whole reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PollReply {
    /// The versions that the pod is assigned.
    pub head: PollHead,
    /// The block for each config of the head.
    pub blocks: Vec<ReceivedBlock>,
}

/// The stage of reading a reply.
enum ReplyStage {
    Fill(ReplyPart, Buffer),
    /// A block that does not fit, with the number of its bytes that have not arrived yet.
    Skip(usize),
    Done,
}

#[derive(Clone, Copy)]
enum ReplyPart {
    /// The length of the head or of the next block.
    Length,
    Head,
    Block,
}

struct Buffer {
    bytes: Zeroizing<Vec<u8>>,
    length: usize,
}

impl Buffer {
    fn new(length: usize) -> Self {
        Self { bytes: Zeroizing::new(Vec::with_capacity(length)), length }
    }

    /// Takes bytes of the input. Returns the rest of the input, and whether the buffer is full.
    fn fill<'a>(&mut self, input: &'a [u8]) -> (&'a [u8], bool) {
        let (part, unread_input) = input.split_at(input.len().min(self.length - self.bytes.len()));
        self.bytes.extend_from_slice(part);
        (unread_input, self.bytes.len() == self.length)
    }
}

/// A reader of a reply, which takes the bytes in pieces of any size.
pub struct ReplyReader {
    stage: ReplyStage,
    head: Option<PollHead>,
    blocks: Vec<ReceivedBlock>,
    /// The number of bytes that still fit into a dictionary.
    left: usize,
}

impl Default for ReplyReader {
    fn default() -> Self {
        Self { stage: ReplyStage::length(), head: None, blocks: Vec::new(), left: MAX_DICTIONARY_BYTES }
    }
}

impl ReplyStage {
    fn length() -> Self {
        Self::Fill(ReplyPart::Length, Buffer::new(size_of::<u32>()))
    }
}

impl ReplyReader {
    /// Takes the next piece.
    pub fn push(&mut self, mut input: &[u8]) -> Result<(), ReplyError> {
        while !input.is_empty() {
            match &mut self.stage {
                ReplyStage::Done => return Err(ReplyError::TooLong),
                ReplyStage::Fill(part, buffer) => {
                    let is_full;
                    (input, is_full) = buffer.fill(input);
                    if is_full {
                        let (part, bytes) = (*part, std::mem::take(&mut buffer.bytes));
                        self.complete(part, bytes)?;
                    }
                }
                ReplyStage::Skip(left) => {
                    let count = input.len().min(*left);
                    *left -= count;
                    input = &input[count..];
                    if *left == 0 {
                        self.blocks.push(ReceivedBlock::TooLarge);
                        self.advance();
                    }
                }
            }
        }
        Ok(())
    }

    /// Takes in a part that has arrived.
    fn complete(&mut self, part: ReplyPart, bytes: Zeroizing<Vec<u8>>) -> Result<(), ReplyError> {
        match part {
            ReplyPart::Length => return self.begin(bytes.iter().fold(0, |sum, &byte| sum << 8 | usize::from(byte))),
            ReplyPart::Head => self.head = Some(read_head(&bytes)?),
            ReplyPart::Block => self.blocks.push(ReceivedBlock::Block(Value::new(bytes))),
        }
        self.advance();
        Ok(())
    }

    /// Returns the reply, if it is complete.
    pub fn finish(self) -> Result<PollReply, ReplyError> {
        match (self.stage, self.head) {
            (ReplyStage::Done, Some(head)) => Ok(PollReply { head, blocks: self.blocks }),
            _ => Err(ReplyError::Cut),
        }
    }

    /// Begins the head or block of this length.
    fn begin(&mut self, length: usize) -> Result<(), ReplyError> {
        let Some(head) = &self.head else {
            if !(1..=MAX_HEAD_BYTES).contains(&length) {
                return Err(ReplyError::HeadLength(length));
            }
            self.stage = ReplyStage::Fill(ReplyPart::Head, Buffer::new(length));
            return Ok(());
        };
        let expected = head.configs.get(self.blocks.len()).and_then(|config| config.length);
        if expected.and_then(|expected| usize::try_from(expected).ok()) != Some(length) {
            return Err(ReplyError::Disagree);
        }
        // Even an empty block has the number of its entries.
        if !(1..=MAX_BLOCK_BYTES).contains(&length) {
            return Err(ReplyError::BlockLength(length));
        }
        self.stage = match self.left.checked_sub(length) {
            Some(left) => {
                self.left = left;
                ReplyStage::Fill(ReplyPart::Block, Buffer::new(length))
            }
            None => ReplyStage::Skip(length),
        };
        Ok(())
    }

    /// Proceeds to the next config that has a block.
    fn advance(&mut self) {
        let configs = self.head.as_ref().map_or(&[][..], |head| &head.configs);
        while configs.get(self.blocks.len()).is_some_and(|config| config.length.is_none()) {
            self.blocks.push(ReceivedBlock::None);
        }
        self.stage = if self.blocks.len() == configs.len() { ReplyStage::Done } else { ReplyStage::length() };
    }
}

fn read_head(bytes: &[u8]) -> Result<PollHead, ReplyError> {
    let head: PollHead = serde_json::from_slice(bytes).map_err(|error| ReplyError::Head(error.to_string()))?;
    if head.configs.len() > MAX_CONFIGS {
        return Err(ReplyError::Configs(head.configs.len()));
    }
    let mut names = BTreeSet::new();
    if !head.configs.iter().all(|config| names.insert(&config.name)) {
        return Err(ReplyError::Repeated);
    }
    Ok(head)
}

/// Writes a reply: the head, then in order a block for each of its configs that has a length. The file with the last
/// good contents has this format, too.
pub fn write_reply<'a>(
    head: &PollHead,
    blocks: impl IntoIterator<Item = &'a Value>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut part = |bytes: &[u8]| {
        let length = u32::try_from(bytes.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        out.write_all(&length.to_be_bytes())?;
        out.write_all(bytes)
    };
    part(&serde_json::to_vec(head)?)?;
    blocks.into_iter().try_for_each(|block| part(block.as_bytes()))
}

#[cfg(test)]
mod tests {
    use nudge_protocol::hub::PollConfig;
    use nudge_protocol::{ConfigName, ConfigUid};
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn head(lengths: &[Option<usize>]) -> PollHead {
        let config = |(at, length): (usize, &Option<usize>)| PollConfig {
            name: ConfigName::new(&format!("c{at}")).unwrap(),
            uid: ConfigUid::new("u"),
            revision: 1,
            version: None,
            sha256: None,
            length: length.map(|length| u32::try_from(length).unwrap()),
            problem: None,
            ack_timeout_seconds: None,
            mounted_secrets: None,
        };
        PollHead { configs: lengths.iter().enumerate().map(config).collect(), ..PollHead::default() }
    }

    fn read(bytes: &[u8]) -> Result<PollReply, ReplyError> {
        let mut reader = ReplyReader::default();
        reader.push(bytes)?;
        reader.finish()
    }

    fn to_bytes(head: &PollHead, blocks: &[Value]) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_reply(head, blocks, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn malformed_replies_are_refused_each_with_its_error() {
        assert_eq!(read(b""), Err(ReplyError::Cut));
        assert!(matches!(read(b"<html>"), Err(ReplyError::HeadLength(_))));
        assert_eq!(read(&[0, 0, 0, 0]), Err(ReplyError::HeadLength(0)));
        assert!(matches!(read(b"\0\0\0\x02{]"), Err(ReplyError::Head(_))));
        let mut twice = head(&[None, None]);
        twice.configs[1].name = twice.configs[0].name.clone();
        assert_eq!(read(&to_bytes(&twice, &[])), Err(ReplyError::Repeated));
        assert_eq!(read(&to_bytes(&head(&[None; MAX_CONFIGS + 1]), &[])), Err(ReplyError::Configs(MAX_CONFIGS + 1)));
        let block = [Value::from(&b"four"[..])];
        assert_eq!(read(&to_bytes(&head(&[Some(5)]), &block)), Err(ReplyError::Disagree));
        assert_eq!(read(&to_bytes(&head(&[None]), &block)), Err(ReplyError::TooLong));
        let huge = head(&[Some(MAX_BLOCK_BYTES + 1)]);
        let mut bytes = to_bytes(&huge, &[]);
        bytes.extend(u32::try_from(MAX_BLOCK_BYTES + 1).unwrap().to_be_bytes());
        assert_eq!(read(&bytes), Err(ReplyError::BlockLength(MAX_BLOCK_BYTES + 1)));
    }

    #[test]
    fn a_block_that_does_not_fit_is_dropped_and_the_rest_is_kept() {
        let most = Value::from(&vec![7; MAX_DICTIONARY_BYTES - 4][..]);
        let (two, four) = (Value::from(&b"22222"[..]), Value::from(&b"4444"[..]));
        let head = head(&[Some(most.as_bytes().len()), Some(5), Some(4)]);
        let reply = read(&to_bytes(&head, &[most.clone(), two, four.clone()])).unwrap();
        assert_eq!(reply.blocks, [ReceivedBlock::Block(most), ReceivedBlock::TooLarge, ReceivedBlock::Block(four)]);
    }

    proptest! {
        #[test]
        fn a_reply_is_read_in_any_pieces_and_never_when_it_is_cut(
            contents in vec(prop::option::of(vec(any::<u8>(), 1..30)), 0..5), piece in 1usize..40, cut in 1usize..200,
        ) {
            let head = head(&contents.iter().map(|content| content.as_ref().map(Vec::len)).collect::<Vec<_>>());
            let blocks: Vec<Value> = contents.iter().flatten().map(|content| Value::from(&content[..])).collect();
            let bytes = to_bytes(&head, &blocks);
            let mut reader = ReplyReader::default();
            for piece in bytes.chunks(piece) {
                reader.push(piece).unwrap();
            }
            let reply = reader.finish().unwrap();
            prop_assert_eq!(&reply.head, &head);
            let expected = contents.iter().map(|content| match content {
                None => ReceivedBlock::None,
                Some(content) => ReceivedBlock::Block(Value::from(&content[..])),
            });
            prop_assert_eq!(reply.blocks, expected.collect::<Vec<_>>());
            prop_assert_eq!(read(&bytes[..bytes.len() - cut.min(bytes.len())]), Err(ReplyError::Cut));
        }

        #[test]
        fn noise_never_panics(bytes in vec(any::<u8>(), 0..200)) {
            let _ = read(&bytes);
        }
    }
}
