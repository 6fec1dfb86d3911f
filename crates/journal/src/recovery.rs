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
use crate::disk::{Disk, DiskError, Store};
use crate::ending::Beyond;
use crate::error::OpenError;
use crate::format::{DirectoryId, GroupNumber, SegmentHeader};
use crate::log::Log;
use crate::manifest::{CheckpointEntry, MANIFEST, Manifest, TEMPORARY};
use crate::marks::{Mark, Marks};
use crate::reader::{End, LogReader, load_segments};
use crate::segment::{Numbered, SegmentFiles};
use crate::unsynced::Unsynced;
use std::fmt;
use std::sync::Arc;
use types::Incarnation;

/// How a journal is opened.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// The size of a segment file in bytes; a larger group gets a larger segment. 64 MiB unless set; at least 4 KiB.
    pub segment_bytes: u64,
    /// How many truncated segment files stay for reuse: syncing into one is faster than into a growing file.
    pub spare_segments: usize,
    /// Keeps the checkpoint before the current one and the log since, so that a damaged checkpoint does not stop the
    /// process from starting. Takes about twice the disk.
    pub retain_previous_checkpoint: bool,
    /// The identity to give the directory if it is new: a random number from the caller.
    pub fresh_id: DirectoryId,
    /// A damaged log is cut where the damage begins, and what goes is listed ([`Recovered::lost`]), instead of being
    /// refused. Damage to the manifest or to the only checkpoint is refused all the same.
    pub accept_loss: bool,
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
            accept_loss: false,
            mutants: Mutants::NONE,
        }
    }
}

/// Known bugs, to validate the tests with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// Recovery takes a group whose payload does not match its checksum for an intact one.
    TornGroups,
    /// Recovery takes no notice of the marks.
    IgnoredMarks,
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
    /// Where the log was cut, if there was anything beyond its end that may have been a group. Nothing of it is known
    /// to have been synced.
    pub cut: Option<Cut>,
    /// What else is missing, where that is accepted.
    pub lost: Option<Lost>,
}

/// The place where a log was cut, and what was found behind it that was a group with an intact header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The segment file.
    pub file: String,
    /// Where the first group begins that is cut, in bytes.
    pub offset: u64,
    /// How many groups lay behind it.
    pub groups: u64,
    /// How many records they had.
    pub records: u64,
    /// How many bytes they had.
    pub bytes: u64,
}

/// A loss that was accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Why the log would have been refused.
    pub damage: String,
    /// The newest group that was known synced; all beyond [`Recovered::last`] are lost.
    pub synced: GroupNumber,
    /// Where the log was cut.
    pub cut: Cut,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cut { file, offset, groups, records, bytes } = self;
        write!(f, "{file} is cut at offset {offset}; behind it lay {groups} groups that can be told, ")?;
        write!(f, "with {records} records and {bytes} bytes")
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Lost { damage, synced, cut } = self;
        write!(f, "{damage}; groups up to {synced} were synced, and those that were not read are lost; {cut}")
    }
}

pub(crate) type Visitor<'a> = dyn FnMut(Piece<'_>) -> Result<(), String> + 'a;

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
        let (mark, unmarked) = directory.mark(&store, &manifest, options)?;
        let (checkpoint, fell_back) = recover_checkpoint(&store, &manifest, visit)?;
        let (base, from) = checkpoint.map_or((0, 0), |entry| (entry.base, entry.generation));
        let mut reader = LogReader {
            manifest: &manifest,
            mark,
            boot: store.0.boot(),
            synced: manifest.synced.max(mark.map_or(0, |mark| mark.synced)),
            segments: load_segments(&store, &manifest, &directory.segments, from)?,
            from,
            mutants: options.mutants,
            last: base,
            used: Vec::new(),
            unsynced: Unsynced::default(),
        };
        let mut grown = 0;
        let mut end = reader.read(&mut |piece| {
            if let Piece::Record { bytes, .. } = &piece {
                grown += bytes.len() as u64;
            }
            visit(piece)
        })?;
        let (beyond, damage) = reader.judge(&mut end)?;
        let (cut, lost) = accept(end, &beyond, damage, (reader.synced, unmarked), options.accept_loss)?;
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
            cut,
            lost,
        };
        let first_with_marks = !manifest.marked;
        let checkpoints = manifest.checkpoints.iter().copied();
        let manifest = Manifest {
            epoch: manifest.epoch + 1,
            clean: false,
            synced: last,
            marked: true,
            checkpoints: checkpoints.skip_while(|entry| Some(*entry) != checkpoint).collect(),
            ..manifest
        };
        let useless = directory.useless(&manifest, from, &used);
        let log = start(store, options, directory, (manifest, first_with_marks), &useless)?;
        Ok((log, recovered))
    }
}

/// What a loss comes to, if it is accepted; refuses it otherwise. `synced` is what manifest and marks say, `unmarked`
/// what is wrong with the latter.
fn accept(
    end: End,
    beyond: &Beyond,
    damage: Option<String>,
    (synced, unmarked): (u64, Option<OpenError>),
    accepts: bool,
) -> Result<(Option<Cut>, Option<Lost>), OpenError> {
    let (file, offset) = (end.file.clone(), end.offset);
    let error = damage.map(|what| OpenError::Corrupt { file, offset, what }).or(unmarked);
    let Beyond { groups, records, bytes, .. } = *beyond;
    let cut = Cut { file: end.file, offset: end.offset, groups, records, bytes };
    match error {
        None => Ok((end.torn.then_some(cut), None)),
        Some(error) if !accepts => Err(error),
        Some(error) => {
            let synced = GroupNumber(synced.max(beyond.synced));
            Ok((None, Some(Lost { damage: error.to_string(), synced, cut })))
        }
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
            let manifest = Manifest::read(store)?;
            // An epoch is in the manifest before it is used.
            return match self.newest() >> 32 > u64::from(manifest.epoch) {
                true => Err(older("than the log")),
                false => Ok((false, manifest)),
            };
        }
        if self.segments.is_empty() && self.checkpoints.is_empty() {
            return Ok((true, Manifest::fresh(options.fresh_id)));
        }
        let what = "it is missing, although the directory holds a log".into();
        Err(OpenError::Corrupt { file: MANIFEST.into(), offset: 0, what })
    }

    /// The greatest number of any file.
    fn newest(&self) -> u64 {
        self.segments.iter().chain(&self.spares).chain(&self.checkpoints).copied().max().unwrap_or(0)
    }

    /// The newest mark, if there are any to be expected; or what is wrong with them, where that is accepted.
    fn mark(
        &self,
        store: &Store,
        manifest: &Manifest,
        options: &LogOptions,
    ) -> Result<(Option<Mark>, Option<OpenError>), OpenError> {
        if !manifest.marked || options.mutants.has(Mutant::IgnoredMarks) {
            return Ok((None, None));
        }
        match Mark::read(store, manifest.id) {
            // An incarnation is in the manifest before it is marked.
            Ok(mark) if mark.incarnation > manifest.incarnation.0 => Err(older("than the marks")),
            Ok(mark) => Ok((Some(mark), None)),
            Err(error @ OpenError::Corrupt { .. }) => Ok((None, Some(error))),
            Err(error) => Err(error),
        }
    }

    /// The segments that no replay will need: those without a group of the log, and those below the oldest checkpoint
    /// that counts. All between that one and the checkpoint that was used (`from`) stay.
    fn useless(&self, manifest: &Manifest, from: u64, used: &[u64]) -> Vec<u64> {
        let oldest = manifest.checkpoints.iter().map(|entry| entry.generation).min().unwrap_or(0);
        let is_needed = |generation: &u64| used.contains(generation) || (oldest..from).contains(generation);
        self.segments.iter().copied().filter(|generation| !is_needed(generation)).collect()
    }
}

/// The manifest is not the one that was written last.
fn older(than: &str) -> OpenError {
    OpenError::Corrupt { file: MANIFEST.into(), offset: 0, what: format!("it is older {than}: a copy?") }
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

/// Makes what was recovered durable, begins a new segment after it and clears away what is of no more use.
fn start(
    store: Store,
    options: &LogOptions,
    directory: Directory,
    (manifest, first_with_marks): (Manifest, bool),
    useless: &[u64],
) -> Result<Log, OpenError> {
    let mut mark = Mark {
        synced: manifest.synced,
        written: manifest.synced,
        incarnation: manifest.incarnation.0,
        boot: store.0.boot(),
        ..Mark::default()
    };
    if first_with_marks {
        // A manifest that promises marks must find some.
        Marks::begin(&store, manifest.id, mark)?;
    }
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
    // The marks of the life before name segments that may go now.
    mark.segment = segment.generation;
    let marks = Marks::begin(&store, manifest.id, mark)?;
    useless.iter().for_each(|generation| files.recycle(*generation));
    for number in directory.checkpoints {
        if !manifest.checkpoints.iter().any(|entry| entry.number == number) {
            store.delete(&Numbered::Checkpoint(number).name())?;
        }
    }
    store.delete_if_present(TEMPORARY)?;
    Ok(Log::new(files, (manifest, marks), segment, options.retain_previous_checkpoint))
}
