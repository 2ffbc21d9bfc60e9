//! How much is read of an archive, and of the headers in front of an entry.

use std::cell::Cell;
use std::io::{self, Read};

use crate::archive::Limits;

/// Which bound was crossed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum CrossedBound {
    Total,
    Header,
}

/// What may still be read.
pub(super) struct Meter {
    total: Cell<u64>,
    /// While headers are read.
    header: Cell<Option<u64>>,
    crossed: Cell<Option<CrossedBound>>,
    /// What an archive may lack behind its last file, as those of `umoci insert` do: the rest of a block, and the two empty ones.
    missing: Cell<usize>,
}

/// What archives consist of.
const BLOCK: usize = 512;

impl Meter {
    pub(super) fn new(limits: &Limits) -> Self {
        let missing = Cell::new(3 * BLOCK - 1);
        Self { total: Cell::new(limits.unpacked), header: Cell::new(None), crossed: Cell::new(None), missing }
    }

    /// From now on headers are read, of so many bytes at most; or else content.
    pub(super) fn limit_headers(&self, most: Option<u64>) {
        self.header.set(most);
    }

    /// What may still be read of the archive.
    pub(super) fn left(&self) -> u64 {
        self.total.get()
    }

    pub(super) fn crossed(&self) -> Option<CrossedBound> {
        self.crossed.get()
    }

    /// Ends the archive where it has ended early, but not within a file.
    fn end(&self, into: &mut [u8]) -> usize {
        let zeros = if self.header.get().is_some() { self.missing.get().min(into.len()) } else { 0 };
        into[..zeros].fill(0);
        self.missing.set(self.missing.get().saturating_sub(zeros));
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

/// What is read through a meter. It ends where a bound is crossed.
pub(super) struct Metered<'a, R> {
    pub(super) inner: R,
    pub(super) meter: &'a Meter,
}

impl<R: Read> Read for Metered<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(into)?;
        if read == 0 {
            return Ok(self.meter.end(into));
        }
        self.meter.count(read as u64).map_err(|crossed| {
            self.meter.crossed.set(Some(crossed));
            io::Error::other("too much")
        })?;
        Ok(read)
    }
}
