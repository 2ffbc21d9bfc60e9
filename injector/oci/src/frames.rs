//! Content that Zstandard compressed: any number of frames, with frames among them that are skipped (RFC 8878, 3.1).

use std::io::{self, Read};

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use crate::archive::ArchiveError;

/// The most bytes of a window, which stay in memory: what `zstd --long=25` needs, and any level without `--ultra`.
pub(crate) const WINDOW: u64 = 32 * 1024 * 1024;

/// Returns whether a blob that begins so consists of frames.
pub(crate) fn is_frame(head: &[u8]) -> bool {
    matches!(head, [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..])
}

/// The content of all frames up to the end of the blob.
pub(crate) struct Frames<R> {
    blob: R,
    decoder: FrameDecoder,
}

impl<R: Read> Frames<R> {
    pub(crate) fn new(blob: R) -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(WINDOW);
        Self { blob, decoder }
    }

    /// Begins the next frame with content. Returns `false` at the end of the blob.
    fn begin(&mut self) -> io::Result<bool> {
        loop {
            let mut first = Vec::with_capacity(1);
            if (&mut self.blob).take(1).read_to_end(&mut first)? == 0 {
                return Ok(false);
            }
            match self.decoder.reset(first.as_slice().chain(&mut self.blob)) {
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
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        loop {
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                let one = BlockDecodingStrategy::UptoBlocks(1);
                self.decoder.decode_blocks(&mut self.blob, one).map_err(io::Error::other)?;
            }
            let read = self.decoder.read(into)?;
            if read > 0 || !self.begin()? {
                return Ok(read);
            }
        }
    }
}
