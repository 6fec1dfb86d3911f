//! What the journal asks of a disk: a flat directory of named files with positional reads and writes.
//!
//! Two disks exist: [`RealDisk`](crate::RealDisk), a directory of the file system, and
//! [`SimulatedDisk`](crate::SimulatedDisk), which forgets what was not synced. Both promise what POSIX promises and
//! no more: a write is durable after [`DiskFile::sync`], a created, renamed or deleted name after
//! [`Disk::sync_directory`], and a crash before that keeps any subset of them.

use std::fmt;
use std::io;
use std::sync::Arc;

/// A directory of files. Shared between threads; every method may be called from any of them.
pub trait Disk: Send + Sync {
    /// The names of all files, sorted.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Creates an empty file; `AlreadyExists` if the name is taken.
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    /// Opens a file for reading and writing; `NotFound` if there is none.
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    /// Renames a file, replacing what had the new name. Open files stay open.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Deletes a file.
    fn delete(&self, name: &str) -> io::Result<()>;
    /// Makes every creation, renaming and deletion so far durable.
    fn sync_directory(&self) -> io::Result<()>;
    /// Names the time within which nothing that was written goes, synced or not, when a process dies: the kernel's
    /// present run. 0 where that is not known.
    fn boot(&self) -> u64 {
        0
    }
}

/// An open file.
pub trait DiskFile: Send + Sync {
    /// The size in bytes.
    fn size(&self) -> io::Result<u64>;
    /// Cuts the file, or extends it with zeros that may take no space yet.
    fn set_size(&self, size: u64) -> io::Result<()>;
    /// Reads what is at `offset`; fewer bytes than requested only at the end of the file.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;
    /// Writes all bytes at `offset`. After an error any part of them may have been written.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Makes all writes so far durable (`fdatasync`). After an error they may never become so, whatever a second
    /// call answers.
    fn sync(&self) -> io::Result<()>;
}

/// What the journal was doing when the disk failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskAction {
    /// Listing the directory.
    List,
    /// Creating a file.
    Create,
    /// Opening a file.
    Open,
    /// Reading from a file.
    Read,
    /// Writing to a file or setting its size.
    Write,
    /// Syncing a file or the directory.
    Sync,
    /// Renaming a file.
    Rename,
    /// Deleting a file.
    Delete,
}

impl fmt::Display for DiskAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DiskAction::List => "list",
            DiskAction::Create => "create",
            DiskAction::Open => "open",
            DiskAction::Read => "read",
            DiskAction::Write => "write",
            DiskAction::Sync => "sync",
            DiskAction::Rename => "rename",
            DiskAction::Delete => "delete",
        })
    }
}

/// A disk operation failed; names the file.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {file}: {source}")]
pub struct DiskError {
    /// The file, or `data directory`.
    pub file: String,
    /// What was tried.
    pub action: DiskAction,
    /// The system's error.
    pub source: io::Error,
}

/// A disk whose errors name the file.
#[derive(Clone)]
pub(crate) struct Store(pub Arc<dyn Disk>);

/// An open file that knows its name.
#[derive(Clone)]
pub(crate) struct OpenFile {
    pub name: String,
    file: Arc<dyn DiskFile>,
}

const DIRECTORY: &str = "data directory";

fn failed(file: &str, action: DiskAction) -> impl FnOnce(io::Error) -> DiskError {
    let file = file.to_owned();
    move |source| DiskError { file, action, source }
}

impl Store {
    pub fn list(&self) -> Result<Vec<String>, DiskError> {
        self.0.list().map_err(failed(DIRECTORY, DiskAction::List))
    }

    pub fn create(&self, name: &str) -> Result<OpenFile, DiskError> {
        let file = self.0.create(name).map_err(failed(name, DiskAction::Create))?;
        Ok(OpenFile { name: name.to_owned(), file })
    }

    pub fn open(&self, name: &str) -> Result<OpenFile, DiskError> {
        let file = self.0.open(name).map_err(failed(name, DiskAction::Open))?;
        Ok(OpenFile { name: name.to_owned(), file })
    }

    pub fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        self.0.rename(from, to).map_err(failed(from, DiskAction::Rename))
    }

    pub fn delete(&self, name: &str) -> Result<(), DiskError> {
        self.0.delete(name).map_err(failed(name, DiskAction::Delete))
    }

    /// Deletes a file that may not exist; true if it did.
    pub fn delete_if_present(&self, name: &str) -> Result<bool, DiskError> {
        match self.0.delete(name) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(failed(name, DiskAction::Delete)(error)),
        }
    }

    pub fn sync_directory(&self) -> Result<(), DiskError> {
        self.0.sync_directory().map_err(failed(DIRECTORY, DiskAction::Sync))
    }
}

impl OpenFile {
    pub fn size(&self) -> Result<u64, DiskError> {
        self.file.size().map_err(failed(&self.name, DiskAction::Read))
    }

    pub fn set_size(&self, size: u64) -> Result<(), DiskError> {
        self.file.set_size(size).map_err(failed(&self.name, DiskAction::Write))
    }

    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, DiskError> {
        self.file.read_at(offset, buffer).map_err(failed(&self.name, DiskAction::Read))
    }

    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.file.write_at(offset, bytes).map_err(failed(&self.name, DiskAction::Write))
    }

    pub fn sync(&self) -> Result<(), DiskError> {
        self.file.sync().map_err(failed(&self.name, DiskAction::Sync))
    }
}

/// Reads a file front to back in large pieces; holds one piece, or the one requested range if that is larger.
pub(crate) struct Window<'a> {
    file: &'a OpenFile,
    size: u64,
    start: u64,
    buffer: Vec<u8>,
}

const WINDOW_BYTES: u64 = 1 << 20;

impl<'a> Window<'a> {
    pub fn new(file: &'a OpenFile) -> Result<Self, DiskError> {
        Ok(Window { file, size: file.size()?, start: 0, buffer: Vec::new() })
    }

    /// The bytes at `offset`, or `None` if the file ends before.
    pub fn bytes(&mut self, offset: u64, len: u64) -> Result<Option<&[u8]>, DiskError> {
        match offset.checked_add(len) {
            Some(end) if end <= self.size => {}
            _ => return Ok(None),
        }
        let held = offset >= self.start && offset + len <= self.start + self.buffer.len() as u64;
        if !held && !self.fill(offset, len)? {
            return Ok(None);
        }
        let from = (offset - self.start) as usize;
        Ok(Some(&self.buffer[from..from + len as usize]))
    }

    fn fill(&mut self, offset: u64, len: u64) -> Result<bool, DiskError> {
        let wanted = len.max(WINDOW_BYTES).min(self.size - offset) as usize;
        self.buffer.resize(wanted, 0);
        self.start = offset;
        let mut filled = 0;
        while filled < wanted {
            match self.file.read_at(offset + filled as u64, &mut self.buffer[filled..])? {
                0 => break,
                read => filled += read,
            }
        }
        self.buffer.truncate(filled);
        Ok(filled as u64 >= len)
    }

    /// The first offset at or after `from` where the four bytes stand.
    pub fn find(&mut self, mut from: u64, wanted: [u8; 4]) -> Result<Option<u64>, DiskError> {
        while self.bytes(from, 4)?.is_some() {
            let held = &self.buffer[(from - self.start) as usize..];
            if let Some(at) = held.windows(4).position(|four| four == wanted) {
                return Ok(Some(from + at as u64));
            }
            from += held.len() as u64 - 3;
        }
        Ok(None)
    }
}
