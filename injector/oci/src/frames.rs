//! Content compressed by Zstandard: any number of frames, with skippable frames among them (RFC 8878, 3.1).

use std::io::{self, Read};

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use crate::archive::ArchiveError;

/// The maximum bytes of a window, which stay in memory. `zstd --long=25` and every level without `--ultra` stay within
/// it.
pub(crate) const MAX_WINDOW_BYTES: u64 = 32 * 1024 * 1024;

/// Returns whether a blob that begins with `head` consists of frames.
pub(crate) fn is_frame(head: &[u8]) -> bool {
    matches!(head, [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..])
}

/// A reader of the content of all frames of a blob.
pub(crate) struct Frames<R> {
    blob: R,
    decoder: FrameDecoder,
}

impl<R: Read> Frames<R> {
    pub(crate) fn new(blob: R) -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(MAX_WINDOW_BYTES);
        Self { blob, decoder }
    }

    /// Begins the next frame with content. Returns `false` at the end of the blob.
    fn begin(&mut self) -> io::Result<bool> {
        loop {
            let mut first_byte = Vec::with_capacity(1);
            if (&mut self.blob).take(1).read_to_end(&mut first_byte)? == 0 {
                return Ok(false);
            }
            match self.decoder.reset(first_byte.as_slice().chain(&mut self.blob)) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame { length, .. })) => {
                    let length = u64::from(length);
                    if io::copy(&mut (&mut self.blob).take(length), &mut io::sink())? != length {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(FrameDecoderError::WindowSizeTooBig { max, .. }) => {
                    return Err(io::Error::other(ArchiveError::Window(max)));
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
    }
}

impl<R: Read> Read for Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                let strategy = BlockDecodingStrategy::UptoBlocks(1);
                self.decoder.decode_blocks(&mut self.blob, strategy).map_err(io::Error::other)?;
            }
            let read = self.decoder.read(buffer)?;
            if read > 0 || !self.begin()? {
                return Ok(read);
            }
        }
    }
}
