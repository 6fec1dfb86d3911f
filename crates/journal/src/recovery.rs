//! Opening a data directory: manifest, checkpoint, log, and the rule of Corrections 82 for where the log ends.
//!
//! ```text
//!  manifest ──> checkpoint chunks ──> segments in order of generation ──> end of the log
//!                                                                            │
//!                       some intact header or the manifest says that  yes ───┴─── no
//!                       a group after the end was synced:          refuse        cut
//! ```
//!
//! The log is a chain: every group names the group before it, every segment the group after which it begins. It ends
//! where no intact group and no segment continues the chain. Reading changes nothing on disk; only when all of it was
//! accepted is what was read made durable, the end recorded in the manifest and a new segment begun, whose header voids
//! for ever what older segments may hold beyond the end.

use crate::checkpoint::read_checkpoint;
use crate::disk::{Disk, DiskError, OpenFile, Store, Window};
use crate::error::OpenError;
use crate::format::{
    DirectoryId, GROUP_HEADER, GROUP_MAGIC, GroupHeader, GroupNumber, Parsed, SEGMENT_HEADER, SegmentHeader,
    records,
};
use crate::log::Log;
use crate::manifest::{CheckpointEntry, MANIFEST, Manifest, TEMPORARY};
use crate::segment::{Numbered, SegmentFiles};
use crate::unsynced::{Place, Unsynced};
use std::sync::Arc;
use types::Incarnation;

/// How a journal is opened.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// The size of a segment file in bytes; a larger group gets a larger segment. 64 MiB unless set; at least 4 KiB.
    pub segment_bytes: u64,
    /// How many truncated segment files are kept for reuse: syncing into one is faster than into a growing file.
    pub spare_segments: usize,
    /// Keeps the checkpoint before the current one and the log since, so that a damaged checkpoint does not stop the
    /// process from starting. Takes about twice the disk.
    pub retain_previous_checkpoint: bool,
    /// The identity to give the directory if it is new: a random number from the caller.
    pub fresh_id: DirectoryId,
    /// A known bug.
    pub mutants: Mutants,
}

impl Default for LogOptions {
    fn default() -> Self {
        LogOptions {
            segment_bytes: 64 << 20,
            spare_segments: 4,
            retain_previous_checkpoint: false,
            fresh_id: DirectoryId::default(),
            mutants: Mutants::NONE,
        }
    }
}

/// Known bugs, to validate the tests with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// Recovery takes a group whose payload does not match its checksum for an intact one.
    TornGroups,
}

/// The bug of a log, or none.
pub type Mutants = types::Mutants<Mutant>;

/// What recovery yields, in order: the checkpoint's chunks, then the log's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// A chunk of the checkpoint, as it was written.
    Chunk(&'a [u8]),
    /// A record of the log.
    Record {
        /// The group it is part of. All records of a group come, or none.
        group: GroupNumber,
        /// Its bytes.
        bytes: &'a [u8],
    },
}

/// What a caller learns about a journal it opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// True if the directory was new.
    pub created: bool,
    /// The directory's identity.
    pub id: DirectoryId,
    /// The incarnation last recorded, 0 in a new directory.
    pub incarnation: Incarnation,
    /// True if the last process ended in order (or there was none). If not, and anything was said before it was
    /// synced, the caller is a new incarnation (Corrections 67).
    pub clean_shutdown: bool,
    /// The group after which the checkpoint stands; zero without a checkpoint.
    pub checkpoint: GroupNumber,
    /// True if the current checkpoint was damaged and the previous one and the log since were used in its place.
    pub fell_back: bool,
    /// How many bytes of records came behind the checkpoint.
    pub grown: u64,
    /// The newest group of the log; all up to it are synced now.
    pub last: GroupNumber,
    /// Where the log was cut, if there was anything beyond its end that may have been a group.
    pub cut: Option<Cut>,
}

/// The end of a log whose last groups were torn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The segment file.
    pub file: String,
    /// Where the first torn group begins, in bytes.
    pub offset: u64,
}

type Visitor<'a> = dyn FnMut(Piece<'_>) -> Result<(), String> + 'a;

impl Log {
    /// The incarnation last recorded in a directory, before it is opened: 0 if it holds no journal. For callers whose
    /// state is built under the next one, and recovered into.
    pub fn incarnation_in(disk: Arc<dyn Disk>) -> Result<Incarnation, OpenError> {
        let store = Store(disk);
        match Directory::list(&store)?.has_manifest {
            true => Ok(Manifest::read(&store)?.incarnation),
            false => Ok(Incarnation(0)),
        }
    }

    /// Opens the journal in a directory and recovers it through `visit`, which gets every piece in order and may
    /// reject one with a reason. Creates the journal if the directory holds none.
    ///
    /// When this returns, everything yielded is synced, and nothing that was cut can ever come back.
    pub fn open(
        disk: Arc<dyn Disk>,
        options: &LogOptions,
        visit: &mut Visitor<'_>,
    ) -> Result<(Log, Recovered), OpenError> {
        let store = Store(disk);
        let directory = Directory::list(&store)?;
        let (created, manifest) = directory.manifest(&store, options)?;
        let (checkpoint, fell_back) = recover_checkpoint(&store, &manifest, visit)?;
        let (base, from) = checkpoint.map_or((0, 0), |entry| (entry.base, entry.generation));
        let mut reader = LogReader {
            manifest: &manifest,
            segments: load_segments(&store, &manifest, &directory.segments, from)?,
            mutants: options.mutants,
            last: base,
            used: Vec::new(),
            unsynced: Unsynced::default(),
        };
        let mut grown = 0;
        let end = reader.read(&mut |piece| {
            if let Piece::Record { bytes, .. } = &piece {
                grown += bytes.len() as u64;
            }
            visit(piece)
        })?;
        reader.check_end(&end)?;
        let last = reader.last;
        reader.make_durable()?;
        let used: Vec<u64> = reader.used.iter().map(|index| reader.segments[*index].generation).collect();
        let recovered = Recovered {
            created,
            id: manifest.id,
            incarnation: manifest.incarnation,
            clean_shutdown: manifest.clean,
            checkpoint: GroupNumber(base),
            fell_back,
            grown,
            last: GroupNumber(last),
            cut: end.torn.then_some(Cut { file: end.file, offset: end.offset }),
        };
        let manifest = Manifest {
            epoch: manifest.epoch + 1,
            clean: false,
            synced: last,
            checkpoints: manifest
                .checkpoints
                .iter()
                .copied()
                .skip_while(|entry| Some(*entry) != checkpoint)
                .collect(),
            ..manifest.clone()
        };
        let useless = directory.useless(&manifest, from, &used);
        let log = start(store, options, directory, manifest, &useless)?;
        Ok((log, recovered))
    }
}

/// The numbered files found.
struct Directory {
    segments: Vec<u64>,
    spares: Vec<u64>,
    checkpoints: Vec<u64>,
    has_manifest: bool,
}

impl Directory {
    fn list(store: &Store) -> Result<Self, DiskError> {
        let mut found = Directory {
            segments: Vec::new(),
            spares: Vec::new(),
            checkpoints: Vec::new(),
            has_manifest: false,
        };
        for name in store.list()? {
            match Numbered::parse(&name) {
                Some(Numbered::Segment(generation)) => found.segments.push(generation),
                Some(Numbered::Spare(generation)) => found.spares.push(generation),
                Some(Numbered::Checkpoint(number)) => found.checkpoints.push(number),
                None => found.has_manifest |= name == MANIFEST,
            }
        }
        Ok(found)
    }

    /// The manifest, and whether it is a new one. Every other file is younger than the first manifest, so a directory
    /// that has one of them and no manifest has lost it.
    fn manifest(&self, store: &Store, options: &LogOptions) -> Result<(bool, Manifest), OpenError> {
        if self.has_manifest {
            return Ok((false, Manifest::read(store)?));
        }
        if self.segments.is_empty() && self.checkpoints.is_empty() {
            return Ok((true, Manifest::fresh(options.fresh_id)));
        }
        let what = "it is missing, although the directory holds a log".into();
        Err(OpenError::Corrupt { file: MANIFEST.into(), offset: 0, what })
    }

    /// The segments that no replay will need: those without a group of the log, and those below the oldest checkpoint
    /// that counts. Between that one and the checkpoint that was used (`from`) all are kept.
    fn useless(&self, manifest: &Manifest, from: u64, used: &[u64]) -> Vec<u64> {
        let oldest = manifest.checkpoints.iter().map(|entry| entry.generation).min().unwrap_or(0);
        let kept = |generation: &u64| used.contains(generation) || (oldest..from).contains(generation);
        self.segments.iter().copied().filter(|generation| !kept(generation)).collect()
    }
}

/// Yields the newest checkpoint. If it is damaged and the one before was retained, with the log since, yields that.
fn recover_checkpoint(
    store: &Store,
    manifest: &Manifest,
    visit: &mut Visitor<'_>,
) -> Result<(Option<CheckpointEntry>, bool), OpenError> {
    let mut damage = None;
    for (index, entry) in manifest.checkpoints.iter().enumerate() {
        if index + 1 < manifest.checkpoints.len() || damage.is_some() {
            // Chunks cannot be taken back: read it all once before yielding any.
            match read_checkpoint(store, manifest.id, entry, &mut |_, _| Ok(())) {
                Err(error @ OpenError::Corrupt { .. }) => {
                    damage.get_or_insert(error);
                    continue;
                }
                result => result?,
            }
        }
        let name = Numbered::Checkpoint(entry.number).name();
        read_checkpoint(store, manifest.id, entry, &mut |chunk, offset| {
            visit(Piece::Chunk(chunk)).map_err(|reason| OpenError::Rejected {
                file: name.clone(),
                offset,
                reason,
            })
        })?;
        return Ok((Some(*entry), damage.is_some()));
    }
    damage.map_or(Ok((None, false)), Err)
}

/// A segment file that may hold a part of the log.
struct Segment {
    generation: u64,
    file: OpenFile,
    /// `None` if the header is not intact or was written for another use of the file.
    header: Option<SegmentHeader>,
}

fn load_segments(
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
struct End {
    /// The segment it ended in; `None` if there was none.
    segment: Option<usize>,
    file: String,
    offset: u64,
    /// True if bytes follow that may have been a group, or segments.
    torn: bool,
}

struct LogReader<'a> {
    manifest: &'a Manifest,
    segments: Vec<Segment>,
    mutants: Mutants,
    /// The newest group read.
    last: u64,
    /// The segments that groups were read from.
    used: Vec<usize>,
    unsynced: Unsynced,
}

impl LogReader<'_> {
    /// Follows the chain, yielding the records.
    fn read(&mut self, visit: &mut Visitor<'_>) -> Result<End, OpenError> {
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

    /// Reads the groups of one segment; where they end, and whether something that began like a group stands there.
    fn read_segment(&mut self, index: usize, visit: &mut Visitor<'_>) -> Result<(u64, bool), OpenError> {
        let file = self.segments[index].file.clone();
        let generation = self.segments[index].generation;
        let younger = self.segments[index + 1..].iter().filter_map(|segment| segment.header);
        let limit = younger.map(|header| header.previous).min().unwrap_or(u64::MAX);
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
            self.unsynced.push(place, header.synced.max(self.manifest.synced));
            offset += GROUP_HEADER as u64 + u64::from(header.length);
        }
    }

    /// Syncs what was read; first writes again what nothing says was synced.
    fn make_durable(&self) -> Result<(), OpenError> {
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

    /// Corrections 82: above everything known synced the log is cut, below it is corrupt.
    fn check_end(&self, end: &End) -> Result<(), OpenError> {
        let mut synced = self.manifest.synced;
        for header in self.segments.iter().filter_map(|segment| segment.header) {
            synced = synced.max(header.synced);
        }
        let ended_in_order = self.manifest.clean && self.last == self.manifest.synced;
        if synced <= self.last && !ended_in_order {
            synced = synced.max(self.claims_beyond(end)?);
        }
        if synced <= self.last {
            return Ok(());
        }
        let what = format!("group {synced} was synced, but the log ends here, after group {}", self.last);
        Err(OpenError::Corrupt { file: end.file.clone(), offset: end.offset, what })
    }

    /// The newest group that any intact group header beyond the end of the log says was synced.
    fn claims_beyond(&self, end: &End) -> Result<u64, DiskError> {
        let mut synced = 0;
        for (index, segment) in self.segments.iter().enumerate().skip(end.segment.unwrap_or(0)) {
            let mut window = Window::new(&segment.file)?;
            let ended_here = end.segment == Some(index) && end.file == segment.file.name;
            let mut offset = if ended_here { end.offset } else { 0 };
            while let Some(found) = window.find(offset, GROUP_MAGIC)? {
                if let Some(bytes) = window.bytes(found, GROUP_HEADER as u64)?
                    && let Parsed::Valid(header) = GroupHeader::parse(bytes, self.manifest.id)
                    && header.generation == segment.generation
                {
                    synced = synced.max(header.synced);
                }
                offset = found + 1;
            }
        }
        Ok(synced)
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

/// Makes what was recovered durable, begins a new segment after it and clears away what is of no more use.
fn start(
    store: Store,
    options: &LogOptions,
    directory: Directory,
    manifest: Manifest,
    useless: &[u64],
) -> Result<Log, OpenError> {
    // The names first: the manifest must never claim what a lost name takes away.
    store.sync_directory()?;
    manifest.write(&store)?;
    let mut files = SegmentFiles {
        store: store.clone(),
        segment_bytes: options.segment_bytes.max(4 << 10),
        spare_limit: options.spare_segments,
        live: directory.segments,
        spares: directory.spares,
        next_generation: u64::from(manifest.epoch) << 32,
    };
    files.trim_spares()?;
    let header =
        SegmentHeader { id: manifest.id, generation: 0, previous: manifest.synced, synced: manifest.synced };
    let segment = files.begin(header, 0)?;
    segment.file.sync()?;
    store.sync_directory()?;
    useless.iter().for_each(|generation| files.recycle(*generation));
    for number in directory.checkpoints {
        if !manifest.checkpoints.iter().any(|entry| entry.number == number) {
            store.delete(&Numbered::Checkpoint(number).name())?;
        }
    }
    store.delete_if_present(TEMPORARY)?;
    Ok(Log::new(files, manifest, segment, options.retain_previous_checkpoint))
}
