//! Checkpoints: opaque chunks in a file of their own, written beside traffic, made current by the manifest.

use crate::disk::{DiskError, OpenFile, Store, Window};
use crate::error::OpenError;
use crate::format::{DirectoryId, Fields, GroupNumber, Parsed, begin_header, end_header, open_header};
use crate::manifest::{CheckpointEntry, Manifest};
use crate::segment::Numbered;

const HEADER: usize = 64;
const CHUNK_HEADER: usize = 40;
const FOOTER: usize = 40;
const MAGIC: [u8; 4] = *b"ANBC";
const CHUNK_MAGIC: [u8; 4] = *b"ANBK";
const FOOTER_MAGIC: [u8; 4] = *b"ANBF";

/// Writes a checkpoint: any number of [`chunk`](CheckpointWriter::chunk)s, then
/// [`finish`](CheckpointWriter::finish). Dropped before that, it deletes its file; an unfinished checkpoint that a
/// crash left is deleted at recovery.
pub struct CheckpointWriter {
    store: Store,
    file: OpenFile,
    id: DirectoryId,
    number: u64,
    base: u64,
    generation: u64,
    reflects: u64,
    chunks: u64,
    offset: u64,
    scratch: Vec<u8>,
    finished: bool,
}

impl CheckpointWriter {
    pub(crate) fn create(
        store: &Store,
        id: DirectoryId,
        number: u64,
        base: u64,
        generation: u64,
    ) -> Result<Self, DiskError> {
        let file = store.create(&Numbered::Checkpoint(number).name())?;
        let mut writer = CheckpointWriter {
            store: store.clone(),
            file,
            id,
            number,
            base,
            generation,
            reflects: base,
            chunks: 0,
            offset: 0,
            scratch: Vec::new(),
            finished: false,
        };
        begin_header(&mut writer.scratch, MAGIC, 0);
        writer.put(&[number, base]);
        end_header(&mut writer.scratch, 0, HEADER, id);
        writer.flush()?;
        Ok(writer)
    }

    /// The group the checkpoint stands after: its chunks must hold the effects of every group up to this one, and
    /// recovery replays every later one on top of them.
    pub fn base(&self) -> GroupNumber {
        GroupNumber(self.base)
    }

    /// Says that a chunk also holds effects of groups up to this one. The checkpoint is not installed before they
    /// are synced; replaying them on top must be harmless.
    pub fn reflect(&mut self, group: GroupNumber) {
        self.reflects = self.reflects.max(group.0);
    }

    /// Appends a chunk. Recovery hands it back as it is; 64 KiB to 1 MiB is a good size.
    pub fn chunk(&mut self, bytes: &[u8]) -> Result<(), DiskError> {
        begin_header(&mut self.scratch, CHUNK_MAGIC, 0);
        self.put(&[self.number, self.chunks, bytes.len() as u64]);
        self.scratch.extend_from_slice(&crc32fast::hash(bytes).to_le_bytes());
        end_header(&mut self.scratch, 0, CHUNK_HEADER, self.id);
        self.scratch.extend_from_slice(bytes);
        self.chunks += 1;
        self.flush()
    }

    /// Ends the checkpoint and makes its file durable. It counts once [`Log::install`](crate::Log::install)ed.
    pub fn finish(mut self) -> Result<FinishedCheckpoint, DiskError> {
        begin_header(&mut self.scratch, FOOTER_MAGIC, 0);
        self.put(&[self.number, self.chunks, self.offset]);
        end_header(&mut self.scratch, 0, FOOTER, self.id);
        self.flush()?;
        self.file.sync()?;
        self.store.sync_directory()?;
        self.finished = true;
        let entry = CheckpointEntry {
            number: self.number,
            base: self.base,
            generation: self.generation,
            size: self.offset,
        };
        Ok(FinishedCheckpoint { entry, reflects: self.reflects })
    }

    fn put(&mut self, fields: &[u64]) {
        fields.iter().for_each(|field| self.scratch.extend_from_slice(&field.to_le_bytes()));
    }

    fn flush(&mut self) -> Result<(), DiskError> {
        self.file.write_at(self.offset, &self.scratch)?;
        self.offset += self.scratch.len() as u64;
        self.scratch.clear();
        Ok(())
    }
}

impl Drop for CheckpointWriter {
    fn drop(&mut self) {
        if !self.finished {
            // What cannot be deleted now is deleted by the next recovery.
            let _ = self.store.delete_if_present(&self.file.name);
        }
    }
}

/// A checkpoint that is complete and durable, but not yet the one that counts. If it is never installed, the next
/// recovery deletes it.
#[derive(Debug)]
pub struct FinishedCheckpoint {
    entry: CheckpointEntry,
    reflects: u64,
}

impl FinishedCheckpoint {
    /// The newest group whose effects the checkpoint holds; it must be synced before the checkpoint is installed.
    pub fn reflects(&self) -> GroupNumber {
        GroupNumber(self.reflects)
    }

    /// The file's size in bytes.
    pub fn size(&self) -> u64 {
        self.entry.size
    }

    pub(crate) fn entry(&self) -> CheckpointEntry {
        self.entry
    }
}

/// An installation that has begun; runs without the log.
#[must_use = "no other installation begins before this one comes back through `Log::finish_install`"]
pub struct Installation {
    store: Store,
    manifest: Manifest,
}

impl Installation {
    pub(crate) fn new(store: Store, manifest: Manifest) -> Self {
        Installation { store, manifest }
    }

    /// Writes the manifest that names the checkpoint; two syncs long. The result goes to
    /// [`Log::finish_install`](crate::Log::finish_install).
    pub fn run(self) -> FinishedInstallation {
        FinishedInstallation { result: self.manifest.write(&self.store), manifest: self.manifest }
    }
}

/// The result of an installation, for [`Log::finish_install`](crate::Log::finish_install).
#[must_use = "the log learns of the checkpoint only through `Log::finish_install`"]
pub struct FinishedInstallation {
    pub(crate) manifest: Manifest,
    pub(crate) result: Result<(), DiskError>,
}

/// Reads the header at the window's `offset`.
fn header<'w>(
    window: &'w mut Window<'_>,
    name: &str,
    id: DirectoryId,
    (offset, size, magic): (u64, usize, [u8; 4]),
) -> Result<Option<Fields<'w>>, OpenError> {
    let Some(bytes) = window.bytes(offset, size as u64)? else { return Ok(None) };
    match open_header(bytes, size, magic, id) {
        Parsed::Valid(fields) => Ok(Some(fields)),
        Parsed::Newer(found) => Err(OpenError::NewerVersion { file: name.into(), found }),
        Parsed::Invalid => Ok(None),
    }
}

/// Gets a chunk and its offset in the file.
type ChunkVisitor<'a> = dyn FnMut(&[u8], u64) -> Result<(), OpenError> + 'a;

/// Reads a checkpoint that the manifest lists, handing each chunk and its offset to `visit`. Any damage is an error:
/// an installed checkpoint was durable.
pub(crate) fn read_checkpoint(
    store: &Store,
    id: DirectoryId,
    entry: &CheckpointEntry,
    visit: &mut ChunkVisitor<'_>,
) -> Result<(), OpenError> {
    let name = Numbered::Checkpoint(entry.number).name();
    let damaged =
        |offset: u64, what: &str| OpenError::Corrupt { file: name.clone(), offset, what: what.to_owned() };
    let file = match store.open(&name) {
        Err(error) if error.source.kind() == std::io::ErrorKind::NotFound => {
            return Err(damaged(0, "the checkpoint is missing"));
        }
        file => file?,
    };
    let mut window = Window::new(&file)?;
    let mut begin = header(&mut window, &name, id, (0, HEADER, MAGIC))?
        .ok_or_else(|| damaged(0, "the checkpoint's header is damaged"))?;
    if (begin.u64(), begin.u64()) != (entry.number, entry.base) {
        return Err(damaged(0, "it is not the checkpoint that the manifest lists"));
    }
    let footer = entry.size.saturating_sub(FOOTER as u64);
    let (mut offset, mut chunks) = (HEADER as u64, 0);
    while offset < footer {
        let chunk = header(&mut window, &name, id, (offset, CHUNK_HEADER, CHUNK_MAGIC))?;
        let mut chunk = chunk.ok_or_else(|| damaged(offset, "a chunk's header is damaged"))?;
        let (number, index, length, sum) = (chunk.u64(), chunk.u64(), chunk.u64(), chunk.u32());
        let bytes = window.bytes(offset + CHUNK_HEADER as u64, length)?;
        let bytes =
            bytes.filter(|bytes| crc32fast::hash(bytes) == sum && (number, index) == (entry.number, chunks));
        visit(bytes.ok_or_else(|| damaged(offset, "a chunk is damaged"))?, offset)?;
        offset += CHUNK_HEADER as u64 + length;
        chunks += 1;
    }
    let end = header(&mut window, &name, id, (offset, FOOTER, FOOTER_MAGIC))?;
    let mut end = end.ok_or_else(|| damaged(offset, "the footer is damaged"))?;
    if (end.u64(), end.u64(), end.u64()) != (entry.number, chunks, offset) {
        return Err(damaged(offset, "the footer does not match the chunks"));
    }
    Ok(())
}
