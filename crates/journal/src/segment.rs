//! Segment files: names, creation out of spares, recycling.

use crate::disk::{DiskError, OpenFile, Store};
use crate::format::{SEGMENT_HEADER, SegmentHeader};

const SEGMENT: &str = "segment-";
const SPARE: &str = "spare-";
const CHECKPOINT: &str = "checkpoint-";

/// The kinds of numbered files in a data directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Numbered {
    /// A segment of the log, by generation.
    Segment(u64),
    /// A segment file that waits to be used again, by the generation it last had.
    Spare(u64),
    /// A checkpoint, by number.
    Checkpoint(u64),
}

impl Numbered {
    /// Reads a file name; `None` for files that are not ours.
    pub fn parse(name: &str) -> Option<Self> {
        let number = |prefix: &str| {
            let digits = name.strip_prefix(prefix).filter(|digits| digits.len() == 16)?;
            u64::from_str_radix(digits, 16).ok()
        };
        let segment = number(SEGMENT).map(Numbered::Segment);
        let kind =
            segment.or(number(SPARE).map(Numbered::Spare)).or(number(CHECKPOINT).map(Numbered::Checkpoint))?;
        (kind.name() == name).then_some(kind)
    }

    /// The file's name.
    pub fn name(self) -> String {
        match self {
            Numbered::Segment(number) => format!("{SEGMENT}{number:016x}"),
            Numbered::Spare(number) => format!("{SPARE}{number:016x}"),
            Numbered::Checkpoint(number) => format!("{CHECKPOINT}{number:016x}"),
        }
    }
}

/// The segment that groups are written to.
pub(crate) struct CurrentSegment {
    pub file: OpenFile,
    pub generation: u64,
    /// Where the next group goes.
    pub offset: u64,
    /// The file's size.
    pub size: u64,
}

impl CurrentSegment {
    /// True if no group was written to it.
    pub fn is_empty(&self) -> bool {
        self.offset == SEGMENT_HEADER as u64
    }
}

/// All segment files but for what is in them: which exist, which wait as spares, which generation comes next.
pub(crate) struct SegmentFiles {
    pub store: Store,
    /// The size of an ordinary segment.
    pub segment_bytes: u64,
    /// The most spares.
    pub spare_limit: usize,
    /// Generations of the files that are part of the log, oldest first.
    pub live: Vec<u64>,
    /// Generations in the names of the spares.
    pub spares: Vec<u64>,
    /// Never given to a segment before.
    pub next_generation: u64,
}

impl SegmentFiles {
    /// Begins a segment that has room for a group of this many bytes. A failed attempt leaves at most a file without
    /// a valid header, which recovery skips.
    pub fn begin(&mut self, header: SegmentHeader, group_bytes: u64) -> Result<CurrentSegment, DiskError> {
        let generation = self.next_generation;
        self.next_generation += 1;
        let header = SegmentHeader { generation, ..header };
        let file = self.file(&Numbered::Segment(generation).name())?;
        match self.prepare(&file, header, group_bytes) {
            Ok(size) => {
                self.live.push(generation);
                Ok(CurrentSegment { file, generation, offset: SEGMENT_HEADER as u64, size })
            }
            Err(error) => {
                if self.store.delete(&file.name).is_err() {
                    self.live.push(generation);
                }
                Err(error)
            }
        }
    }

    /// A spare under its new name, or a new file.
    fn file(&mut self, name: &str) -> Result<OpenFile, DiskError> {
        if let Some(spare) = self.spares.pop() {
            self.store.rename(&Numbered::Spare(spare).name(), name)?;
            return self.store.open(name);
        }
        self.store.create(name)
    }

    fn prepare(&self, file: &OpenFile, header: SegmentHeader, group_bytes: u64) -> Result<u64, DiskError> {
        let wanted = self.segment_bytes.max(SEGMENT_HEADER as u64 + group_bytes);
        let size = file.size()?;
        if size < wanted {
            file.set_size(wanted)?;
        }
        file.write_at(0, &header.encode())?;
        Ok(size.max(wanted))
    }

    /// Keeps a segment's file as a spare if it has the ordinary size and there are too few, else deletes it. If that
    /// fails the file stays live and is tried again the next time; replay does not mind it.
    pub fn recycle(&mut self, generation: u64) {
        let name = Numbered::Segment(generation).name();
        let ordinary =
            self.store.open(&name).and_then(|file| file.size()).is_ok_and(|size| size == self.segment_bytes);
        let gone = if ordinary && self.spares.len() < self.spare_limit {
            let renamed = self.store.rename(&name, &Numbered::Spare(generation).name());
            if renamed.is_ok() {
                self.spares.push(generation);
            }
            renamed
        } else {
            self.store.delete_if_present(&name).map(drop)
        };
        if gone.is_ok() {
            self.live.retain(|live| *live != generation);
        }
    }

    /// Deletes the spares that have another size than configured, and those beyond the limit.
    pub fn trim_spares(&mut self) -> Result<(), DiskError> {
        for spare in std::mem::take(&mut self.spares) {
            let name = Numbered::Spare(spare).name();
            if self.spares.len() < self.spare_limit && self.store.open(&name)?.size()? == self.segment_bytes {
                self.spares.push(spare);
            } else {
                self.store.delete(&name)?;
            }
        }
        Ok(())
    }
}
