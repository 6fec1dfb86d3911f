//! Following the chain of groups through the segments.

use crate::disk::{OpenFile, Store, Window};
use crate::error::OpenError;
use crate::format::{
    GROUP_HEADER, GROUP_MAGIC, GroupHeader, GroupNumber, Parsed, SEGMENT_HEADER, SegmentHeader, records,
};
use crate::manifest::{MANIFEST, Manifest};
use crate::marks::Mark;
use crate::recovery::{Mutant, Mutants, Piece, Visitor};
use crate::segment::Numbered;
use crate::unsynced::{Place, Unsynced};

/// A segment file that may hold a part of the log.
pub(crate) struct Segment {
    pub generation: u64,
    pub file: OpenFile,
    /// `None` if the header is not intact or was written for another use of the file.
    pub header: Option<SegmentHeader>,
}

pub(crate) fn load_segments(
    store: &Store,
    manifest: &Manifest,
    generations: &[u64],
    from: u64,
) -> Result<Vec<Segment>, OpenError> {
    let mut segments = Vec::new();
    for generation in generations.iter().copied().filter(|generation| *generation >= from) {
        let file = store.open(&Numbered::Segment(generation).name())?;
        let mut bytes = [0; SEGMENT_HEADER];
        let read = file.read_at(0, &mut bytes)?;
        let header = match SegmentHeader::parse(&bytes[..read]) {
            Parsed::Newer(found) => return Err(OpenError::NewerVersion { file: file.name, found }),
            Parsed::Valid(header) if header.id != manifest.id => {
                return Err(OpenError::Foreign { file: file.name });
            }
            Parsed::Valid(header) if header.generation == generation => Some(header),
            _ => None,
        };
        segments.push(Segment { generation, file, header });
    }
    Ok(segments)
}

/// Where the chain of groups ended.
pub(crate) struct End {
    /// The segment it ended in; `None` if there was none.
    pub segment: Option<usize>,
    pub file: String,
    pub offset: u64,
    /// True if bytes follow that may have been a group, or segments.
    pub torn: bool,
}

pub(crate) struct LogReader<'a> {
    pub manifest: &'a Manifest,
    /// What the directory must hold at least; `None` where an older version wrote the directory.
    pub mark: Option<Mark>,
    /// The present run of the kernel.
    pub boot: u64,
    /// The newest group that manifest or mark say was synced.
    pub synced: u64,
    pub segments: Vec<Segment>,
    /// The first segment that replay needs.
    pub from: u64,
    pub mutants: Mutants,
    /// The newest group read.
    pub last: u64,
    /// The segments that groups were read from.
    pub used: Vec<usize>,
    pub unsynced: Unsynced,
}

impl LogReader<'_> {
    /// Follows the chain, yielding the records.
    pub fn read(&mut self, visit: &mut Visitor<'_>) -> Result<End, OpenError> {
        let mut end = End { segment: None, file: MANIFEST.into(), offset: 0, torn: false };
        let mut from = 0;
        while let Some(index) = self.continuation(from) {
            let before = self.last;
            let (offset, torn) = self.read_segment(index, visit)?;
            if self.last > before {
                self.used.push(index);
            }
            end = End { segment: Some(index), file: self.segments[index].file.name.clone(), offset, torn };
            from = index + 1;
        }
        if let Some(next) = self.segments.get(from) {
            // Blame the next file if there is no group to blame.
            if end.segment.is_none() || (!end.torn && next.header.is_none()) {
                end.file.clone_from(&next.file.name);
                end.offset = 0;
            }
            end.torn = true;
        }
        Ok(end)
    }

    /// The first segment at or after `from` that begins after the newest group read.
    fn continuation(&self, from: usize) -> Option<usize> {
        let continues = |segment: &Segment| segment.header.is_some_and(|header| header.previous == self.last);
        self.segments.get(from..)?.iter().position(continues).map(|index| from + index)
    }

    /// The newest group that a segment may hold: what is beyond was cut before a younger one began.
    pub fn limit(&self, index: usize) -> u64 {
        let younger = self.segments[index + 1..].iter().filter_map(|segment| segment.header);
        younger.map(|header| header.previous).min().unwrap_or(u64::MAX)
    }

    /// Reads the groups of one segment; where they end, and whether something that began like a group stands there.
    fn read_segment(&mut self, index: usize, visit: &mut Visitor<'_>) -> Result<(u64, bool), OpenError> {
        let file = self.segments[index].file.clone();
        let generation = self.segments[index].generation;
        let limit = self.limit(index);
        let mut window = Window::new(&file)?;
        let mut offset = SEGMENT_HEADER as u64;
        loop {
            let Some(bytes) = window.bytes(offset, GROUP_HEADER as u64)? else { return Ok((offset, false)) };
            let begun = bytes[..4] == GROUP_MAGIC;
            let header = match GroupHeader::parse(bytes, self.manifest.id) {
                Parsed::Newer(found) => return Err(OpenError::NewerVersion { file: file.name, found }),
                Parsed::Valid(header) => header,
                Parsed::Invalid => return Ok((offset, begun)),
            };
            let stale = header.generation != generation;
            if stale || header.previous != self.last || header.number <= self.last || header.number > limit {
                return Ok((offset, !stale && header.number <= limit));
            }
            let payload = window.bytes(offset + GROUP_HEADER as u64, u64::from(header.length))?;
            let Some(payload) = payload else { return Ok((offset, true)) };
            let checksum = crc32fast::hash(payload);
            let intact = checksum == header.payload_checksum;
            if !intact && !self.mutants.has(Mutant::TornGroups) {
                return Ok((offset, true));
            }
            yield_group(&header, payload, visit, intact).map_err(|error| error.at(&file.name, offset))?;
            self.last = header.number;
            let (number, length) = (header.number, u64::from(header.length));
            let place = Place { segment: index, offset, number, length, checksum };
            self.unsynced.push(place, header.synced.max(self.synced));
            offset += GROUP_HEADER as u64 + u64::from(header.length);
        }
    }

    /// Syncs what was read; first writes again what nothing says was synced.
    pub fn make_durable(&self) -> Result<(), OpenError> {
        for index in self.unsynced.segments() {
            let Segment { file, header, .. } = &self.segments[index];
            if let Some(header) = header {
                file.write_at(0, &header.encode())?;
            }
            self.unsynced.write_again(index, file, self.manifest.id)?;
        }
        for index in &self.used {
            self.segments[*index].file.sync()?;
        }
        Ok(())
    }
}

/// Why a group was not taken.
enum GroupError {
    Malformed,
    Rejected(String),
}

impl GroupError {
    fn at(self, file: &str, offset: u64) -> OpenError {
        let file = file.to_owned();
        match self {
            GroupError::Malformed => {
                let what = "the group's checksum matches, but its payload is not a list of records".into();
                OpenError::Corrupt { file, offset, what }
            }
            GroupError::Rejected(reason) => OpenError::Rejected { file, offset, reason },
        }
    }
}

/// Hands on the records of a group. Of a torn one, which only a validation of the harness gets this far, what there
/// is.
fn yield_group(
    header: &GroupHeader,
    payload: &[u8],
    visit: &mut Visitor<'_>,
    intact: bool,
) -> Result<(), GroupError> {
    let whole = || records(payload).all(|record| record.is_some());
    let count = || records(payload).count() as u64;
    if intact && !(whole() && count() == u64::from(header.records)) {
        return Err(GroupError::Malformed);
    }
    let group = GroupNumber(header.number);
    records(payload)
        .flatten()
        .try_for_each(|bytes| visit(Piece::Record { group, bytes }).map_err(GroupError::Rejected))
}
