//! Bounds on the bytes of an archive, and on the headers in front of one entry.

use std::cell::Cell;
use std::io::{self, Read};

use crate::archive::Limits;

/// The bound that was crossed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum CrossedBound {
    Total,
    Header,
}

/// The bytes that may still be read.
pub(super) struct Meter {
    total: Cell<u64>,
    /// The bytes of headers that may still be read; `None` while content is read.
    header: Cell<Option<u64>>,
    crossed: Cell<Option<CrossedBound>>,
    /// The bytes that an archive may lack after its last file: the rest of a block and the two empty blocks. `umoci
    /// insert` makes such archives.
    padding: Cell<usize>,
}

/// The size of a block of a tar archive.
const BLOCK_BYTES: usize = 512;

impl Meter {
    pub(super) fn new(limits: &Limits) -> Self {
        let padding = Cell::new(3 * BLOCK_BYTES - 1);
        Self { total: Cell::new(limits.unpacked), header: Cell::new(None), crossed: Cell::new(None), padding }
    }

    /// Begins to count headers, up to `max_bytes`, or content if there is no such bound.
    pub(super) fn limit_headers(&self, max_bytes: Option<u64>) {
        self.header.set(max_bytes);
    }

    /// Returns the bytes of the archive that may still be read.
    pub(super) fn remaining(&self) -> u64 {
        self.total.get()
    }

    pub(super) fn crossed(&self) -> Option<CrossedBound> {
        self.crossed.get()
    }

    /// Writes the zeros that are missing at the end of an archive, unless the archive ends within a file.
    fn pad(&self, buffer: &mut [u8]) -> usize {
        let zeros = if self.header.get().is_some() { self.padding.get().min(buffer.len()) } else { 0 };
        buffer[..zeros].fill(0);
        self.padding.set(self.padding.get().saturating_sub(zeros));
        zeros
    }

    fn count(&self, bytes: u64) -> Result<(), CrossedBound> {
        self.total.set(self.total.get().checked_sub(bytes).ok_or(CrossedBound::Total)?);
        if let Some(left) = self.header.get() {
            self.header.set(Some(left.checked_sub(bytes).ok_or(CrossedBound::Header)?));
        }
        Ok(())
    }
}

/// A reader that fails when a bound of its meter is crossed.
pub(super) struct Metered<'a, R> {
    pub(super) inner: R,
    pub(super) meter: &'a Meter,
}

impl<R: Read> Read for Metered<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        if read == 0 {
            return Ok(self.meter.pad(buffer));
        }
        self.meter.count(read as u64).map_err(|crossed| {
            self.meter.crossed.set(Some(crossed));
            io::Error::other("too much")
        })?;
        Ok(read)
    }
}
