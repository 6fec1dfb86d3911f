//! Sparse strings: reads them run by run, and writes them.

use super::{Fault, HEADER_BYTES, REGISTERS, SPARSE, header};

/// The most bytes of runs (Redis's hll-sparse-max-bytes).
pub(super) const MAX_SPARSE_BYTES: usize = 3000;
/// The highest value of a register in a run.
const MAX_SPARSE_VALUE: u8 = 32;
/// The longest run of other values than zero.
const MAX_RUN: usize = 4;

/// The runs of a sparse string: how many registers, and their value. Nothing is right after an error.
pub(super) struct Runs<'a> {
    rest: &'a [u8],
    /// The register after the last run.
    next: usize,
}

impl<'a> Runs<'a> {
    pub(super) fn new(runs: &'a [u8]) -> Self {
        Runs { rest: runs, next: 0 }
    }
}

impl Iterator for Runs<'_> {
    type Item = Result<(usize, u8), Fault>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let (len, value, rest) = match self.rest {
            [] if self.next == REGISTERS => return None,
            [] | [0x40..=0x7f] => return Some(Err(Fault::Corrupt)),
            [run @ 0x80..=0xff, rest @ ..] => (usize::from(run & 3) + 1, (run >> 2 & 31) + 1, rest),
            [high @ 0x40..=0x7f, low, rest @ ..] => {
                ((usize::from(high & 63) << 8 | usize::from(*low)) + 1, 0, rest)
            }
            [run, rest @ ..] => (usize::from(run & 63) + 1, 0, rest),
        };
        self.rest = rest;
        self.next += len;
        Some(if self.next > REGISTERS { Err(Fault::Corrupt) } else { Ok((len, value)) })
    }
}

/// Calls `visit` with pieces of two sparse strings that have one value in each: how many registers, and the values.
pub(super) fn each_pair(
    mine: &[u8],
    theirs: &[u8],
    mut visit: impl FnMut(usize, u8, u8),
) -> Result<(), Fault> {
    let (mut mine, mut theirs) = (Runs::new(mine), Runs::new(theirs));
    let (mut left, mut their_left) = ((0, 0), (0, 0));
    loop {
        if left.0 == 0 {
            match mine.next() {
                Some(run) => left = run?,
                None => break,
            }
        }
        if their_left.0 == 0 {
            their_left = theirs.next().unwrap_or(Err(Fault::Corrupt))?;
        }
        let len = left.0.min(their_left.0);
        visit(len, left.1, their_left.1);
        left.0 -= len;
        their_left.0 -= len;
    }
    theirs.next().map_or(Ok(()), |more| more.map(|_| ()))
}

/// The sparse string with these registers, if there is one.
pub(super) fn encode_sparse(registers: impl Iterator<Item = u8>) -> Option<Vec<u8>> {
    let mut writer = SparseWriter::new(64);
    for value in registers {
        if !writer.push(1, value) {
            return None;
        }
    }
    writer.finish()
}

/// Writes runs, from pieces in order that have one value each.
pub(super) struct SparseWriter {
    out: Vec<u8>,
    /// The value of a run that goes on, and how long it is.
    value: u8,
    len: usize,
    /// No register had a value that a run cannot have.
    fits: bool,
}

impl SparseWriter {
    /// A writer that expects so many bytes of runs.
    pub(super) fn new(bytes: usize) -> Self {
        SparseWriter { out: header(SPARSE, bytes), value: 0, len: 0, fits: true }
    }

    /// False if there is no sparse string with these registers.
    pub(super) fn push(&mut self, len: usize, value: u8) -> bool {
        if value != self.value && len > 0 {
            self.end_run();
            self.value = value;
            self.fits &= value <= MAX_SPARSE_VALUE && self.out.len() <= HEADER_BYTES + MAX_SPARSE_BYTES;
        }
        self.len += len;
        self.fits
    }

    fn end_run(&mut self) {
        let len = std::mem::take(&mut self.len);
        match (self.value, len) {
            (_, 0) => {}
            (0, 1..=64) => self.out.push((len - 1) as u8),
            (0, _) => self.out.extend_from_slice(&[0x40 | ((len - 1) >> 8) as u8, (len - 1) as u8]),
            (value, _) => {
                let run = |len: usize| 0x80 | (value - 1) << 2 | (len - 1) as u8;
                self.out.extend(std::iter::repeat_n(run(MAX_RUN), len / MAX_RUN));
                if !len.is_multiple_of(MAX_RUN) {
                    self.out.push(run(len % MAX_RUN));
                }
            }
        }
    }

    /// The string; `None` if there is none.
    pub(super) fn finish(mut self) -> Option<Vec<u8>> {
        if self.fits {
            self.end_run();
        }
        (self.fits && self.out.len() <= HEADER_BYTES + MAX_SPARSE_BYTES).then_some(self.out)
    }
}

/// Calls `visit` with each register of a sparse string that is not zero.
pub(super) fn each_register(runs: &[u8], mut visit: impl FnMut(usize, u8)) -> Result<(), Fault> {
    let mut from = 0;
    for run in Runs::new(runs) {
        let (len, value) = run?;
        if value > 0 {
            (from..from + len).for_each(|index| visit(index, value));
        }
        from += len;
    }
    Ok(())
}
