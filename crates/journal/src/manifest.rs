//! The manifest: the one small file that says whose log this is, which checkpoints count, and how the last process
//! ended. Replaced atomically: written beside, synced, renamed over, directory synced.

use crate::disk::{DiskError, Store};
use crate::error::OpenError;
use crate::format::{DirectoryId, FORMAT_VERSION, Fields, begin_header, checksum};
use types::Incarnation;

pub(crate) const MANIFEST: &str = "manifest";
pub(crate) const TEMPORARY: &str = "manifest.tmp";
const MAGIC: [u8; 4] = *b"ANBM";
const CLEAN: u16 = 1;
const MARKED: u16 = 2;
const FIXED: usize = 44;
const ENTRY: usize = 32;
/// Far above what any version writes; bounds what is read of a damaged file.
const MAX_BYTES: u64 = 64 << 10;

/// A finished checkpoint, as the manifest lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CheckpointEntry {
    /// Names its file.
    pub number: u64,
    /// The newest group below its start: replay goes on after it.
    pub base: u64,
    /// The first segment that replay needs.
    pub generation: u64,
    /// The file's size in bytes.
    pub size: u64,
}

/// The manifest's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub id: DirectoryId,
    pub incarnation: Incarnation,
    /// How often the directory was opened; the upper half of every segment's generation.
    pub epoch: u32,
    /// The newest group known synced.
    pub synced: u64,
    /// True from an orderly end to the next opening.
    pub clean: bool,
    /// The directory has marks; none were written before them.
    pub marked: bool,
    /// Newest first, two at most.
    pub checkpoints: Vec<CheckpointEntry>,
}

impl Manifest {
    /// The manifest of a directory that was never used.
    pub fn fresh(id: DirectoryId) -> Self {
        Manifest {
            id,
            incarnation: Incarnation(0),
            epoch: 0,
            synced: 0,
            clean: true,
            marked: false,
            checkpoints: Vec::new(),
        }
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(FIXED + ENTRY * self.checkpoints.len() + 4);
        let flags = if self.clean { CLEAN } else { 0 } | if self.marked { MARKED } else { 0 };
        begin_header(&mut out, MAGIC, flags);
        out.extend_from_slice(&self.id.0.to_le_bytes());
        out.extend_from_slice(&self.incarnation.0.to_le_bytes());
        out.extend_from_slice(&self.epoch.to_le_bytes());
        out.extend_from_slice(&self.synced.to_le_bytes());
        out.extend_from_slice(&(self.checkpoints.len() as u32).to_le_bytes());
        for entry in &self.checkpoints {
            for field in [entry.number, entry.base, entry.generation, entry.size] {
                out.extend_from_slice(&field.to_le_bytes());
            }
        }
        let sum = checksum(DirectoryId::default(), &out);
        out.extend_from_slice(&sum.to_le_bytes());
        out
    }

    fn parse(bytes: &[u8]) -> Result<Self, OpenError> {
        let corrupt = |what: &str| OpenError::Corrupt { file: MANIFEST.into(), offset: 0, what: what.into() };
        let (body, sum) = bytes.split_last_chunk::<4>().ok_or_else(|| corrupt("it is too short"))?;
        let mut fields = Fields(body);
        if fields.magic() != MAGIC {
            return Err(corrupt("the magic number is wrong"));
        }
        if u32::from_le_bytes(*sum) != checksum(DirectoryId::default(), body) {
            return Err(corrupt("the checksum does not match"));
        }
        let (version, flags) = (fields.u16(), fields.u16());
        if version > FORMAT_VERSION {
            return Err(OpenError::NewerVersion { file: MANIFEST.into(), found: version });
        }
        let (id, incarnation) = (DirectoryId(fields.u128()), Incarnation(fields.u32()));
        let (epoch, synced, count) = (fields.u32(), fields.u64(), fields.u32() as usize);
        if body.len() < FIXED || count.checked_mul(ENTRY) != Some(body.len() - FIXED) {
            return Err(corrupt("its length does not match its content"));
        }
        let entry = |_| CheckpointEntry {
            number: fields.u64(),
            base: fields.u64(),
            generation: fields.u64(),
            size: fields.u64(),
        };
        let checkpoints = (0..count).map(entry).collect();
        let (clean, marked) = (flags & CLEAN != 0, flags & MARKED != 0);
        Ok(Manifest { id, incarnation, epoch, synced, clean, marked, checkpoints })
    }

    /// Reads the manifest of a directory that has one.
    pub fn read(store: &Store) -> Result<Self, OpenError> {
        let file = store.open(MANIFEST)?;
        let size = file.size()?;
        if size > MAX_BYTES {
            return Err(OpenError::Corrupt {
                file: MANIFEST.into(),
                offset: 0,
                what: "it is too long".into(),
            });
        }
        let mut bytes = vec![0; size as usize];
        let read = file.read_at(0, &mut bytes)?;
        Self::parse(&bytes[..read])
    }

    /// Makes this the directory's manifest. After an error either the old or the new one is.
    pub fn write(&self, store: &Store) -> Result<(), DiskError> {
        if store.delete_if_present(TEMPORARY)? {
            // Else a crash could keep the renaming below, but apply it to the file that had the name before.
            store.sync_directory()?;
        }
        let file = store.create(TEMPORARY)?;
        file.write_at(0, &self.encode())?;
        file.sync()?;
        store.rename(TEMPORARY, MANIFEST)?;
        store.sync_directory()
    }
}
